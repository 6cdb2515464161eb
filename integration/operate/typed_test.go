//go:build slow

package operate

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// TestOperatePage types each command of docs/operate.md, section by section. It replaces only
// folders, ports and host names, and the programs that a test cannot have: see stubs.
func TestOperatePage(t *testing.T) {
	t.Parallel()
	scenarios := map[string]func(*testing.T, *section){
		"Upgrade": typeUpgrade, "Upgrade two gateways behind one name": typeUpgradeOfTwo, "Back up and restore": typeBackup,
		"What fills the disk": typeDisk, "Rotate the log": typeLogrotate, "Logs in Loki or S3": typeStreams, "Rotate the CA": typeRotateAuthority,
	}
	for heading, text := range testdocs.Sections(t, "operate.md") {
		b := &section{t: t}
		for _, m := range fenced.FindAllStringSubmatch(text, -1) {
			b.left = append(b.left, strings.ReplaceAll(m[3], "\n"+m[1], "\n"))
			b.kinds = append(b.kinds, m[2])
		}
		scenario := scenarios[heading]
		if scenario == nil {
			if strings.Contains(text, "```sh") {
				t.Errorf("the test does not type the commands of %q", heading)
			}
			continue
		}
		delete(scenarios, heading)
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			b.t = t
			if scenario(t, b); len(b.left) > 0 && !t.Failed() {
				t.Errorf("the test does not type %q", b.left)
			}
		})
	}
	for heading := range scenarios {
		t.Errorf("docs/operate.md has no section %q", heading)
	}
}

var fenced = regexp.MustCompile("(?ms)^( *)```([a-z]*)\n(.*?)^ *```$")

// section has the code blocks of a section.
type section struct {
	t           *testing.T
	left, kinds []string
}

// next returns the next block.
func (s *section) next(kind string) string {
	s.t.Helper()
	if len(s.left) == 0 || s.kinds[0] != kind {
		s.t.Fatalf("the next block is not of the kind %q: %q", kind, s.left)
	}
	text := s.left[0]
	s.left, s.kinds = s.left[1:], s.kinds[1:]
	return text
}

// machine is a machine with the package installed in a folder, and with the programs of stubs.
type machine struct {
	t       *testing.T
	root    string
	g       *rig.Gateway
	replace []string // further replacements
}

// stubs replace programs that need a machine of their own, or a service on the network.
var stubs = map[string]string{
	"systemctl": `curl -sS --fail-with-body -X POST "$CONTROL/$1/$2"`,
	"apt":       `test -f "$2" && systemctl try-restart crawlgate.service`, // like postinst.sh
	"runuser": `test "$1 $2 $3" = "-u crawlgate --" && shift 3
case $(readlink -f "$(dirname "$1")")/ in "$(pwd -P)"/*) exit 126 ;; esac # the user may not read the folder of root
exec "$@"`,
	"dpkg-deb": `test "$1 $2" = "--extract crawlgate_0.2.0_amd64.deb" && mkdir -p "$3/usr/bin" && ln -s "$CRAWLGATE" "$3/usr/bin/crawlgate"`,
	"chown":    `test "$1 $2" = "-R crawlgate:" && shift 2 && ls -d "$@"`,
	"aws": `case "$1 $2 $4" in
"s3 cp -") cat "$ARCHIVE/${3##*/}" ;;
"s3 sync "*) mkdir "$4" && cp "$ARCHIVE"/*.gz "$4" ;;
*) exit 64 ;;
esac`,
	"logcli": `test "$*" = "query --quiet --forward --limit=0 --output=raw --from=2026-11-01T00:00:00Z --to=2026-12-01T00:00:00Z {app=\"crawlgate\"}" && cat "$ARCHIVE/stream"`,
}

// newMachine makes a machine whose gateway is not started yet.
func newMachine(t *testing.T) *machine {
	t.Helper()
	rig.Need(t, "curl")
	m := &machine{t: t, root: rig.TempDir(t)}
	for _, dir := range []string{"var/lib/crawlgate", "var/log/crawlgate", "etc/crawlgate", "etc/logrotate.d", "opt", "root", "tmp", "bin", "archive"} {
		if err := os.MkdirAll(filepath.Join(m.root, dir), 0o750); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range stubs {
		m.write("bin/"+name, "#!/bin/sh\nset -e\n"+text+"\n", 0o700)
	}
	if err := os.Symlink(rig.Binary, m.path("bin/crawlgate")); err != nil {
		t.Fatal(err)
	}
	m.write("root/crawlgate_0.2.0_amd64.deb", "", 0o600)
	m.g = &rig.Gateway{T: t, Dir: m.path("var/lib/crawlgate"), Addr: rig.FreePort(t)}
	return m
}

func (m *machine) path(name string) string { return filepath.Join(m.root, name) }

func (m *machine) write(name, text string, mode os.FileMode) {
	m.t.Helper()
	if err := os.WriteFile(m.path(name), []byte(text), mode); err != nil {
		m.t.Fatal(err)
	}
}

// config returns the package's configuration with a sealed log.
func (m *machine) config(more string) rig.Config {
	return rig.Config{
		Engine: rig.Unpaced,
		Global: fmt.Sprintf("log sealed {\noutput robots_evidence {\nfile %s {\nroll_keep 1000000\nroll_keep_for 8760h\n}\n}\ninclude http.log.access\n}\n%s",
			m.path("var/log/crawlgate/access.log"), more),
	}
}

// start starts the gateway.
func (m *machine) start(c rig.Config) {
	m.t.Helper()
	m.g.Config = c
	m.write("etc/crawlgate/Caddyfile", m.g.Caddyfile(c), 0o640)
	if err := m.g.Start(c); err != nil {
		m.t.Fatal(err)
	}
}

// control answers for systemctl.
func (m *machine) control(w http.ResponseWriter, r *http.Request) {
	order, unit, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if strings.TrimSuffix(unit, ".service") != "crawlgate" {
		http.Error(w, "no unit "+unit, http.StatusNotFound)
		return
	}
	if order == "stop" || order == "try-restart" {
		m.g.Stop()
	}
	if order == "start" || order == "try-restart" {
		if err := m.g.Start(m.g.Config); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

var absolute = regexp.MustCompile(`(?:^|\s)/\S*`)

// command returns a shell command that types a block on the machine.
func (m *machine) command(block string) *exec.Cmd {
	replace := append(m.replace, " -C /", " -C "+m.root, "127.0.0.1:3128", m.g.Addr, "/run/crawlgate/admin.sock", m.g.AdminSocket())
	for _, dir := range []string{"/var/lib/crawlgate", "/var/log/crawlgate", "/etc/crawlgate", "/etc/logrotate.d", "/opt/", "/root/", "/tmp/"} {
		replace = append(replace, dir, m.root+dir)
	}
	typed := strings.NewReplacer(replace...).Replace(block)
	for _, path := range absolute.FindAllString(typed, -1) { // the block must not write to this machine
		if !strings.HasPrefix(strings.TrimSpace(path), m.root) {
			m.t.Fatalf("%q is outside %s: %s", path, m.root, block)
		}
	}
	cmd := exec.CommandContext(m.t.Context(), rig.Need(m.t, "bash"), "-euo", "pipefail", "-c", typed)
	server := httptest.NewServer(http.HandlerFunc(m.control))
	m.t.Cleanup(server.Close)
	cmd.Dir = m.path("root")
	cmd.Env = append(os.Environ(), "PATH="+m.path("bin")+":"+os.Getenv("PATH")+":/usr/sbin:/sbin", "CONTROL="+server.URL, "CRAWLGATE="+rig.Binary, "ARCHIVE="+m.path("archive"),
		"no_proxy=*", "CRAWLGATE_GATEWAY=unix/"+m.g.AdminSocket(), "XDG_DATA_HOME="+m.g.Dir, "XDG_CONFIG_HOME="+m.g.Dir)
	return cmd
}

// types types a block and returns its output.
func (m *machine) types(block string) string {
	m.t.Helper()
	out, err := m.command(block).CombinedOutput()
	if m.t.Logf("%s\n%s", block, out); err != nil {
		m.t.Fatalf("%s: %v\n%s", block, err, out)
	}
	return string(out)
}

// portOf returns the port of an address with a colon before it.
func portOf(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return ":" + port
}
