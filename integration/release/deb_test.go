//go:build release

package release

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// cleanRoot makes a small Debian without anything of this project.
func cleanRoot(t *testing.T) string {
	t.Helper()
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		t.Fatal(err)
	}
	suite := regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`).FindSubmatch(release)
	if suite == nil {
		t.Fatalf("%s does not name the suite", release)
	}
	root := filepath.Join(t.TempDir(), "root")
	run(t, "mmdebstrap", "--mode=root", "--variant=apt", "--include=ca-certificates", "--quiet", string(suite[1]), root)
	if err := os.Chmod(filepath.Dir(filepath.Dir(root)), 0o755); err != nil { // another user must reach the root
		t.Fatal(err)
	}
	return root
}

func dpkg(t *testing.T, root string, args ...string) string {
	t.Helper()
	return run(t, "env", append([]string{"-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "chroot", root, "dpkg"}, args...)...)
}

// install installs a package in a root.
func install(t *testing.T, root, deb string) {
	t.Helper()
	data, err := os.ReadFile(deb)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "tmp/crawlgate.deb"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Without a terminal, dpkg resolves a changed configuration in its default way.
	dpkg(t, root, "--force-confdef", "--install", "/tmp/crawlgate.deb")
}

// older returns the package with the same files and a version before the release's.
func older(t *testing.T, deb string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "dpkg-deb", "--raw-extract", deb, dir+"/files")
	control := dir + "/files/DEBIAN/control"
	text, err := os.ReadFile(control)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(?m)^Version: .*$`).ReplaceAll(text, []byte("Version: 0.0.0~0"))
	if err := os.WriteFile(control, text, 0o644); err != nil {
		t.Fatal(err)
	}
	// The older Caddyfile differs, so that dpkg must choose.
	if err := os.WriteFile(dir+"/files/etc/crawlgate/Caddyfile", []byte("# of an older version\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "dpkg-deb", "--root-owner-group", "-Znone", "--build", dir+"/files", dir+"/older.deb")
	return dir + "/older.deb"
}

// unitCommand returns the unit's command in a root, with the unit's user and variables and without
// any privilege.
func unitCommand(t *testing.T, root string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/crawlgate.service"))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) []string {
		m := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("the unit lacks %s", name)
		}
		return strings.Fields(string(m[1]))
	}
	user := value("User")[0]
	const script = `root=$1; shift
mount -t proc proc "$root/proc"
exec chroot "$root" "$@"`
	command := append([]string{"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, value("Environment")...)
	command = append(
		command, "unshare", "--mount", "sh", "-ec", script, "sh", root, "setpriv", "--reuid="+user, "--regid="+value("Group")[0],
		"--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all",
	)
	return append(command, value("ExecStart")...)
}

// TestDeb installs the older package in a clean Debian, edits its configuration, upgrades, runs the
// gateway like the unit, and removes the package.
func TestDeb(t *testing.T) {
	t.Parallel()
	need(t, true, "mmdebstrap", "dpkg-deb", "unshare", "mount", "chroot", "setpriv")
	deb, binary := artefact(t, "crawlgate_*_amd64.deb"), artefact(t, "crawlgate_*_linux_amd64")
	root := cleanRoot(t)
	install(t, root, older(t, deb))
	config, port := filepath.Join(root, "etc/crawlgate/Caddyfile"), testorigin.ReservePort(t)
	edited := caddyfile(port, "file /var/log/crawlgate/access.log")
	overwrite(t, config, edited)
	install(t, root, deb)
	if text, err := os.ReadFile(config); err != nil || string(text) != edited {
		t.Errorf("after the upgrade, the configuration is %s, error %v, want the edited one", text, err)
	}
	if out := dpkg(t, root, "--verify", "crawlgate"); strings.Contains(out, "/usr/") {
		t.Errorf("dpkg --verify: %s", out)
	}
	if sum(t, filepath.Join(root, "usr/bin/crawlgate")) != sum(t, binary) {
		t.Error("the binary in the package differs from the release's")
	}

	g, stop := start(t, port, unitCommand(t, root)...)
	g.check(t, build(t, binary).Main.Version)
	stop()
	log, err := os.ReadFile(filepath.Join(root, "var/log/crawlgate/access.log"))
	if err != nil || strings.Count(string(log), `"disallowed"`) != 1 {
		t.Errorf("the access log: error %v, want one refusal: %s", err, log)
	}
	overwrite(t, config, packaged(t, deb))
	validate := unitCommand(t, root)
	for i, word := range validate {
		if word == "run" {
			validate[i] = "validate"
		}
	}
	run(t, validate[0], validate[1:]...)
	strangerMayNot(t, root, config, packaged(t, deb))

	dpkg(t, root, "--remove", "crawlgate")
	if _, err := os.Stat(filepath.Join(root, "var/lib/crawlgate/caddy/crawlgate/robots.db")); err != nil {
		t.Errorf("the removal deleted the state: %v", err)
	}
	dpkg(t, root, "--purge", "crawlgate")
	for _, gone := range []string{"etc/crawlgate", "var/lib/crawlgate", "var/log/crawlgate", "usr/bin/crawlgate"} {
		if _, err := os.Stat(filepath.Join(root, gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after the purge, %s still exists: %v", gone, err)
		}
	}
}

// strangerMayNot runs the gateway with the package's Caddyfile, and checks that uid 65534 can
// neither give nor lift a stop.
func strangerMayNot(t *testing.T, root, config, caddyfile string) {
	t.Helper()
	port, metrics := testorigin.ReservePort(t), testorigin.ReservePort(t)
	overwrite(t, config, strings.NewReplacer(":3128", fmt.Sprintf(":%d", port), ":3129", fmt.Sprintf(":%d", metrics)).Replace(caddyfile))
	_, stop := start(t, port, unitCommand(t, root)...)
	as := func(user, group string, args ...string) (string, error) {
		command := unitCommand(t, root)
		command = append(command[:slices.Index(command, "/usr/bin/crawlgate")+1], args...)
		for i, word := range command {
			switch name, _, _ := strings.Cut(word, "="); name {
			case "--reuid":
				command[i] = "--reuid=" + user
			case "--regid":
				command[i] = "--regid=" + group
			}
		}
		out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput()
		return string(out), err
	}
	if out, err := as("0", "crawlgate", "robots", "deny", "host", "held.example", "--by", "dora"); err != nil {
		t.Errorf("robots deny by root without capabilities: error %v, output %s", err, out)
	}
	for _, args := range [][]string{{"deny", "all"}, {"undeny", "host", "held.example"}} {
		if out, err := as("65534", "65534", append([]string{"robots"}, args...)...); err == nil || !strings.Contains(out, "permission denied") {
			t.Errorf("%q by uid 65534: error %v, output %s", args, err, out)
		}
	}
	if out, err := as("0", "crawlgate", "robots", "deny"); err != nil || !strings.Contains(out, "held.example") || strings.Contains(out, "all ") {
		t.Errorf("robots deny: error %v, output %s", err, out)
	}
	stop()
}

// overwrite writes a file and keeps its owner and mode.
func overwrite(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.WriteString(text)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

// packaged returns the Caddyfile in a package.
func packaged(t *testing.T, deb string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, "dpkg-deb", "--extract", deb, dir)
	text, err := os.ReadFile(filepath.Join(dir, "etc/crawlgate/Caddyfile"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestLintian checks that Debian's lintian finds no errors in the packages of both architectures.
func TestLintian(t *testing.T) {
	t.Parallel()
	need(t, false, "lintian")
	for _, arch := range []string{"amd64", "arm64"} {
		t.Log(run(t, "lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0", artefact(t, "crawlgate_*_"+arch+".deb")))
	}
}

// TestRPM checks the digests of the .rpm, that it has the files of the .deb, and that its binary is
// the release's.
func TestRPM(t *testing.T) {
	t.Parallel()
	need(t, false, "rpm", "rpm2cpio", "cpio")
	for arch, name := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		rpm := artefact(t, "crawlgate-*."+name+".rpm")
		db := "--dbpath=" + t.TempDir()
		if out := run(t, "rpm", db, "--checksig", "--nosignature", rpm); !strings.Contains(out, "digests OK") {
			t.Errorf("rpm --checksig: %s", out)
		}
		list := strings.Fields(run(t, "rpm", db, "--query", "--package", "--list", rpm))
		for _, want := range []string{
			"/etc/crawlgate/Caddyfile", "/usr/bin/crawlgate", "/usr/lib/systemd/system/crawlgate.service",
			"/usr/lib/sysusers.d/crawlgate.conf", "/usr/lib/tmpfiles.d/crawlgate.conf", "/usr/share/licenses/crawlgate/LICENSE",
			"/usr/share/man/man8/crawlgate.8.gz", "/usr/share/man/man8/crawlgate-robots-audit.8.gz",
			"/usr/share/bash-completion/completions/crawlgate", "/usr/share/zsh/site-functions/_crawlgate", "/usr/share/fish/vendor_completions.d/crawlgate.fish",
		} {
			if !strings.Contains("\n"+strings.Join(list, "\n")+"\n", "\n"+want+"\n") {
				t.Errorf("the .rpm lacks %s: %q", want, list)
			}
		}
		if out := run(t, "rpm", db, "--query", "--package", "--configfiles", rpm); out != "/etc/crawlgate/Caddyfile\n" {
			t.Errorf("the configuration files are %q", out)
		}
		dir := t.TempDir()
		// The names in the archive are absolute. Without the option, cpio would write to this
		// machine's root.
		run(t, "sh", "-ec", `rpm2cpio "$1" | (cd "$2" && cpio --quiet --no-absolute-filenames -idm)`, "sh", rpm, dir)
		if sum(t, dir+"/usr/bin/crawlgate") != sum(t, artefact(t, "crawlgate_*_linux_"+arch)) {
			t.Error("the binary in the package differs from the release's")
		}
	}
}

// TestRPMRuns installs the .rpm in a root, runs the gateway like the unit, upgrades, and removes
// the package. The root is Debian's, so the test ignores the package's requirements for Fedora.
func TestRPMRuns(t *testing.T) {
	t.Parallel()
	need(t, true, "mmdebstrap", "rpm", "unshare", "mount", "chroot", "setpriv")
	root, rpm := cleanRoot(t), artefact(t, "crawlgate-*.x86_64.rpm")
	run(t, "rpm", "--root="+root, "--nodeps", "--install", rpm)
	config, port := filepath.Join(root, "etc/crawlgate/Caddyfile"), testorigin.ReservePort(t)
	edited := caddyfile(port, "file /var/log/crawlgate/access.log")
	overwrite(t, config, edited)
	g, stop := start(t, port, unitCommand(t, root)...)
	g.check(t, build(t, artefact(t, "crawlgate_*_linux_amd64")).Main.Version)
	stop()
	run(t, "rpm", "--root="+root, "--nodeps", "--upgrade", "--force", rpm)
	if text, err := os.ReadFile(config); err != nil || string(text) != edited {
		t.Errorf("after the upgrade, the configuration is %s, error %v, want the edited one", text, err)
	}
	run(t, "rpm", "--root="+root, "--nodeps", "--erase", "crawlgate")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/crawlgate")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the removal, the binary still exists: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "var/lib/crawlgate/caddy/crawlgate/robots.db")); err != nil {
		t.Errorf("the removal deleted the state: %v", err)
	}
}
