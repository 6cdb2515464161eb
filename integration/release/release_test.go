//go:build release

package release

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// maxBinary is the largest size of a binary.
const maxBinary = 66 << 20

// dist returns the folder of the release under test.
func dist(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(os.Getenv("CRAWLGATE_RELEASE"))
	if err != nil || os.Getenv("CRAWLGATE_RELEASE") == "" {
		t.Fatalf("CRAWLGATE_RELEASE must name the folder that `make release` filled: %v", err)
	}
	return dir
}

// artefact returns the only file of the release that matches a pattern.
func artefact(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dist(t), pattern))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s matches %q, error %v, want one file", pattern, found, err)
	}
	return found[0]
}

// run returns the output of a program that must succeed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	var out, errors bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errors
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out.Bytes(), errors.Bytes())
	}
	return out.String()
}

// need skips a test if one of its programs is missing, or if it needs root. In CI the test fails.
func need(t *testing.T, root bool, names ...string) {
	t.Helper()
	var missing []string
	for _, name := range names {
		if _, err := exec.LookPath(name); err != nil {
			missing = append(missing, name)
		}
	}
	if root && os.Geteuid() != 0 {
		missing = append(missing, "root")
	}
	if len(missing) == 0 {
		return
	}
	if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
		t.Fatalf("required and missing: %q", missing)
	}
	t.Skipf("missing: %q", missing)
}

func sum(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}

// build returns the build information of a binary.
func build(t *testing.T, path string) *debug.BuildInfo {
	t.Helper()
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// modules returns path@version of all modules in a binary except the main one.
func modules(t *testing.T, path string) (list []string) {
	t.Helper()
	for _, m := range build(t, path).Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, m.Path+"@"+m.Version)
	}
	return list
}

// TestBinaries checks that each binary is small, static and built from the commit, that it lacks
// the excluded modules, and that its SBOM lists the others.
func TestBinaries(t *testing.T) {
	t.Parallel()
	version := ""
	for _, target := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"} {
		path := artefact(t, "crawlgate_*_"+target)
		stat, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %.1f MiB", target, float64(stat.Size())/(1<<20))
		if stat.Size() > maxBinary || stat.Mode().Perm() != 0o755 {
			t.Errorf("%s: %d bytes, mode %s", target, stat.Size(), stat.Mode())
		}
		info := build(t, path)
		if version == "" {
			version = info.Main.Version
		}
		if v := info.Main.Version; v != version || !strings.HasPrefix(v, "v") {
			t.Errorf("%s: version %q, want %q", target, v, version)
		}
		list := modules(t, path)
		for _, m := range list {
			if path, _, _ := strings.Cut(m, "@"); slices.Contains([]string{"github.com/dgraph-io/badger/v2", "github.com/go-sql-driver/mysql", "github.com/jackc/pgx/v5"}, path) {
				t.Errorf("%s has the excluded module %s", target, m)
			}
		}
		if got := components(t, path+".cdx.json"); len(list) < 100 || !slices.Equal(got, list) {
			t.Errorf("%s: SBOM %q, want %q", target, got, list)
		}
		if strings.HasPrefix(target, "linux") {
			checkStatic(t, path)
		}
	}
	out := run(t, artefact(t, "crawlgate_*_linux_amd64"), "version")
	if !strings.HasPrefix(out, "Crawlgate "+version+", Caddy v2.") {
		t.Errorf("version %q, want %s", out, version)
	}
}

// checkStatic checks that a binary needs neither a loader nor a library.
func checkStatic(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
			t.Errorf("%s has a segment %s", path, p.Type)
		}
	}
}

// components returns path@version of the components of an SBOM, in order.
func components(t *testing.T, path string) (list []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat, SpecVersion, SerialNumber string
		Components                           []struct{ Name, Version, Purl string }
	}
	if err := json.Unmarshal(text, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.SpecVersion == "" || bom.SerialNumber != "" {
		t.Errorf("%s: format %q, version %q, serial number %q", path, bom.BOMFormat, bom.SpecVersion, bom.SerialNumber)
	}
	for _, c := range bom.Components {
		if c.Purl != "pkg:golang/"+c.Name+"@"+c.Version {
			t.Errorf("%s: the purl does not fit the component %q", path, c)
		}
		list = append(list, c.Name+"@"+c.Version)
	}
	return list
}

// TestVerify types the commands of "Verify a download" in docs/install.md. They must reject a
// changed file, changed sums, and another key.
func TestVerify(t *testing.T) {
	t.Parallel()
	need(t, false, "minisign")
	section := testdocs.Sections(t, "install.md")["Verify a download"]
	_, commands, _ := strings.Cut(section, "```sh\n")
	commands, _, _ = strings.Cut(commands, "```")
	binary := filepath.Base(artefact(t, "crawlgate_*_linux_amd64"))
	try := func(spoil func(dir string)) (string, error) {
		dir := t.TempDir()
		public, err := filepath.Abs(testdocs.Path("crawlgate.pub"))
		if err != nil {
			t.Fatal(err)
		}
		if throwaway := filepath.Join(dist(t), "throwaway.pub"); exists(throwaway) {
			public = throwaway
		}
		for name, path := range map[string]string{
			binary: artefact(t, binary), "SHA256SUMS": artefact(t, "SHA256SUMS"),
			"SHA256SUMS.minisig": artefact(t, "SHA256SUMS.minisig"), "crawlgate.pub": public,
		} {
			run(t, "cp", path, filepath.Join(dir, name))
		}
		spoil(dir)
		cmd := exec.CommandContext(t.Context(), "sh", "-ec", commands)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := try(func(string) {})
	info := build(t, artefact(t, binary))
	for _, want := range []string{revision(info), binary + ": OK", "Signature and comment signature verified"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("error %v, output %s\nwant %q", err, out, want)
		}
	}
	for name, spoil := range map[string]func(dir string){
		"file":      func(dir string) { run(t, "sh", "-c", "echo >>"+dir+"/"+binary) },
		"sums":      func(dir string) { run(t, "sh", "-c", "echo >>"+dir+"/SHA256SUMS") },
		"comment":   func(dir string) { run(t, "sed", "-i", "s/, commit/ , commit/", dir+"/SHA256SUMS.minisig") },
		"signature": func(dir string) { run(t, "rm", dir+"/SHA256SUMS.minisig") },
		"key": func(dir string) {
			run(t, "minisign", "-G", "-W", "-f", "-p", dir+"/crawlgate.pub", "-s", dir+"/key")
		},
	} {
		if out, err := try(spoil); err == nil {
			t.Errorf("a changed %s passes: %s", name, out)
		}
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// revision returns the commit of a binary.
func revision(info *debug.BuildInfo) string {
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "no commit"
}

// TestSums checks that SHA256SUMS names each file of the release once.
func TestSums(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(artefact(t, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dist(t))
	if err != nil {
		t.Fatal(err)
	}
	var want strings.Builder
	for _, e := range entries {
		if !slices.Contains([]string{"SHA256SUMS", "SHA256SUMS.minisig", "throwaway.pub"}, e.Name()) {
			fmt.Fprintf(&want, "%s  %s\n", sum(t, filepath.Join(dist(t), e.Name())), e.Name())
		}
	}
	if string(text) != want.String() {
		t.Errorf("SHA256SUMS is\n%s\nwant\n%s", text, want.String())
	}
}
