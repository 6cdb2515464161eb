//go:build slow

package operate

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

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// heldTime bounds a refusal: the wait for the lock, and the start of a process.
const heldTime = 10 * time.Second

// busyClients send requests to a gateway without pause, each over a new connection.
type busyClients struct {
	stop context.CancelFunc
	all  sync.WaitGroup

	mu      sync.Mutex
	answers map[int]int // by status; 0 stands for no answer
	longest time.Duration
}

func busy(g *rig.Gateway, clients int, site *testorigin.Site) *busyClients {
	b := &busyClients{answers: make(map[int]int)}
	ctx, stop := context.WithCancel(g.T.Context())
	b.stop = stop
	g.T.Cleanup(stop)
	for range clients {
		b.all.Go(func() {
			client := g.Client("Tester/1.0")
			for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
				began := time.Now()
				a, err := rig.TryGet(ctx, client, site.URL("/page"))
				client.CloseIdleConnections()
				if ctx.Err() != nil && err != nil {
					return
				}
				b.note(a.Status, time.Since(began))
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

// end stops the clients, and returns the number of answers by status and the longest time of a
// request.
func (b *busyClients) end() (answers map[int]int, longest time.Duration) {
	b.stop()
	b.all.Wait()
	return b.answers, b.longest
}

// undisturbed ends the clients and checks that all their requests succeeded soon.
func (b *busyClients) undisturbed(t *testing.T) {
	t.Helper()
	answers, longest := b.end()
	if len(answers) != 1 || answers[http.StatusOK] == 0 || longest > 2*time.Second {
		t.Errorf("clients of the running gateway saw %v, and waited up to %v", answers, longest)
	}
}

// holderNamed reports whether an error names the file and the process that holds it.
func holderNamed(text string, holder *rig.Gateway) bool {
	return strings.Contains(text, holder.Store()) && strings.Contains(text, fmt.Sprintf("another process has it open: process %d ", holder.Cmd.Process.Pid))
}

// TestSecondGatewayAtAStore starts gateways with the store of a running one. Caddy starts apps in
// no particular order, so the test repeats the start.
func TestSecondGatewayAtAStore(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	first := rig.New(t, rig.Config{Engine: "pace {\nrate off\n}"})
	clients := busy(first, 2, site)
	for _, admin := range []string{"", "admin off", "", "admin off"} {
		second := &rig.Gateway{T: t, Dir: rig.TempDir(t), Addr: rig.FreePort(t)}
		asking := busy(second, 16, site)
		began := time.Now()
		config := rig.Config{Engine: "store file " + first.Store() + "\npace {\nrate off\n}", Global: admin}
		if err := second.Launch(config); err != nil {
			t.Fatal(err)
		}
		select {
		case <-second.Exited:
		case <-time.After(time.Minute):
			t.Fatal("the second gateway did not exit")
		}
		answers, longest := asking.end()
		t.Logf("%q: ended after %v with %v; clients saw %v within %v", admin, time.Since(began), second.Cmd.ProcessState, answers, longest)
		if took := time.Since(began); took > heldTime || longest > heldTime {
			t.Errorf("%q: the second gateway exited after %v, and clients waited up to %v; want at most %v", admin, took, longest, heldTime)
		}
		if second.Cmd.ProcessState.ExitCode() <= 0 || !holderNamed(second.Stderr.String(), first) {
			t.Errorf("%q: the second gateway exited with %v, want an error that names the process: %s", admin, second.Cmd.ProcessState, second.Stderr)
		}
		for status, n := range answers {
			if status != 0 && (admin == "" || status != http.StatusServiceUnavailable) {
				t.Errorf("%q: %d answers have the status %d", admin, n, status)
			}
		}
	}
	clients.undisturbed(t)
}

// TestReloadToAHeldStore loads a configuration into a busy gateway that names the store of another
// gateway, and that differs in everything else too. The reload fails, and all settings stay in
// force.
func TestReloadToAHeldStore(t *testing.T) {
	t.Parallel()
	origins := testorigin.Start(t, testorigin.Config{})
	site, blocked, killed := origins.Site(t, testorigin.SiteConfig{}), origins.Site(t, testorigin.SiteConfig{}), origins.Site(t, testorigin.SiteConfig{})
	blocked.SetPages(rig.Overloaded(http.StatusTooManyRequests, ""))
	holder := rig.New(t, rig.Config{})
	g := rig.New(t, rig.Config{
		Engine: "user_agent Before/1\nfetch {\nforbidden disallow\n}\npace {\nrate off\nbackoff 1h 2h\n}",
	})
	if a := g.MustFetch("Tester/1.0", blocked.URL("/")); a.Status != http.StatusTooManyRequests {
		t.Fatalf("status %d, want 429", a.Status)
	}
	deny := exec.CommandContext(t.Context(), rig.Binary, "robots", "deny", "host", killed.Origin().Host, "--gateway", "unix/"+g.AdminSocket())
	if out, err := deny.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	counted := g.Metric("crawlgate_decisions_total")

	clients := busy(g, 4, site)
	rig.Eventually(t, "the clients to be busy", func() bool { return len(site.PageExchanges()) > 20 })
	for range 3 {
		began := time.Now()
		err := g.Reload(rig.Config{
			Engine: "user_agent After/2\nstore file " + holder.Store() + "\nindex_html on\nfetch {\nforbidden allow\n}\npace {\nrate 1/s\nqueue 1\nbackoff off\n}",
			Site:   "deny *",
		})
		if err == nil || !holderNamed(err.Error(), holder) || time.Since(began) > heldTime {
			t.Errorf("the reload returned after %v: %v, want an error that names the process", time.Since(began), err)
		}
	}
	clients.undisturbed(t)
	keptSettings(g, origins, blocked, killed, counted)
	// A reload that fails for another reason changes nothing either, and the gateway recognizes its
	// own store under another spelling.
	if err := g.Reload(rig.Config{Egress: "trust_ca /nonexistent.pem"}); err == nil {
		t.Error("a configuration with a missing file was loaded")
	}
	keptSettings(g, origins, blocked, killed, counted)
	if err := g.Reload(rig.Config{Engine: "store file " + filepath.Dir(g.Store()) + "/./robots.db"}); err != nil {
		t.Errorf("a reload to the gateway's own store: %v", err)
	}
}

// keptSettings checks that store, clocks, fetcher, stops and metrics are still those from before
// the failed reload.
func keptSettings(g *rig.Gateway, origins *testorigin.Server, blocked, killed *testorigin.Site, counted float64) {
	t := g.T
	t.Helper()
	shut := origins.Site(t, testorigin.SiteConfig{})
	shut.SetRobots(testorigin.Status(http.StatusForbidden))
	if a := g.MustFetch("Tester/1.0", shut.URL("/")); rig.WithoutUntil(t, a.Header.Get("Crawlgate-Decision")) != "deny; reason=robots_forbidden" {
		t.Errorf("cache: status %d, decision %q", a.Status, a.Header.Get("Crawlgate-Decision"))
	}
	if got := shut.RobotsExchanges()[0].Header.Get("User-Agent"); got != "Before/1" {
		t.Errorf(`fetcher: User-Agent %q, want "Before/1"`, got)
	}
	asked := len(blocked.PageExchanges())
	if a := g.MustFetch("Tester/1.0", blocked.URL("/")); a.Header.Get("Crawlgate-Decision") != "deny; reason=backoff" || len(blocked.PageExchanges()) != asked {
		t.Errorf("clocks: a block is gone: status %d, decision %q", a.Status, a.Header.Get("Crawlgate-Decision"))
	}
	again := origins.Site(t, testorigin.SiteConfig{})
	again.SetPages(rig.Overloaded(http.StatusServiceUnavailable, ""))
	g.MustFetch("Tester/1.0", again.URL("/"))
	if a := g.MustFetch("Tester/1.0", again.URL("/")); a.Header.Get("Crawlgate-Decision") != "deny; reason=backoff" {
		t.Errorf("clocks: no pause after a 503: status %d, decision %q", a.Status, a.Header.Get("Crawlgate-Decision"))
	}
	if a := g.MustFetch("Tester/1.0", killed.URL("/")); a.Header.Get("Crawlgate-Decision") != "deny; reason=kill_switch" {
		t.Errorf("stops: status %d, decision %q", a.Status, a.Header.Get("Crawlgate-Decision"))
	}
	if n := g.Metric("crawlgate_decisions_total"); n < counted+20 {
		t.Errorf("metrics: %v decisions, want at least 20 more than %v", n, counted)
	}
	rig.Eventually(t, "the record to be stored", func() bool { return stored(t, g.Store()) >= 3 })
}

// TestStartWithoutRedis checks that a gateway starts without its store, works, and reports it.
func TestStartWithoutRedis(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{Engine: "store redis redis://" + rig.FreePort(t)})
	if a := g.MustFetch("Tester/1.0", site.URL("/")); a.Status != http.StatusOK {
		t.Errorf("status %d, want 200", a.Status)
	}
	if up := g.Metric("crawlgate_store_up"); up != 0 || !strings.Contains(g.Stderr.String(), "connection refused") {
		t.Errorf("crawlgate_store_up is %v, want 0 and a message: %s", up, g.Stderr)
	}
}
