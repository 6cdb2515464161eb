package crawlgate

import (
	"bytes"
	"context"
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
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	"github.com/crawlgate/crawlgate/internal/sockets"
	"github.com/crawlgate/crawlgate/origin"
)

// rig is a gateway in this process. Caddy has one configuration a process, so tests that use it are not parallel. All
// its listeners are unix sockets: no port is taken.
type rig struct {
	t   *testing.T
	dir string
}

// newRig loads a gateway with the given lines in the site's robots block, in which %DIR% is its folder, and in the global
// options.
func newRig(t *testing.T, siteLines, globalLines string) *rig {
	t.Helper()
	dir, err := os.MkdirTemp("", "cg") //nolint:usetesting // short: the path of a socket may have only some 100 octets
	if err != nil {
		t.Fatal(err)
	}
	g := &rig{t: t, dir: dir}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Errorf("stopping Caddy: %v", err)
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	g.load(siteLines, globalLines)
	return g
}

// load puts another configuration in force.
func (g *rig) load(siteLines, globalLines string) {
	g.t.Helper()
	if err := g.tryLoad(siteLines, globalLines); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) tryLoad(siteLines, globalLines string) error {
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
`, g.dir, strings.ReplaceAll(siteLines, "%DIR%", g.dir), globalLines)
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
	// Caddy closes the old listeners a moment later. A connection that one of them still accepts is dropped, as by any server of
	// net/http that shuts down.
	until(g.t, "the old listeners to close", noneTwice)
	return nil
}

// noneTwice reports whether this process has one descriptor for each socket at which it listens: a reload makes a second one
// of a unix socket. Where the system does not tell, it holds.
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

// stop ends the gateway as the end of the process would.
func (g *rig) stop() {
	g.t.Helper()
	if err := caddy.Stop(); err != nil {
		g.t.Fatal(err)
	}
}

// address is that of the admin endpoint as commands take it.
func (g *rig) address() string { return "unix/" + g.dir + "/admin.sock" }

// dial reaches one of the gateway's sockets.
func (g *rig) dial(name string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", filepath.Join(g.dir, name))
	}
}

// crawler is a client of the gateway.
func (g *rig) crawler() *http.Client {
	transport := &http.Transport{
		Proxy:       http.ProxyURL(&url.URL{Scheme: "http", Host: "gateway"}),
		DialContext: g.dial("proxy.sock"),
	}
	g.t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// get asks for a page by way of the gateway.
func (g *rig) get(ctx context.Context, page, agent string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", agent)
	return g.crawler().Do(r)
}

// visit is get for its effect; it returns the status.
func (g *rig) visit(page, agent string) int {
	g.t.Helper()
	resp, err := g.get(g.t.Context(), page, agent)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode
}

// adminAnswer is an answer of the admin API.
type adminAnswer struct {
	status int
	header http.Header
	body   []byte
}

// admin asks the admin API. A body that is no string is sent as JSON.
func (g *rig) admin(method, path string, body any) adminAnswer {
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
	transport := &http.Transport{DialContext: g.dial("admin.sock")}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return adminAnswer{resp.StatusCode, resp.Header, text}
}

// ask is admin for a JSON answer with status 200.
func ask[T any](g *rig, method, path string, body any) (v T) {
	g.t.Helper()
	a := g.admin(method, path, body)
	if a.status != http.StatusOK {
		g.t.Fatalf("%s %s: %d %s", method, path, a.status, a.body)
	}
	decoder := json.NewDecoder(bytes.NewReader(a.body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&v); err != nil {
		g.t.Fatalf("%s %s: %v in %s", method, path, err, a.body)
	}
	return v
}

// lines are the access-log objects so far, waiting until there are n.
func (g *rig) lines(n int) []map[string]any {
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
				Robots map[string]any `json:"robots"`
			}
			if err := json.Unmarshal(line, &entry); err != nil {
				g.t.Fatalf("%v: %s", err, line)
			}
			list = append(list, entry.Robots)
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

// site is the origin of a URL.
func site(tb testing.TB, raw string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}
