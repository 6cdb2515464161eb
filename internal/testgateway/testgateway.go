// Package testgateway runs a gateway in the process of a test, which has to import the gateway's
// modules. Caddy has one configuration per process, so tests that use it are not parallel.
package testgateway

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // the modules of the binary
	"github.com/caddyserver/certmagic"

	"github.com/crawlgate/crawlgate/internal/sockets"
)

// Texts of robots.txt files.
const (
	RulesA = "User-agent: *\nDisallow: /private/\n"
	// RulesB has an escape sequence for terminals in the line that it adds.
	RulesB = "User-agent: *\nDisallow: /private/\nDisallow: /new/\n# \x1b[2J\xff\n"
)

// Hash returns the SHA-256 of a text in the gateway's format.
func Hash(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }

// Gateway is a running gateway. All its listeners are unix sockets, so it uses no ports.
type Gateway struct {
	t      *testing.T
	dir    string
	robots string
}

// Main runs the tests of a package with certificates and records separate from the user's.
func Main(m *testing.M) {
	os.Exit(runIsolated(m))
}

func runIsolated(m *testing.M) int {
	dir, err := os.MkdirTemp("", "crawlgate-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }() // the system clears its folder as well
	for _, name := range []string{"XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		if err := os.Setenv(name, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	caddy.DefaultStorage = &certmagic.FileStorage{Path: dir}
	// The origins of these tests also listen in this process.
	sockets.Process.Own = func() ([]sockets.Socket, error) { return nil, nil }
	return m.Run()
}

// New loads a gateway with the given lines in the site's robots block, in which %DIR% is its
// folder, and in the global options.
func New(t *testing.T, siteLines, globalLines string) *Gateway {
	t.Helper()
	return NewWith(t, "", siteLines, globalLines)
}

// NewWith is like [New], with additional lines in the global robots block, which are kept over
// reloads.
func NewWith(t *testing.T, robotsLines, siteLines, globalLines string) *Gateway {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg") //nolint:usetesting // short: the path of a socket may have only some 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	g := &Gateway{t: t, dir: dir, robots: robotsLines}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Errorf("stopping Caddy: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	g.Load(siteLines, globalLines)
	return g
}

// Load loads another configuration.
func (g *Gateway) Load(siteLines, globalLines string) {
	g.t.Helper()
	if err := g.TryLoad(siteLines, globalLines); err != nil {
		g.t.Fatal(err)
	}
}

// TryLoad is like [Gateway.Load] for a configuration that may be refused.
func (g *Gateway) TryLoad(siteLines, globalLines string) error {
	caddyfile := fmt.Sprintf(`{
	admin unix/%[1]s/admin.sock
	persist_config off
	grace_period 1s
	storage file_system %[1]s/caddy
	log {
		output file %[1]s/caddy.log {
			roll_disabled
		}
	}
	robots {
		store file %[1]s/robots.db
		egress {
			allow_private 127.0.0.0/8
		}
		pace {
			rate off
		}
		%[4]s
	}
	%[3]s
}

http://:80 {
	bind unix/%[1]s/proxy.sock
	log access {
		output file %[1]s/access.log {
			roll_disabled
		}
		format json
	}
	robots {
		%[2]s
	}
}
`, g.dir, strings.ReplaceAll(siteLines, "%DIR%", g.dir), globalLines, g.robots)
	config, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(caddyfile), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	for _, w := range warnings {
		if !strings.Contains(w.Message, "not formatted") {
			return fmt.Errorf("warning: %s", w)
		}
	}
	if err := caddy.Load(config, true); err != nil {
		return err
	}
	AwaitOldListeners(g.t)
	return nil
}

// AwaitOldListeners waits after a reload until Caddy has closed the listeners of the previous
// configuration, which happens a moment later. A connection that one of them still accepts is
// dropped, as by any net/http server that shuts down.
func AwaitOldListeners(t *testing.T) {
	t.Helper()
	Until(t, "the old listeners to close", noneTwice)
}

// noneTwice reports whether this process has one descriptor for each socket at which it listens: a
// reload makes a second one for a unix socket. It returns true if the system does not provide this.
func noneTwice() bool {
	own, _ := sockets.Own()
	seen := make(map[uint64]bool, len(own))
	for _, s := range own {
		if seen[s.Inode] {
			return false
		}
		seen[s.Inode] = true
	}
	return true
}

// Stop stops the gateway like the end of the process.
func (g *Gateway) Stop() {
	g.t.Helper()
	if err := caddy.Stop(); err != nil {
		g.t.Fatal(err)
	}
}

// Address returns the address of the admin endpoint for commands.
func (g *Gateway) Address() string { return "unix/" + g.dir + "/admin.sock" }

// Dial connects to one of the gateway's sockets.
func (g *Gateway) Dial(name string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(g.dir, name))
	}
}

// Crawler returns a client of the gateway.
func (g *Gateway) Crawler() *http.Client {
	transport := &http.Transport{
		Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: "gateway"}),
		DialContext: g.Dial("proxy.sock"),
	}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Get requests a page through the gateway.
func (g *Gateway) Get(ctx context.Context, page, agent string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", agent)
	return g.Crawler().Do(r)
}

// Visit is like [Gateway.Get], but only returns the status.
func (g *Gateway) Visit(page, agent string) int {
	g.t.Helper()
	resp, err := g.Get(g.t.Context(), page, agent)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // reading is what counts
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode
}

// Answer is an answer of the admin API.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Admin calls the admin API. A body that is not a string is sent as JSON.
func (g *Gateway) Admin(method, path string, body any) Answer {
	g.t.Helper()
	var payload io.Reader = http.NoBody
	switch b := body.(type) {
	case nil:
	case string:
		payload = strings.NewReader(b)
	default:
		text, err := json.Marshal(b)
		if err != nil {
			g.t.Fatal(err)
		}
		payload = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(g.t.Context(), method, "http://127.0.0.1"+path, payload)
	if err != nil {
		g.t.Fatal(err)
	}
	transport := &http.Transport{DialContext: g.Dial("admin.sock")}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // reading is what counts
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return Answer{resp.StatusCode, resp.Header, text}
}

// Ask is like [Gateway.Admin] for a JSON answer with status 200.
func Ask[T any](g *Gateway, method, path string, body any) (v T) {
	g.t.Helper()
	a := g.Admin(method, path, body)
	if a.Status != http.StatusOK {
		g.t.Fatalf("%s %s: got status %d, want 200: %s", method, path, a.Status, a.Body)
	}
	decoder := json.NewDecoder(bytes.NewReader(a.Body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		g.t.Fatalf("%s %s: %v in %s", method, path, err, a.Body)
	}
	return v
}

// Lines returns the access-log objects so far; it waits until there are n.
func (g *Gateway) Lines(n int) []map[string]any {
	g.t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		data, err := os.ReadFile(filepath.Join(g.dir, "access.log"))
		if err != nil && !os.IsNotExist(err) {
			g.t.Fatal(err)
		}
		var list []map[string]any
		for line := range bytes.Lines(data) {
			var entry struct {
				Robots map[string]any  `json:"robots"`
				Answer json.RawMessage `json:"robots_txt"`
			}
			if err := json.Unmarshal(line, &entry); err != nil {
				g.t.Fatalf("%v: %s", err, line)
			}
			if entry.Answer == nil { // not the line of a request
				list = append(list, entry.Robots)
			}
		}
		if len(list) >= n {
			return list
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("%d lines in the access log, want %d: %s", len(list), n, data)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Until waits for a condition.
func Until(t *testing.T, what string, met func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !met(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, 20*time.Second)
		}
	}
}
