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

// cleanRoot is a small Debian with nothing of ours in it.
func cleanRoot(t *testing.T) string {
	t.Helper()
	release, err := os.ReadFile("/etc/os-release")
	if err != nil {
		t.Fatal(err)
	}
	suite := regexp.MustCompile(`(?m)^VERSION_CODENAME=(\w+)$`).FindSubmatch(release)
	if suite == nil {
		t.Fatalf("no suite in %s", release)
	}
	root := filepath.Join(t.TempDir(), "root")
	run(t, "mmdebstrap", "--mode=root", "--variant=apt", "--include=ca-certificates", "--quiet", string(suite[1]), root)
	if err := os.Chmod(filepath.Dir(filepath.Dir(root)), 0o755); err != nil { // another user walks through it
		t.Fatal(err)
	}
	return root
}

// dpkg runs it in a root.
func dpkg(t *testing.T, root string, args ...string) string {
	t.Helper()
	return run(t, "env", append([]string{"-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND=noninteractive", "chroot", root, "dpkg"}, args...)...)
}

// install puts a package into a root.
func install(t *testing.T, root, deb string) {
	t.Helper()
	data, err := os.ReadFile(deb)
	if err == nil {
		err = os.WriteFile(filepath.Join(root, "tmp/crawlgate.deb"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Nobody is there to answer: what dpkg does by default becomes of a changed configuration.
	dpkg(t, root, "--force-confdef", "--install", "/tmp/crawlgate.deb")
}

// older is the package with the same files and an earlier version than the release's.
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
	// The Caddyfile of before was another one, so that dpkg has to choose.
	if err := os.WriteFile(dir+"/files/etc/crawlgate/Caddyfile", []byte("# of an older version\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "dpkg-deb", "--root-owner-group", "-Znone", "--build", dir+"/files", dir+"/older.deb")
	return dir + "/older.deb"
}

// unitCommand is the command of the unit in a root, run there as the unit's user without any
// privilege and with its variables.
func unitCommand(t *testing.T, root string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "usr/lib/systemd/system/crawlgate.service"))
	if err != nil {
		t.Fatal(err)
	}
	value := func(name string) []string {
		m := regexp.MustCompile(`(?m)^` + name + `=(.*)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("the unit has no %s", name)
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
// gateway as the unit does, and removes it.
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
		t.Errorf("after the upgrade the configuration is %s, %v", text, err)
	}
	if out := dpkg(t, root, "--verify", "crawlgate"); strings.Contains(out, "/usr/") {
		t.Errorf("dpkg --verify: %s", out)
	}
	if sum(t, filepath.Join(root, "usr/bin/crawlgate")) != sum(t, binary) {
		t.Error("the binary in the package is another one")
	}

	g, stop := start(t, port, unitCommand(t, root)...)
	g.check(t, build(t, binary).Main.Version)
	stop()
	log, err := os.ReadFile(filepath.Join(root, "var/log/crawlgate/access.log"))
	if err != nil || strings.Count(string(log), `"disallowed"`) != 1 {
		t.Errorf("the access log: %v %s", err, log)
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
		t.Errorf("a removal takes the state: %v", err)
	}
	dpkg(t, root, "--purge", "crawlgate")
	for _, gone := range []string{"etc/crawlgate", "var/lib/crawlgate", "var/log/crawlgate", "usr/bin/crawlgate"} {
		if _, err := os.Stat(filepath.Join(root, gone)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("after the purge there is %s: %v", gone, err)
		}
	}
}

// strangerMayNot runs the gateway by the Caddyfile of the package, and holds that uid 65534 can neither give nor lift a stop.
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
		t.Errorf("root, which has no capabilities here: %v %s", err, out)
	}
	for _, args := range [][]string{{"deny", "all"}, {"undeny", "host", "held.example"}} {
		if out, err := as("65534", "65534", append([]string{"robots"}, args...)...); err == nil || !strings.Contains(out, "permission denied") {
			t.Errorf("a stranger's %q: %v %s", args, err, out)
		}
	}
	if out, err := as("0", "crawlgate", "robots", "deny"); err != nil || !strings.Contains(out, "held.example") || strings.Contains(out, "all ") {
		t.Errorf("the stops: %v %s", err, out)
	}
	stop()
}

// overwrite keeps the owner and mode of a file.
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

// packaged is the Caddyfile in a package.
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

// TestLintian: Debian's own judge finds no errors in the packages of both architectures.
func TestLintian(t *testing.T) {
	t.Parallel()
	need(t, false, "lintian")
	for _, arch := range []string{"amd64", "arm64"} {
		t.Log(run(t, "lintian", "--allow-root", "--fail-on", "error", "--tag-display-limit", "0", artefact(t, "crawlgate_*_"+arch+".deb")))
	}
}

// TestRPM: its digests are right, it has the files of the .deb, and its binary is the
// release's.
func TestRPM(t *testing.T) {
	t.Parallel()
	need(t, false, "rpm", "rpm2cpio", "cpio")
	for arch, name := range map[string]string{"amd64": "x86_64", "arm64": "aarch64"} {
		rpm := artefact(t, "crawlgate-*."+name+".rpm")
		db := "--dbpath=" + t.TempDir()
		if out := run(t, "rpm", db, "--checksig", "--nosignature", rpm); !strings.Contains(out, "digests OK") {
			t.Errorf("%s", out)
		}
		list := strings.Fields(run(t, "rpm", db, "--query", "--package", "--list", rpm))
		for _, want := range []string{
			"/etc/crawlgate/Caddyfile", "/usr/bin/crawlgate", "/usr/lib/systemd/system/crawlgate.service",
			"/usr/lib/sysusers.d/crawlgate.conf", "/usr/lib/tmpfiles.d/crawlgate.conf", "/usr/share/licenses/crawlgate/LICENSE",
			"/usr/share/man/man8/crawlgate.8.gz", "/usr/share/man/man8/crawlgate-robots-audit.8.gz",
			"/usr/share/bash-completion/completions/crawlgate", "/usr/share/zsh/site-functions/_crawlgate", "/usr/share/fish/vendor_completions.d/crawlgate.fish",
		} {
			if !strings.Contains("\n"+strings.Join(list, "\n")+"\n", "\n"+want+"\n") {
				t.Errorf("%s is not in %q", want, list)
			}
		}
		if out := run(t, "rpm", db, "--query", "--package", "--configfiles", rpm); out != "/etc/crawlgate/Caddyfile\n" {
			t.Errorf("configuration %q", out)
		}
		dir := t.TempDir()
		// The names in the archive are absolute: without the option they would be written into this machine.
		run(t, "sh", "-ec", `rpm2cpio "$1" | (cd "$2" && cpio --quiet --no-absolute-filenames -idm)`, "sh", rpm, dir)
		if sum(t, dir+"/usr/bin/crawlgate") != sum(t, artefact(t, "crawlgate_*_linux_"+arch)) {
			t.Error("the binary in the package is another one")
		}
	}
}

// TestRPMRuns installs the .rpm into a root, runs the gateway as the unit does, upgrades, and removes it. The root is
// Debian's, so what the package asks of Fedora's is not looked at.
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
		t.Errorf("after the upgrade the configuration is %s, %v", text, err)
	}
	run(t, "rpm", "--root="+root, "--nodeps", "--erase", "crawlgate")
	if _, err := os.Stat(filepath.Join(root, "usr/bin/crawlgate")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after the removal there is a binary: %v", err)
	}
	if _, err := os.Stat(filepath.Join(root, "var/lib/crawlgate/caddy/crawlgate/robots.db")); err != nil {
		t.Errorf("a removal takes the state: %v", err)
	}
}
