//go:build slow

package operate

import (
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// typed is a command of a page and the output shown below it.
type typed struct {
	command string
	shown   string // "" if the page shows nothing
}

var (
	readmeBlock = regexp.MustCompile("(?ms)^```(sh|console)\n(.*?)^```$")
	escapes     = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]`)
	fraction    = regexp.MustCompile(`\b\d+\.\d{3,}\b`)
)

// readmeCommands returns the commands of the blocks `sh`, one a line, and `console`, after "$ ".
func readmeCommands(page string) (list []typed) {
	for _, block := range readmeBlock.FindAllStringSubmatch(page, -1) {
		for line := range strings.Lines(block[2]) {
			command, isCommand := strings.CutPrefix(line, "$ ")
			if isCommand || block[1] == "sh" {
				list = append(list, typed{command: strings.TrimSpace(command)})
			} else {
				list[len(list)-1].shown += line
			}
		}
	}
	return list
}

// pattern matches the output that a page shows: "..." stands for any lines or, in a line, for any
// characters; runs of blanks and whole seconds match others.
func pattern(shown string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString(`\A`)
	for line := range strings.Lines(seconds(shown)) {
		if line = strings.TrimRight(line, "\n"); line == "..." {
			b.WriteString(`(?:.*\n)*?`)
			continue
		}
		parts := strings.Split(line, "...")
		for i, part := range parts {
			words := strings.Fields(part)
			for j := range words {
				words[j] = regexp.QuoteMeta(words[j])
			}
			parts[i] = strings.Join(words, `[ \t]+`)
		}
		b.WriteString(`[ \t]*` + strings.Join(parts, `.*`) + `[ \t]*\n`)
	}
	return regexp.MustCompile(b.String() + `\z`)
}

// seconds rounds times, which differ between runs.
func seconds(text string) string {
	return fraction.ReplaceAllStringFunc(text, func(s string) string {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil {
			return s
		}
		return strconv.Itoa(int(math.Round(f))) + "s"
	})
}

// printed returns the text that a person reads in the output of a terminal.
func printed(out string) string {
	return seconds(escapes.ReplaceAllString(strings.ReplaceAll(out, "\r", ""), ""))
}

// TestReadmePattern checks that pattern finds differences.
func TestReadmePattern(t *testing.T) {
	for _, tt := range []struct {
		shown, printed string
		want           bool
	}{
		{"a  b\n", "a b\n", true},
		{"a b\n", "a c\n", false},
		{"a\n", "a\nb\n", false},
		{"a\n...\n", "a\nb\nc\n", true},
		{"...\nb\n", "a\nb\n", true},
		{"...\nb\n", "a\nc\n", false},
		{"x ... z\n", "x y z\n", true},
		{"x ... z\n", "x y\nz\n", false},
		{"a+\n", "aa\n", false},
		{"0.004021\n1.991580\n", "0.1234\n2.1234\n", true},
		{"0.004021\n1.991580\n", "0.1234\n1.1234\n", false},
		{"", "a\n", false},
	} {
		if got := pattern(tt.shown).MatchString(printed(tt.printed)); got != tt.want {
			t.Errorf("pattern(%q) matches %q: %v, want %v", tt.shown, tt.printed, got, tt.want)
		}
	}
}

// TestReadme types every command of the README except the one that runs this test.
func TestReadme(t *testing.T) {
	rig.LoadsMachine(t)
	const all = "go test ./..."
	if commands := typePage(t, testdocs.Path("README.md"), all); len(commands) < 8 || !slices.Contains(commands, all) {
		t.Errorf("the README has the commands %q, want at least 8", commands)
	}
}

// TestStart types every command of docs/start.md.
func TestStart(t *testing.T) {
	rig.LoadsMachine(t)
	if commands := typePage(t, testdocs.Path("docs", "start.md"), ""); len(commands) < 9 {
		t.Errorf("the page has the commands %q, want at least 9", commands)
	}
}

// typePage types every command of a page except one into a terminal, in a copy of the source. It
// compares the output with the page and returns all commands. It replaces only ports and the public
// site.
func typePage(t *testing.T, page, but string) (all []string) {
	t.Helper()
	for _, tool := range []string{"bash", "script", "git", "curl"} {
		rig.Need(t, tool)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	r, ports := newReader(t)
	for _, c := range readmeCommands(ports.Replace(string(text))) {
		all = append(all, c.command)
		switch {
		case c.command == but:
		case strings.Contains(c.command, "crawlgate run "):
			r.serve(c)
		default:
			r.enter(c)
		}
	}
	return all
}

// newReader copies the source and gives its examples free ports. It returns a reader of the page
// there, and the replacer of the page's ports.
func newReader(t *testing.T) (*reader, *strings.Replacer) {
	t.Helper()
	port := func() string { return rig.FreePort(t)[len("127.0.0.1"):] }
	admin := "localhost" + port()
	ports := strings.NewReplacer(":3128", port(), ":8080", port(), "localhost:2019", admin, "https://example.com/", "https://127.0.0.1/")
	r := &reader{t: t, dir: copySource(t)}
	if exec.CommandContext(t.Context(), "unshare", "--mount", "true").Run() == nil {
		r.place = []string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" "$1" && cd "$1" && shift && exec "$@"`, r.dir, testdocs.Path()}
	}
	r.env = append(os.Environ(), "CADDY_ADMIN="+admin, "XDG_DATA_HOME="+r.dir, "XDG_CONFIG_HOME="+r.dir, "SHELL=bash", "no_proxy=", "NO_PROXY=",
		"http_proxy=http://127.0.0.1:9") // the reader's machine has another proxy, which does not answer here
	for _, name := range []string{"try", "minimal"} {
		file := filepath.Join(r.dir, "examples", name, "Caddyfile")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		local := ports.Replace(string(text))
		if !strings.Contains(local, "bind 127.0.0.1") {
			local = strings.Replace(local, " {\n", " {\n\tbind 127.0.0.1\n", 1)
		}
		if err := os.WriteFile(file, []byte(local), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return r, ports
}

// copySource copies the files that git knows or would add, so that the commands do not write into a
// working tree.
func copySource(t *testing.T) string {
	t.Helper()
	dir := rig.TempDir(t)
	cmd := exec.CommandContext(t.Context(), "bash", "-c", `git ls-files -coz --exclude-standard | xargs -0 cp --parents -t "$0"`, dir)
	cmd.Dir = testdocs.Path()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("copying the source: %v\n%s", err, out)
	}
	return dir
}

// reader is a person at a terminal who follows a page.
type reader struct {
	t   *testing.T
	dir string
	env []string
	// place precedes a command to give the copy the path of the checkout, so that go finds its
	// build cache. It is empty if the test cannot mount; then go compiles the copy.
	place []string
	stop  func() // ends the running gateway like Ctrl-C
}

// terminal returns a command in a new session.
func (r *reader) terminal(command string) *exec.Cmd {
	words := append(slices.Clone(r.place), "script", "-qefc", command, "/dev/null")
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

// buildTime bounds the first build on a busy machine.
const buildTime = 5 * time.Minute

// serve starts a gateway in place of the one before, and waits until it has printed the output
// shown.
func (r *reader) serve(c typed) {
	r.t.Helper()
	if r.stop != nil {
		r.stop()
	}
	cmd, out := r.terminal(c.command), new(rig.Tail)
	cmd.Stdout, cmd.Stderr = out, out
	keys, err := cmd.StdinPipe()
	if err != nil {
		r.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_, _ = io.WriteString(keys, "\x03")
		select {
		case err := <-exited:
			ended := err == nil
			if strings.HasPrefix(c.command, "go run ") { // go itself exits with 1 on Ctrl-C
				ended = strings.Contains(printed(out.String()), `"exit_code": 0}`)
			}
			if !ended {
				r.t.Errorf("%s ended with %v:\n%s", c.command, err, out)
			}
		case <-time.After(20 * time.Second):
			r.t.Errorf("%s did not end on Ctrl-C:\n%s", c.command, out)
			_ = cmd.Process.Kill()
		}
	}
	r.t.Cleanup(r.stop)
	want := pattern("...\n... ready ...\n...\n")
	if c.shown != "" {
		want = pattern(c.shown)
	}
	r.t.Logf("$ %s", c.command)
	shown := func() bool {
		text := printed(out.String())
		return want.MatchString(text[:strings.LastIndexByte(text, '\n')+1])
	}
	if strings.HasPrefix(c.command, "go run ") { // go prints nothing while it builds
		for end := time.Now().Add(buildTime); out.String() == "" && time.Now().Before(end); {
			time.Sleep(50 * time.Millisecond)
		}
	}
	rig.Eventually(r.t, "what the page shows of "+c.command, shown)
}

// enter runs a command to its end. A command without output in the page must succeed.
func (r *reader) enter(c typed) {
	r.t.Helper()
	out, err := r.terminal(c.command).CombinedOutput()
	text := printed(string(out))
	r.t.Logf("$ %s\n%s", c.command, text)
	if c.shown == "" {
		if err != nil {
			r.t.Errorf("%s: %v\n%s", c.command, err, text)
		}
		return
	}
	if !pattern(c.shown).MatchString(text) {
		r.t.Errorf("%s printed\n%s\nthe page shows\n%s", c.command, text, c.shown)
	}
}
