package budget

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// zone is a time zone whose midnight is hours away, and midnight is its next midnight.
var zone, midnight = func() (string, time.Time) {
	noon := time.Now().UTC().Truncate(24 * time.Hour).Add(12 * time.Hour)
	switch now := time.Now(); {
	case now.Before(noon.Add(-6 * time.Hour)):
		return "Etc/GMT+12", noon
	case now.Before(noon.Add(6 * time.Hour)):
		return "UTC", noon.Add(12 * time.Hour)
	default:
		return "Etc/GMT+12", noon.Add(24 * time.Hour)
	}
}()

// config returns the configuration of a gateway whose agent AcmeBot has a budget. Without a URL,
// the gateway is in no fleet.
func config(name, url, lines string) rig.Config {
	lines += "\nzone " + zone
	c := rig.Config{Engine: rig.PaceOff, Site: "agent AcmeBot {\nuser_agent AcmeBot\nbudget {\n" + lines + "\n}\n}\nunidentified allow"}
	if url != "" {
		c.Engine = rig.FleetEngine(name, url, 2)
	}
	return c
}

// fleet starts two gateways with one budget.
func fleet(t *testing.T, lines string) (*redistest.Server, []*rig.Gateway) {
	t.Helper()
	redis := redistest.Start(t)
	gateways := []*rig.Gateway{rig.New(t, config("one", redis.URL(), lines)), rig.New(t, config("two", redis.URL(), lines))}
	for _, g := range gateways {
		rig.Eventually(t, "the gateways meet", func() bool { return g.Metric("crawlgate_fleet_gateways") == 2 })
	}
	return redis, gateways
}

// crawl requests pages from several clients until each has been refused a few times, and returns
// how many requests passed. lost counts the requests without an answer because their gateway was
// killed, and those that came while Redis was briefly unreachable. These are repeated for up to a
// minute.
func crawl(t *testing.T, gateways []*rig.Gateway, site *testorigin.Site, clients int, each func(passed int64)) (passed, lost int64) {
	t.Helper()
	var ok, gone atomic.Int64
	patience := time.Now().Add(time.Minute)
	var all sync.WaitGroup
	for i := range clients {
		client := gateways[i%len(gateways)].Client("AcmeBot/1.0")
		all.Go(func() {
			for n, refused := 0, 0; refused < 3; n++ {
				began := time.Now()
				a, err := rig.TryGet(t.Context(), client, site.URL(fmt.Sprintf("/open/%d/%d", i, n)))
				switch {
				case err != nil:
					gone.Add(1)
					return
				case a.Status == http.StatusOK:
					each(ok.Add(1))
				case a.Header.Get("Retry-After") == "5" && time.Now().Before(patience):
					gone.Add(1)
					time.Sleep(5 * time.Second)
				default:
					refused++
					checkRefusal(t, a, began)
				}
			}
		})
	}
	all.Wait()
	return ok.Load(), gone.Load()
}

// checkRefusal checks that an answer refuses the request until the next midnight.
func checkRefusal(t *testing.T, a rig.Answer, began time.Time) {
	t.Helper()
	wait, err := strconv.Atoi(a.Header.Get("Retry-After"))
	least, most := time.Until(midnight), midnight.Sub(began)+time.Second // rounded up
	if d := time.Duration(wait) * time.Second; err != nil || d < least || d > most {
		t.Errorf("Retry-After %q, want between %s and %s", a.Header.Get("Retry-After"), least, most)
	}
	if a.Status != http.StatusTooManyRequests || a.Header.Get("Crawlgate-Decision") != "deny; reason=budget" {
		t.Errorf("status %d, decision %q, want 429 for the budget", a.Status, a.Header.Get("Crawlgate-Decision"))
	}
}

func size(short, long int64) int64 {
	if rig.Long() {
		return long
	}
	return short
}

func arrived(site *testorigin.Site) int64 { return int64(len(site.PageExchanges())) }

// within reports whether the limit has passed, except for slices lost while Redis was away: at most
// one of each gateway each time.
func within(passed, limit, lost int64) bool { return passed <= limit && passed >= limit-4*lost }

// TestExactly checks that two gateways and 40 clients send exactly as many requests as the budget
// has. If the budget is raised during the day, they send that many more. A restart changes nothing.
func TestExactly(t *testing.T) {
	t.Parallel()
	limit := size(300, 1000)
	redis, gateways := fleet(t, fmt.Sprintf("requests %d/day", limit))
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	passed, lost := crawl(t, gateways, site, 40, func(int64) {})
	if !within(passed, limit, lost) || arrived(site) != passed {
		t.Errorf("%d passed, %d arrived, want %d; %d came while Redis was away", passed, arrived(site), limit, lost)
	}
	gateways[0].Stop()
	more := config("one", redis.URL(), fmt.Sprintf("requests %d/day", 2*limit))
	if err := gateways[0].Start(gateways[0].Config); err != nil {
		t.Fatal(err)
	}
	if passed, _ := crawl(t, gateways[:1], site, 2, func(int64) {}); passed != 0 {
		t.Errorf("%d requests passed after a restart, want 0", passed)
	}
	if err := gateways[0].Reload(more); err != nil {
		t.Fatal(err)
	}
	more.Engine = gateways[1].Config.Engine
	if err := gateways[1].Reload(more); err != nil {
		t.Fatal(err)
	}
	if more, again := crawl(t, gateways, site, 4, func(int64) {}); !within(passed+more, 2*limit, lost+again) {
		t.Errorf("%d passed after the limit was raised, want %d more; %d came while Redis was away", more, limit, lost+again)
	}
	lines := gateways[1].ReadLogs()
	var least *int64
	for _, l := range lines {
		if n := l.Robots.BudgetLeft; n != nil && (least == nil || *n < *least) {
			least = n
		}
	}
	if least == nil || *least > limit/2 {
		t.Errorf("the least budget_left in the log is %v, want at most half the limit", least)
	}
	redis.Kill()
	rig.Eventually(t, "Redis is away", func() bool { return gateways[0].Metric("crawlgate_fleet_up") == 0 })
	if a := gateways[0].MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage)); a.Status != http.StatusTooManyRequests {
		t.Errorf("status %d while Redis is away, want 429", a.Status)
	}
}

// TestKill checks that a killed gateway loses at most its slice, and that the limit still holds.
func TestKill(t *testing.T) {
	t.Parallel()
	limit := size(300, 1000)
	_, gateways := fleet(t, fmt.Sprintf("requests %d/day", limit))
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	kill := sync.OnceFunc(gateways[1].Kill)
	_, lost := crawl(t, gateways, site, 40, func(passed int64) {
		if passed >= limit/2 {
			kill()
		}
	})
	// A request may have taken from the budget before the kill without being sent.
	if n, slice := arrived(site), int64(20); n > limit || n < limit-slice-lost {
		t.Errorf("%d arrived of %d; %d had no answer", n, limit, lost)
	} else {
		t.Logf("%d arrived of %d; %d had no answer", n, limit, lost)
	}
}

// TestAlone checks that a gateway without a fleet keeps its budget over a restart and over kill -9.
func TestAlone(t *testing.T) {
	t.Parallel()
	g := rig.New(t, config("", "", "requests 100/day\nper_host 60/day"))
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{})
	client := func() *http.Client { return g.Client("AcmeBot/1.0") }
	for n := range 40 {
		if a := rig.Get(t, client(), site.URL(fmt.Sprint("/open/", n))); a.Status != http.StatusOK {
			t.Fatal(n, a.Status, a.Body)
		}
	}
	g.Stop()
	if err := g.Start(g.Config); err != nil {
		t.Fatal(err)
	}
	sent := 0
	for ; sent < 100 && rig.Get(t, client(), site.URL(fmt.Sprint("/again/", sent))).Status == http.StatusOK; sent++ {
	}
	if sent != 20 {
		t.Errorf("%d more requests to the host, want 20", sent)
	}
	rig.Eventually(t, "the count of the host is written", func() bool {
		text, _ := os.ReadFile(filepath.Join(filepath.Dir(g.Store()), "budget_hosts.json"))
		return strings.Contains(string(text), ":60}")
	})
	g.Kill()
	if err := g.Start(g.Config); err != nil {
		t.Fatal(err)
	}
	if a := rig.Get(t, client(), site.URL("/after")); a.Status != http.StatusTooManyRequests {
		t.Errorf("status %d after a crash, want 429", a.Status)
	}
}

// The bytes of a request that has not ended count, also if the gateway is killed, or stopped while
// it does not end.
func TestBytesUnderWay(t *testing.T) {
	t.Parallel()
	const page = 3 << 20
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(make([]byte, page))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	t.Cleanup(site.Close)
	c := config("", "", "bytes 5MiB/day")
	c.Global = "grace_period 1s"
	g := rig.New(t, c)
	for i, end := range []func(){g.Kill, g.Stop} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := g.Client("AcmeBot/1.0").Transport.RoundTrip(req) // without the client's time limit
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.ReadFull(resp.Body, make([]byte, page)); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(i, resp.StatusCode, err)
		}
		rig.Eventually(t, "the count is written", func() bool {
			var counts map[string]map[string]int64
			text, _ := os.ReadFile(filepath.Join(filepath.Dir(g.Store()), "budgets.json"))
			_ = json.Unmarshal(text, &counts) // there may be no file yet
			n := int64(0)
			for _, of := range counts {
				n += of["bytes"]
			}
			return n >= min(int64(i+1)*(page-64<<10), 5<<20)
		})
		end()
		if err := g.Start(c); err != nil {
			t.Fatal(err)
		}
	}
	if a := g.MustFetch("AcmeBot/1.0", site.URL); a.Status != http.StatusTooManyRequests {
		t.Errorf("status %d after 6 MiB of 5", a.Status)
	}
}

// TestCounted checks that the crawler's own request for robots.txt counts, and that a request that
// never reaches its site does not.
func TestCounted(t *testing.T) {
	t.Parallel()
	g := rig.New(t, config("", "", "requests 10/day"))
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	left := func(n int) (all []int64) {
		for _, l := range g.Logs(n) {
			if l.Robots.BudgetLeft != nil {
				all = append(all, *l.Robots.BudgetLeft)
			}
		}
		return all
	}
	g.MustFetch("AcmeBot/1.0", site.URL("/robots.txt"))
	g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage))
	g.MustFetch("AcmeBot/1.0", "http://"+rig.FreePort(t)+"/nobody")
	g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage))
	g.MustFetch("OtherBot/1.0", site.URL(rig.OpenPage))
	if got := fmt.Sprint(left(5)); got != "[9 8 7]" && got != "[9 8 7 7]" {
		t.Errorf("budget_left is %s, want [9 8 7] or [9 8 7 7]", got)
	}
}

// TestClosedPort checks that a tunnel that cannot connect costs nothing.
func TestClosedPort(t *testing.T) {
	t.Parallel()
	c := config("", "", "requests 10/day")
	c.Site = strings.Replace(c.Site, "user_agent AcmeBot", "from 127.0.0.0/8", 1) + "\nconnect tunnel\nmode off"
	g := rig.New(t, c)
	for range 2 {
		resp := g.Dial().Connect(t, "127.34.0.1:443", "") // nothing listens there
		if resp.StatusCode != http.StatusBadGateway {
			t.Error(resp.Status)
		}
	}
	for _, l := range g.Logs(2) {
		if n := l.Robots.BudgetLeft; n == nil || *n != 9 {
			t.Errorf("the log line is %+v, want 9 requests left", l.Robots)
		}
	}
}

// TestTunnel checks that a blind tunnel counts as one request and ends when the bytes are spent.
func TestTunnel(t *testing.T) {
	t.Parallel()
	ca := rig.NewTestCA(t)
	site := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		for _, err := w.Write(make([]byte, 1<<16)); err == nil && r.Context().Err() == nil; {
			_, err = w.Write(make([]byte, 1<<16))
		}
	}))
	site.TLS = &tls.Config{Certificates: []tls.Certificate{*ca.Issue(t, []string{"localhost"}, nil)}}
	site.StartTLS()
	t.Cleanup(site.CloseClientConnections)
	authority := strings.Replace(site.Listener.Addr().String(), "127.0.0.1", "localhost", 1)
	c := config("", "", "requests 10/day\nbytes 4MiB/day")
	c.Site = strings.Replace(c.Site, "user_agent AcmeBot", "from 127.0.0.0/8", 1) + "\nconnect tunnel"
	g := rig.New(t, c.Trusting(ca))
	w := g.Tunnel(authority)
	inside := tls.Client(w, &tls.Config{ServerName: "localhost", InsecureSkipVerify: true}) // the certificate does not matter here
	ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
	defer cancel()
	if err := inside.HandshakeContext(ctx); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(inside, "GET /stream HTTP/1.1\r\nHost: "+authority+"\r\n\r\n")
	n, _ := io.Copy(io.Discard, inside)
	if n > 5<<20 || n < 3<<20 {
		t.Errorf("%d bytes came, want 3 to 5 MiB", n)
	}
	line := g.ClosedTunnel(authority)
	if r := line.Robots; r.Reason != enforce.ReasonBudget || r.BudgetLeft == nil || *r.BudgetLeft != 9 || r.SentAt == 0 {
		t.Errorf("%+v", r)
	}
	if resp := g.Dial().Connect(t, authority, ""); resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a second tunnel: status %s, want 200 or 429", resp.Status)
	}
	rig.Audit(t, "--gateway", g.AdminAddress(g.Config), g.AccessLog()).Clean(t, "a log with budgets")
}
