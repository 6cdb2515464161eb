//go:build release

package release

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// imageConfig is the image's configuration.
type imageConfig struct {
	Architecture string
	Created      string
	Config       struct {
		User, WorkingDir     string
		Entrypoint, Cmd, Env []string
		Volumes              map[string]struct{}
		ExposedPorts         map[string]struct{}
		Labels               map[string]string
	}
}

// inspect reads the image's configuration with skopeo.
func inspect(t *testing.T, archive string) (c imageConfig) {
	t.Helper()
	if err := json.Unmarshal([]byte(run(t, "skopeo", "inspect", "--config", "oci-archive:"+archive)), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestImageConfig checks user, ports, volume and labels of the images of both architectures.
func TestImageConfig(t *testing.T) {
	t.Parallel()
	need(t, false, "skopeo", "git")
	commit := strings.TrimSpace(run(t, "git", "rev-parse", "HEAD"))
	for _, arch := range []string{"amd64", "arm64"} {
		archive := artefact(t, "crawlgate_*_oci_"+arch+".tar")
		c := inspect(t, archive)
		version := strings.Split(filepath.Base(archive), "_")[1]
		_, volume := c.Config.Volumes["/data"]
		_, port := c.Config.ExposedPorts["3128/tcp"]
		if c.Architecture != arch || c.Config.User != "65532:65532" || !volume || !port {
			t.Errorf("%s: wrong user, port, volume or architecture: %+v", arch, c)
		}
		if len(c.Config.Entrypoint) != 1 || len(c.Config.Cmd) == 0 {
			t.Errorf("%s: entrypoint %q, command %q", arch, c.Config.Entrypoint, c.Config.Cmd)
		}
		for name, want := range map[string]string{
			"version": version, "revision": commit, "licenses": "Apache-2.0", "source": "https://github.com/crawlgate/crawlgate",
		} {
			if got := c.Config.Labels["org.opencontainers.image."+name]; got != want {
				t.Errorf("%s: label %s %q, want %q", arch, name, got, want)
			}
		}
	}
}

// TestImageRuns checks that the image's binary is the release's, that the image runs as its user
// with a read-only root, and that it has certificate authorities for https.
func TestImageRuns(t *testing.T) {
	t.Parallel()
	need(t, true, "skopeo", "unshare", "chroot", "mount")
	archive, binary := artefact(t, "crawlgate_*_oci_amd64.tar"), artefact(t, "crawlgate_*_linux_amd64")
	c, root, data := inspect(t, archive), t.TempDir(), t.TempDir()
	unpack(t, archive, root)
	if err := os.Chmod(filepath.Dir(root), 0o755); err != nil { // another user must reach the root
		t.Fatal(err)
	}
	inside := filepath.Join(root, c.Config.Entrypoint[0])
	if sum(t, inside) != sum(t, binary) {
		t.Error("the binary in the image differs from the release's")
	}
	if got := components(t, binary+".cdx.json"); !slices.Equal(got, modules(t, inside)) {
		t.Errorf("the SBOM has %q, want the binary's modules", got)
	}
	authorities, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil || strings.Count(string(authorities), "BEGIN CERTIFICATE") < 100 {
		t.Errorf("certificate authorities: error %v, %d bytes, want at least 100 certificates", err, len(authorities))
	}
	if err := os.Chown(data, 65532, 65532); err != nil {
		t.Fatal(err)
	}
	port := testorigin.ReservePort(t)
	config := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(config, []byte(caddyfile(port, "stderr")), 0o644); err != nil {
		t.Fatal(err)
	}
	const script = `root=$1 data=$2 config=$3; shift 3
mkdir "$root/proc"
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --bind "$data" "$root/data"
mount --bind "$config" "$root/etc/crawlgate/Caddyfile"
mount -o remount,bind,ro "$root"
exec chroot --userspec=65532:65532 "$root" "$@"`
	command := append([]string{"env", "-i", "PATH=" + os.Getenv("PATH")}, c.Config.Env...)
	command = append(command, "unshare", "--mount", "sh", "-ec", script, "sh", root, data, config)
	command = append(append(command, c.Config.Entrypoint...), c.Config.Cmd...)
	g, _ := start(t, port, command...)
	g.check(t, build(t, binary).Main.Version)
	if _, err := os.Stat(filepath.Join(data, "caddy/crawlgate/robots.db")); err != nil {
		t.Errorf("the gateway made no store: %v", err)
	}
}

// unpack extracts the files of an image into a folder, with their owners.
func unpack(t *testing.T, archive, root string) {
	t.Helper()
	layout := t.TempDir()
	run(t, "tar", "-xf", archive, "-C", layout)
	var index, manifest struct {
		Manifests, Layers []struct{ Digest string }
	}
	read := func(name string, v any) {
		text, err := os.ReadFile(filepath.Join(layout, name))
		if err == nil {
			err = json.Unmarshal(text, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	blob := func(digest string) string { return filepath.Join("blobs", strings.ReplaceAll(digest, ":", "/")) }
	read("index.json", &index)
	read(blob(index.Manifests[0].Digest), &manifest)
	for _, layer := range manifest.Layers {
		file, err := os.Open(filepath.Join(layout, blob(layer.Digest)))
		if err != nil {
			t.Fatal(err)
		}
		if err := unpackLayer(file, root); err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
}

func unpackLayer(file io.Reader, root string) error {
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return err
	}
	for layer := tar.NewReader(unzipped); ; {
		h, err := layer.Next()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		path, mode := filepath.Join(root, h.Name), fs.FileMode(h.Mode).Perm()
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, mode)
		} else {
			var data []byte
			if data, err = io.ReadAll(layer); err == nil {
				err = os.WriteFile(path, data, mode)
			}
		}
		if err := errors.Join(err, syscall.Chown(path, h.Uid, h.Gid)); err != nil {
			return err
		}
	}
}
