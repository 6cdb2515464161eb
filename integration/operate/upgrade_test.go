//go:build slow

package operate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// typeUpgrade checks that the new binary validates the Caddyfile, and that the gateway serves
// again.
func typeUpgrade(t *testing.T, b *section) {
	t.Helper()
	m := newMachine(t)
	m.start(m.config(""))
	before := m.g.Cmd.Process.Pid
	if out := m.types(b.next("sh")); !strings.Contains(out, "Valid configuration") {
		t.Error(out)
	}
	if out := m.types(b.next("sh")); !strings.Contains(out, "ok\n") || m.g.Cmd.Process.Pid == before {
		t.Errorf("the process is %d before and %d after the upgrade: %s", before, m.g.Cmd.Process.Pid, out)
	}
}

// typeUpgradeOfTwo upgrades two gateways behind HAProxy, one after the other, while clients send
// requests. No request fails.
func typeUpgradeOfTwo(t *testing.T, b *section) {
	t.Helper()
	one, two := newMachine(t), newMachine(t)
	page := rig.FreePort(t)
	for _, m := range []*machine{one, two} {
		m.replace = []string{"http://haproxy.acme.example:8404", "http://" + page}
		m.start(m.config("shutdown_delay 5s\ngrace_period 20s"))
	}
	balancer := rig.StartHAProxy(t, []*rig.Gateway{one.g, two.g}, strings.Replace(b.next("haproxy"), ":8404", page, 1))
	load := startLoad(t, balancer.Addr)
	command := b.next("sh")
	for _, m := range []*machine{one, two} {
		before := load.answers.Load()
		m.types(command)
		if n := load.answers.Load() - before; n < 100 {
			t.Errorf("%d answers during an upgrade, want at least 100", n)
		}
	}
	for _, failure := range load.stop() {
		t.Error(failure)
	}
	for i, m := range []*machine{one, two} {
		m.g.Stop()
		if n := len(m.g.ReadLogs()); n == 0 {
			t.Errorf("gateway %d got no request", i+1)
		}
	}
	t.Logf("%d answers", load.answers.Load())
}

// load sends 800 requests a second: plain ones over kept connections, and others in tunnels.
type load struct {
	answers atomic.Int64
	ended   atomic.Bool
	group   sync.WaitGroup
	mu      sync.Mutex
	failed  []string
}

func startLoad(t *testing.T, proxy string) *load {
	t.Helper()
	t.Helper()
	l, server := new(load), testorigin.Start(t, testorigin.Config{})
	client := (&rig.Gateway{T: t, Addr: proxy}).Client("AcmeBot/1.0")
	for i := range 16 { // hosts at both gateways
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetPages(testorigin.OK("a page\n"))
		ask := func(n int) (int, error) {
			a, err := rig.TryGet(t.Context(), client, site.URL(fmt.Sprintf("/page/%d", n)))
			return a.Status, err
		}
		if i%4 == 0 {
			ask = func(n int) (int, error) {
				return inTunnel(proxy, site.Origin().Authority(), fmt.Sprintf("/inside/%d", n))
			}
		}
		if status, err := ask(0); err != nil || status != http.StatusOK {
			t.Fatalf("%s: status %d, error %v", site.Origin(), status, err)
		}
		l.group.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for n := 1; !l.ended.Load(); n++ {
				<-tick.C
				status, err := ask(n)
				if l.answers.Add(1); err != nil || status != http.StatusOK {
					l.mu.Lock()
					l.failed = append(l.failed, fmt.Sprintf("request %d to %s: status %d, error %v", n, site.Origin(), status, err))
					l.mu.Unlock()
				}
			}
		})
	}
	return l
}

// stop ends the load and returns the failures.
func (l *load) stop() []string {
	l.ended.Store(true)
	l.group.Wait()
	return l.failed
}

// inTunnel requests a page over plain HTTP in a new tunnel.
func inTunnel(proxy, authority, path string) (status int, err error) {
	conn, err := net.Dial("tcp", proxy)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, head := range []string{"CONNECT " + authority, "GET " + path} {
		if _, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nUser-Agent: AcmeBot/1.0\r\n\r\n", head, authority); err != nil {
			return status, err
		}
		method, _, _ := strings.Cut(head, " ")
		resp, err := http.ReadResponse(in, &http.Request{Method: method})
		if err != nil {
			return status, err
		}
		if status = resp.StatusCode; status != http.StatusOK {
			return status, nil
		} else if method == http.MethodConnect {
			continue
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			return status, err
		}
	}
	return status, nil
}
