// Testways runs a gateway in its own process, sends one request or command through it on each way
// of docs/architecture.md, and writes which code ran. It has to be built with `go build -cover
// -covermode=atomic -coverpkg=github.com/crawlgate/crawlgate/...`; its argument is the folder to
// write to.
package main

import (
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"runtime/coverage"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	_ "github.com/crawlgate/crawlgate" // the modules of the gateway
	"github.com/crawlgate/crawlgate/cli"
	"github.com/crawlgate/crawlgate/internal/sockets"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// times is how often each way is walked: code that ran by chance during one walk did not run during
// all.
const times = 5

func main() {
	// The origins also listen in this process.
	sockets.Process.Own = func() ([]sockets.Socket, error) { return nil, nil }
	testing.Init()
	testing.Main(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{Name: "ways", F: walk}}, nil, nil)
}

// recorder writes which code ran.
type recorder struct {
	t   *testing.T
	dir string
}

// way walks a way several times. Each walk has its own folder, WAY.N. What prepare does is not
// recorded.
func (r recorder) way(name string, prepare func(n int) (walk func())) {
	r.t.Helper()
	for n := range times {
		dir := filepath.Join(r.dir, name+"."+strconv.Itoa(n))
		if err := os.Mkdir(dir, 0o700); err != nil {
			r.t.Fatal(err)
		}
		walk := prepare(n)
		if err := coverage.ClearCounters(); err != nil {
			r.t.Fatal(err)
		}
		walk()
		if err := coverage.WriteCountersDir(dir); err != nil {
			r.t.Fatal(err)
		}
		if err := coverage.WriteMetaDir(dir); err != nil {
			r.t.Fatal(err)
		}
	}
}

// agents defines two agents. One of them trains models.
const agents = `agent trainbot {
			token TrainBot
			user_agent TrainBot
			purpose train-ai
		}
		agent tester {
			token Tester
			user_agent Tester
		}
		preferences deny`

// walker sends requests through a gateway.
type walker struct {
	t       *testing.T
	g       *testgateway.Gateway
	origins *testorigin.Server
	lines   int // of the access log so far
}

// site starts a site with the given robots.txt.
func (w *walker) site(rules string) *testorigin.Site {
	s := w.origins.Site(w.t, testorigin.SiteConfig{Scheme: "http"})
	s.SetRobots(testorigin.OK(rules))
	return s
}

// visit requests a page, and waits for the log line of the request.
func (w *walker) visit(site *testorigin.Site, agent string, want int) {
	w.t.Helper()
	page := site.URL("/page?a=b")
	if status := w.g.Visit(page, agent); status != want {
		w.t.Fatalf("%s: %d, want %d: %v", page, status, want, w.g.Lines(w.lines + 1)[w.lines])
	}
	w.waitForLine()
}

func (w *walker) waitForLine() {
	w.t.Helper()
	w.lines++
	w.g.Lines(w.lines)
}

func walk(t *testing.T) {
	t.Helper()
	r := recorder{t, flag.Arg(0)}
	redis := redistest.Start(t)
	g := testgateway.NewWith(t, "gateway gw1.acme.example\nfleet redis "+redis.URL(), "", "")
	w := &walker{t: t, g: g, origins: testorigin.Start(t, testorigin.Config{})}
	plain := w.site("User-agent: *\nDisallow: /private\n")
	request := func(int) func() { return func() { w.visit(plain, "Tester/1.0", http.StatusOK) } }
	request(0)()
	r.way("A request", request)
	r.way("A fetch of robots.txt", func(int) func() {
		fresh := w.site("User-agent: *\nDisallow: /private\nSitemap: http://example.com/map\n")
		return func() { w.visit(fresh, "Tester/1.0", http.StatusOK) }
	})
	r.way("A CONNECT", func(n int) func() {
		return func() {
			connect(t, g, fmt.Sprintf("site%d.example:443", n))
			w.waitForLine()
		}
	})
	r.way("A stop", func(n int) func() {
		return command(t, "deny", "host", fmt.Sprintf("site%d.example", n), "--gateway", g.Address())
	})
	g.Load(agents, "")
	reserved := w.site("User-agent: *\nContent-Usage: train-ai=n\nAllow: /\n")
	refused := func(int) func() { return func() { w.visit(reserved, "TrainBot/1.0", http.StatusForbidden) } }
	refused(0)()
	r.way("A preference", refused)
	logs := t.TempDir()
	g.Load(agents, fmt.Sprintf("log sealed {\noutput robots_evidence {\nfile %s/access.log\n}\ninclude http.log.access\n}", logs))
	request(0)()
	r.way("A line of a sealed log", func(n int) func() {
		before := checkpoints(t, logs)
		return func() {
			request(n)()
			testgateway.Until(t, "the line to be sealed", func() bool { return checkpoints(t, logs) != before })
		}
	})
	r.way("An audit", func(int) func() { return command(t, "audit", "--seal", "--gateway", g.Address(), logs+"/access.log") })
}

// checkpoints returns the checkpoints of the sealed log.
func checkpoints(t *testing.T, logs string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(logs, "evidence", "access", "1", "heads"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return string(text)
}

// connect opens a tunnel, and TLS in it.
func connect(t *testing.T, g *testgateway.Gateway, authority string) {
	t.Helper()
	conn, err := g.Dial("proxy.sock")(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }() // nothing is lost with it
	if _, err := fmt.Fprintf(conn, "CONNECT %[1]s HTTP/1.1\r\nHost: %[1]s\r\nUser-Agent: Tester/1.0\r\n\r\n", authority); err != nil {
		t.Fatal(err)
	}
	answer := make([]byte, len("HTTP/1.1 200 Connection established\r\n\r\n"))
	if _, err := io.ReadFull(conn, answer); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
		t.Fatalf("CONNECT: got answer %q, %v", answer, err)
	}
	host, _, _ := strings.Cut(authority, ":")
	inner := tls.Client(conn, &tls.Config{ServerName: host, InsecureSkipVerify: true})
	if err := inner.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	_ = inner.Close()
}

// command returns a function that runs a `robots` command.
func command(t *testing.T, args ...string) (run func()) {
	t.Helper()
	robots := &cobra.Command{Use: "robots"}
	cli.AddCommands(robots)
	var out strings.Builder
	robots.SetOut(&out)
	robots.SetErr(&out)
	robots.SetArgs(args)
	return func() {
		t.Helper()
		if err := robots.ExecuteContext(t.Context()); err != nil {
			t.Fatalf("%v: %v: %s", args, err, out.String())
		}
	}
}
