package integration

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// heldTime is within what an operator waits for a refusal: the wait for the lock, and the start of a process.
const heldTime = 10 * time.Second

// busyClients ask a gateway without end, each request over a connection of its own.
type busyClients struct {
	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	answers map[int]int // by status; 0 is no answer
	longest time.Duration
}

func (g *gateway) busy(clients int, site *testorigin.Site) *busyClients {
	b := &busyClients{answers: make(map[int]int)}
	ctx, stop := context.WithCancel(g.t.Context())
	b.stop = stop
	g.t.Cleanup(stop)
	for range clients {
		b.all.Go(func() {
			client := g.client("Tester/1.0")
			for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				began := time.Now()
				a, err := tryGet(ctx, client, site.URL("/page"))
				client.CloseIdleConnections()
				if ctx.Err() != nil && err != nil {
					return
				}
				b.note(a.status, time.Since(began))
			}
		})
	}
	return b
}

func (b *busyClients) note(status int, took time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answers[status]++
	b.longest = max(b.longest, took)
}

// end stops the clients and returns the statuses they got and the longest time.
func (b *busyClients) end() (answers map[int]int, longest time.Duration) {
	b.stop()
	b.all.Wait()
	return b.answers, b.longest
}

// undisturbed ends clients that must not have noticed anything.
func (b *busyClients) undisturbed(t *testing.T) {
	t.Helper()
	answers, longest := b.end()
	if len(answers) != 1 || answers[http.StatusOK] == 0 || longest > 2*time.Second {
		t.Errorf("clients of the running gateway saw %v, and waited up to %v", answers, longest)
	}
}

// holderNamed reports whether an error names the file and the process that holds it.
func holderNamed(text string, holder *gateway) bool {
	return strings.Contains(text, holder.store()) && strings.Contains(text, fmt.Sprintf("another process has it open: process %d ", holder.cmd.Process.Pid))
}

// TestSecondGatewayAtAStore starts gateways with the store of one that serves. Caddy starts apps in no particular order, so
// there are several starts.
func TestSecondGatewayAtAStore(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	first := startGateway(t, gatewayConfig{Engine: "pace {\nrate off\n}"})
	clients := first.busy(2, site)
	for _, admin := range []string{"", "admin off", "", "admin off"} {
		second := &gateway{t: t, dir: tempDir(t), addr: freePort(t)}
		asking := second.busy(16, site)
		began := time.Now()
		config := gatewayConfig{Engine: "store file " + first.store() + "\npace {\nrate off\n}", Global: admin}
		if err := second.launch(config); err != nil {
			t.Fatal(err)
		}
		select {
		case <-second.exited:
		case <-time.After(time.Minute):
			t.Fatal("the second gateway runs on")
		}
		answers, longest := asking.end()
		t.Logf("%q: ended after %v with %v; clients saw %v within %v", admin, time.Since(began), second.cmd.ProcessState, answers, longest)
		if took := time.Since(began); took > heldTime || longest > heldTime {
			t.Errorf("%q: the second gateway ended after %v, its clients waited up to %v", admin, took, longest)
		}
		if second.cmd.ProcessState.ExitCode() <= 0 || !holderNamed(second.stderr.String(), first) {
			t.Errorf("%q: %v: %s", admin, second.cmd.ProcessState, second.stderr)
		}
		for status, n := range answers {
			if status != 0 && (admin == "" || status != http.StatusServiceUnavailable) {
				t.Errorf("%q: %d answers with status %d", admin, n, status)
			}
		}
	}
	clients.undisturbed(t)
}

// TestReloadToAHeldStore loads a configuration into a busy gateway that names the store of another one, and differs in
// everything else too. It is refused, and all settings stay as they were.
func TestReloadToAHeldStore(t *testing.T) {
	t.Parallel()
	origins := testorigin.Start(t, testorigin.Config{})
	site, blocked, killed := origins.Site(t, testorigin.SiteConfig{}), origins.Site(t, testorigin.SiteConfig{}), origins.Site(t, testorigin.SiteConfig{})
	blocked.SetPages(overloaded(http.StatusTooManyRequests, ""))
	holder := startGateway(t, gatewayConfig{})
	g := startGateway(t, gatewayConfig{
		Engine: "user_agent Before/1\nfetch {\nforbidden disallow\n}\npace {\nrate off\nbackoff 1h 2h\n}",
	})
	if a := g.mustFetch("Tester/1.0", blocked.URL("/")); a.status != http.StatusTooManyRequests {
		t.Fatalf("status %d", a.status)
	}
	deny := exec.CommandContext(t.Context(), binary, "robots", "deny", "host", killed.Origin().Host, "--address", "unix/"+g.adminSocket())
	if out, err := deny.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	counted := g.metric("crawlgate_decisions_total")

	clients := g.busy(4, site)
	eventually(t, "the clients to be busy", func() bool { return len(site.PageExchanges()) > 20 })
	for range 3 {
		began := time.Now()
		err := g.reload(gatewayConfig{
			Engine: "user_agent After/2\nstore file " + holder.store() + "\nindex_html on\nfetch {\nforbidden allow\n}\npace {\nrate 1/s\nqueue 1\nbackoff off\n}",
			Site:   "deny *",
		})
		if err == nil || !holderNamed(err.Error(), holder) || time.Since(began) > heldTime {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	}
	clients.undisturbed(t)
	g.keptSettings(origins, blocked, killed, counted)
	// Nor may one that is refused for another fault, and its own store has to be found again under another spelling.
	if err := g.reload(gatewayConfig{Egress: "trust_ca /nonexistent.pem"}); err == nil {
		t.Error("a configuration with a missing file was loaded")
	}
	g.keptSettings(origins, blocked, killed, counted)
	if err := g.reload(gatewayConfig{Engine: "store file " + filepath.Dir(g.store()) + "/./robots.db"}); err != nil {
		t.Errorf("a reload to the gateway's own store: %v", err)
	}
}

// keptSettings checks that store, clocks, fetcher, stops and metrics are those of before the refused reload.
func (g *gateway) keptSettings(origins *testorigin.Server, blocked, killed *testorigin.Site, counted float64) {
	t := g.t
	t.Helper()
	shut := origins.Site(t, testorigin.SiteConfig{})
	shut.SetRobots(testorigin.Status(http.StatusForbidden))
	if a := g.mustFetch("Tester/1.0", shut.URL("/")); withoutUntil(t, a.header.Get("Crawlgate-Decision")) != "deny; reason=robots_forbidden" {
		t.Errorf("cache: %d %q", a.status, a.header.Get("Crawlgate-Decision"))
	}
	if got := shut.RobotsExchanges()[0].Header.Get("User-Agent"); got != "Before/1" {
		t.Errorf("fetcher: User-Agent %q", got)
	}
	asked := len(blocked.PageExchanges())
	if a := g.mustFetch("Tester/1.0", blocked.URL("/")); a.header.Get("Crawlgate-Decision") != "deny; reason=backoff" || len(blocked.PageExchanges()) != asked {
		t.Errorf("clocks: the block of a host is gone: %d %q", a.status, a.header.Get("Crawlgate-Decision"))
	}
	again := origins.Site(t, testorigin.SiteConfig{})
	again.SetPages(overloaded(http.StatusServiceUnavailable, ""))
	g.mustFetch("Tester/1.0", again.URL("/"))
	if a := g.mustFetch("Tester/1.0", again.URL("/")); a.header.Get("Crawlgate-Decision") != "deny; reason=backoff" {
		t.Errorf("clocks: no pause after a 503: %d %q", a.status, a.header.Get("Crawlgate-Decision"))
	}
	if a := g.mustFetch("Tester/1.0", killed.URL("/")); a.header.Get("Crawlgate-Decision") != "deny; reason=kill_switch" {
		t.Errorf("stops: %d %q", a.status, a.header.Get("Crawlgate-Decision"))
	}
	if n := g.metric("crawlgate_decisions_total"); n < counted+20 {
		t.Errorf("metrics: %v decisions, %v before", n, counted)
	}
	eventually(t, "the record to be stored", func() bool { return stored(t, g.store()) >= 3 })
}

// TestStartWithoutRedis: a gateway starts without its store, works, and reports that the store is away.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := startGateway(t, gatewayConfig{Engine: "store redis redis://" + freePort(t)})
	if a := g.mustFetch("Tester/1.0", site.URL("/")); a.status != http.StatusOK {
		t.Errorf("status %d", a.status)
	}
	if up := g.metric("crawlgate_store_up"); up != 0 || !strings.Contains(g.stderr.String(), "connection refused") {
		t.Errorf("store up: %v: %s", up, g.stderr)
	}
}
