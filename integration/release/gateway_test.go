//go:build release

package release

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// caddyfile returns a Caddyfile of a gateway at a port of 127.0.0.1 that reaches sites there. log
// is an output of Caddy's.
func caddyfile(port uint16, log string) string {
	return fmt.Sprintf(`{
	admin off
	grace_period 1s
	robots {
		egress {
			allow_private 127.0.0.0/8
		}
	}
}

:%d {
	bind 127.0.0.1
	log {
		output %s
	}
	robots
}
`, port, log)
}

// gateway is a process whose root is a folder.
type gateway struct {
	addr   string
	output strings.Builder
	exited chan struct{}
}

// start runs a command that starts a gateway at a port, waits until it answers, and stops it with
// stop or at the end of the test.
func start(t *testing.T, port uint16, command ...string) (g *gateway, stop func()) {
	t.Helper()
	g = &gateway{addr: fmt.Sprintf("127.0.0.1:%d", port), exited: make(chan struct{})}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &g.output, &g.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait() // the signal is its error
		close(g.exited)
	}()
	stop = func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // the process may have exited
		select {
		case <-g.exited:
		case <-time.After(20 * time.Second):
			_ = cmd.Process.Kill()
			<-g.exited
			t.Error("the gateway does not stop")
		}
		if t.Failed() {
			t.Logf("%q wrote\n%s", command, g.output.String())
		}
	}
	t.Cleanup(stop)
	g.await(t)
	return g, stop
}

// await waits for the gateway's health.
func (g *gateway) await(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if status, _, err := ask(ctx, http.DefaultClient, "http://"+g.addr+"/health"); err == nil && status == http.StatusOK {
			return
		}
		select {
		case <-tick.C:
		case <-g.exited:
			t.Fatalf("the gateway has exited: %s", g.output.String())
		case <-ctx.Done():
			t.Fatal("the gateway does not answer")
		}
	}
}

func ask(ctx context.Context, c *http.Client, page string) (status int, body string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, http.NoBody)
	if err != nil {
		return 0, "", err
	}
	r.Header.Set("User-Agent", "Tester/1.0")
	resp, err := c.Do(r)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// check fetches a permitted page through the gateway and is refused another one. version is the
// gateway's.
func (g *gateway) check(t *testing.T, version string) {
	t.Helper()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private/\n"))
	proxy := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: g.addr})}}
	defer proxy.CloseIdleConnections()
	for path, want := range map[string]int{"/page": http.StatusOK, "/private/page": http.StatusForbidden} {
		if status, body, err := ask(t.Context(), proxy, site.URL(path)); err != nil || status != want {
			t.Errorf("%s: status %d, error %v, want %d: %s", path, status, err, want, body)
		}
	}
	if n := len(site.PageExchanges()); n != 1 {
		t.Errorf("the site got requests for %d pages, want 1", n)
	}
	if _, body, err := ask(t.Context(), http.DefaultClient, "http://"+g.addr+"/health"); err != nil || body != "ok\ncrawlgate "+version+"\n" {
		t.Errorf("/health: %q, error %v, want the version %s", body, err, version)
	}
}
