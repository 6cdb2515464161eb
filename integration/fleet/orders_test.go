//go:build slow

package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// orderFleet is three gateways that follow each other's orders. The third may reach Redis through a
// relay.
type orderFleet struct {
	t        *testing.T
	redis    *redistest.Server
	relay    *relay
	gateways []*rig.Gateway
}

func startOrderFleet(t *testing.T, relayed bool) *orderFleet {
	t.Helper()
	f := &orderFleet{t: t, redis: redistest.Start(t)}
	third := f.redis.URL()
	if relayed {
		f.relay = startRelay(t, strings.TrimPrefix(third, "redis://"))
		third = "redis://" + f.relay.addr
	}
	for i, url := range []string{f.redis.URL(), f.redis.URL(), third} {
		f.gateways = append(f.gateways, rig.New(t, rig.Config{Engine: rig.FleetEngine(fmt.Sprint("gw", i), url, 3)}))
	}
	f.meet()
	return f
}

// meet waits until each gateway lists all three.
func (f *orderFleet) meet() {
	f.t.Helper()
	for i, g := range f.gateways {
		rig.Eventually(f.t, fmt.Sprintf("gw%d knows all", i), func() bool {
			list := decodeAnswer[adminapi.Gateways](f.t, g.Admin("/robots/gateways").Body)
			return list.Up && len(list.Gateways) == 3 && list.Pending == 0 && g.Metric("crawlgate_fleet_gateways") == 3
		})
	}
}

func decodeAnswer[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return v
}

// run runs a command at a gateway, and checks the exit status and the output.
func (f *orderFleet) run(i, status int, want string, args ...string) {
	f.t.Helper()
	out, err := f.gateways[i].Robots(args[0], args[1:]...)
	got := 0
	if exited := (*exec.ExitError)(nil); errors.As(err, &exited) {
		got = exited.ExitCode()
	}
	if got != status || !strings.Contains(out, want) {
		f.t.Errorf("gw%d: %q: exit status %d, want %d and %q in the output: %s", i, args, got, status, want, out)
	}
}

// stopped checks at which gateways a page is stopped.
func (f *orderFleet) stopped(page string, want ...bool) {
	f.t.Helper()
	for i, g := range f.gateways {
		status := g.MustFetch("AcmeBot/1.0", page).Status
		if stopped := status == http.StatusForbidden; stopped != want[i] {
			f.t.Errorf("gw%d: %s: status %d, want stopped %v", i, page, status, want[i])
		}
	}
}

// becomes waits until a page is stopped at all gateways, or at none.
func (f *orderFleet) becomes(page string, stopped bool) {
	f.t.Helper()
	for i, g := range f.gateways {
		rig.Eventually(f.t, fmt.Sprintf("gw%d: %s stopped: %v", i, page, stopped), func() bool {
			return (g.MustFetch("AcmeBot/1.0", page).Status == http.StatusForbidden) == stopped
		})
	}
}

// relay forwards connections until it is cut.
type relay struct {
	addr, to string
	delay    time.Duration // of each answer
	mu       sync.Mutex
	isCut    bool
	open     map[net.Conn]bool
}

func startRelay(t *testing.T, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{addr: l.Addr().String(), to: to, open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = l.Close()
		r.cut(true)
	})
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			go r.pass(in)
		}
	}()
	return r
}

// move makes the relay forward new connections to another address.
func (r *relay) move(to string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
}

func (r *relay) pass(in net.Conn) {
	defer in.Close()
	r.mu.Lock()
	to := r.to
	r.mu.Unlock()
	out, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer out.Close()
	if !r.hold(in, out) {
		return
	}
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	for part := make([]byte, 64<<10); ; {
		n, err := out.Read(part)
		rig.Pause(context.Background(), r.delay)
		if _, bad := in.Write(part[:n]); err != nil || bad != nil {
			return
		}
	}
}

func (r *relay) hold(conns ...net.Conn) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range conns {
		r.open[c] = true
	}
	return !r.isCut
}

func (r *relay) cut(cut bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isCut = cut
	for c := range r.open {
		if cut {
			_ = c.Close()
			delete(r.open, c)
		}
	}
}

// endlessPages is an origin whose pages continue for as long as the gateway reads them. For each
// gateway it records when it last received bytes and when it last sent some.
type endlessPages struct {
	*httptest.Server
	last [3]atomic.Int64 // ns since 1970
	hits [3]atomic.Int64
}

func startEndlessPages(t *testing.T) *endlessPages {
	t.Helper()
	s := new(endlessPages)
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			http.NotFound(w, r)
			return
		}
		var i int
		if _, err := fmt.Sscanf(r.UserAgent(), "Agent-%d", &i); err != nil {
			return
		}
		note := func() { s.last[i].Store(max(s.last[i].Load(), time.Now().UnixNano())) }
		note()
		s.hits[i].Add(1)
		control := http.NewResponseController(w)
		for range 50 {
			if _, err := io.WriteString(w, strings.Repeat("x", 500)); err != nil || control.Flush() != nil {
				return
			}
			note()
			select {
			case <-r.Context().Done():
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// TestFleetStopsWithinASecond crawls one host with many clients through three gateways. Less than a
// second after an order at one of them, by the origin's own record, the last byte has arrived at
// the origin.
func TestFleetStopsWithinASecond(t *testing.T) {
	rig.NeedsQuiet(t)
	rounds, clients := 10, 60
	if rig.Long() {
		rounds, clients = 200, 300
	}
	f, s := startOrderFleet(t, false), startEndlessPages(t)
	host := strings.TrimPrefix(s.URL, "http://")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var group sync.WaitGroup
	for i := range clients {
		g := i % 3
		client := f.gateways[g].Client(fmt.Sprintf("Agent-%d/1.0", g))
		group.Go(func() {
			for ctx.Err() == nil {
				if a, err := rig.TryGet(ctx, client, s.URL+"/page"); err != nil || a.Status != http.StatusOK {
					rig.Pause(ctx, 100*time.Millisecond)
				}
			}
		})
	}
	flows := func() {
		t.Helper()
		var before [3]int64
		for i := range before {
			before[i] = s.hits[i].Load()
		}
		rig.Eventually(t, "all gateways crawl", func() bool {
			return !slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return s.hits[i].Load() < before[i]+int64(clients/6) })
		})
	}
	var took []time.Duration
	sum := 0
	for round := range rounds {
		flows()
		began := time.Now()
		order := fmt.Sprintf(`{"scope":"host","value":%q,"reason":"round %d"}`, host, round)
		given := decodeAnswer[adminapi.OrderGiven](t, askAdmin(f.gateways[round%3], http.MethodPost, "/robots/deny", order))
		answered := time.Since(began)
		n, all, ended := given.Counts()
		if n != 3 || all != 3 || ended == 0 {
			t.Errorf("round %d: %d of %d gateways confirmed, want 3 of 3; %d requests ended: %+v", round, n, all, ended, given)
		}
		sum += ended
		rig.Pause(t.Context(), 1200*time.Millisecond-time.Since(began)) // bytes may come too late
		var last int64
		for i := range s.last {
			last = max(last, s.last[i].Load())
		}
		took = append(took, time.Unix(0, last).Sub(began))
		if took[round] >= time.Second {
			t.Errorf("round %d: the last byte came %v after the order, which was answered after %v", round, took[round], answered)
		}
		askAdmin(f.gateways[(round+1)%3], http.MethodDelete, "/robots/deny?scope=host&value="+host, "")
	}
	stop()
	group.Wait()
	slices.Sort(took)
	t.Logf("%d rounds, %d clients: the last byte came %v after the order (median), %v at most; %d requests ended",
		rounds, clients, took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), sum)
}

// askAdmin sends a request to the admin API and fails the test unless it succeeds.
func askAdmin(g *rig.Gateway, method, path, body string) string {
	g.T.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", g.AdminSocket())
		},
	}}
	r, err := http.NewRequestWithContext(g.T.Context(), method, "http://localhost"+path, strings.NewReader(body))
	if err != nil {
		g.T.Fatal(err)
	}
	resp, err := client.Do(r)
	if err != nil {
		g.T.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		g.T.Fatalf("%s %s: status %d, body %s, error %v", method, path, resp.StatusCode, text, err)
	}
	return string(text)
}

// TestFleetWithoutRedis empties and kills Redis between an order and its lift, and kills a gateway
// whose order no other gateway has yet. This lifts no order and loses none, and a lift stays in
// force.
func TestFleetWithoutRedis(t *testing.T) {
	t.Parallel()
	f := startOrderFleet(t, false)
	server := testorigin.Start(t, testorigin.Config{})
	one, two := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	a, b := one.Origin(), two.Origin()
	hostOf := func(page string) string { return strings.TrimSuffix(strings.TrimPrefix(page, "http://"), rig.OpenPage) }
	first, second := a.String()+rig.OpenPage, b.String()+rig.OpenPage

	f.run(0, 0, "3 of 3 gateways", "deny", "host", hostOf(first))
	f.stopped(first, true, true, true)
	f.redis.Say("FLUSHALL")
	rig.Eventually(t, "redis is refilled", func() bool { return f.redis.Say("HLEN {crawlgate}:fleet:orders") == ":1\r\n" })
	f.stopped(first, true, true, true)
	f.redis.Kill()
	f.redis.Start() // empty
	rig.Eventually(t, "redis is refilled", func() bool { return f.redis.Say("HLEN {crawlgate}:fleet:orders") == ":1\r\n" })
	f.meet()
	f.stopped(first, true, true, true)
	f.run(1, 0, "3 of 3 gateways", "undeny", "host", hostOf(first))
	f.stopped(first, false, false, false)
	f.redis.Say("FLUSHALL")
	rig.Pause(t.Context(), 2500*time.Millisecond)
	f.stopped(first, false, false, false) // a lifted stop does not come back

	f.redis.Kill()
	rig.Eventually(t, "redis is found away", func() bool { return f.gateways[2].Metric("crawlgate_fleet_up") == 0 })
	f.run(2, 1, "1 of 3 gateways", "deny", "host", hostOf(second))
	f.run(2, 1, "gw0 is silent; its last heartbeat was at 20", "deny", "host", hostOf(second))
	f.run(2, 1, "the other gateways get the order when it is back", "purge", a.String())
	f.stopped(second, false, false, true)
	f.gateways[2].Kill()
	if err := f.gateways[2].Start(f.gateways[2].Config); err != nil {
		t.Fatal(err)
	}
	f.stopped(second, false, false, true)
	// The order, the lift of the one that it replaced, and the lift of the first one.
	f.run(2, 0, "redis does not answer: this list may be out of date; 3 orders wait for it", "gateways")
	f.redis.Start()
	f.becomes(second, true)
	f.meet()
	f.run(0, 0, "3 of 3 gateways", "undeny", "host", hostOf(second))
	f.stopped(second, false, false, false)
}

// TestFleetCutInTwo cuts one gateway off. A stop is lifted on one side and given again on the
// other, in both directions. In the end all gateways stop.
func TestFleetCutInTwo(t *testing.T) {
	t.Parallel()
	f := startOrderFleet(t, true)
	server := testorigin.Start(t, testorigin.Config{})
	sites := []*testorigin.Site{server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})}
	pages, hosts := make([]string, 3), make([]string, 3)
	for i, site := range sites {
		pages[i], hosts[i] = site.URL(rig.OpenPage), strings.TrimPrefix(site.Origin().String(), "http://")
	}
	for _, host := range hosts[:2] {
		f.run(0, 0, "3 of 3 gateways", "deny", "host", host)
	}
	f.relay.cut(true)
	rig.Eventually(t, "the third is cut off", func() bool { return f.gateways[2].Metric("crawlgate_fleet_up") == 0 })
	rig.Pause(t.Context(), 6*time.Second) // then it is silent, and the others do not wait for it
	f.run(0, 1, "gw2 is silent", "undeny", "host", hosts[0])
	f.run(2, 1, "1 of 3 gateways", "deny", "host", hosts[0])
	f.run(1, 1, "2 of 3 gateways", "deny", "host", hosts[1])
	f.run(2, 1, "1 of 3 gateways", "undeny", "host", hosts[1])
	f.run(0, 1, "2 of 3 gateways", "deny", "host", hosts[2])
	f.stopped(pages[0], false, false, true)
	f.stopped(pages[1], true, true, false)
	f.stopped(pages[2], true, true, false)
	if rig.Long() {
		rig.Pause(t.Context(), time.Minute)
	}
	f.relay.cut(false)
	for _, page := range pages {
		f.becomes(page, true)
	}
	f.meet()
	for _, page := range pages {
		f.stopped(page, true, true, true)
	}
	for i, host := range hosts {
		f.run(i, 0, "3 of 3 gateways", "undeny", "host", host)
		f.stopped(pages[i], false, false, false)
	}
}

// TestFleetActions checks that gateways with their own stores forget, fetch and unblock when one of
// them is told to.
func TestFleetActions(t *testing.T) {
	t.Parallel()
	f := startOrderFleet(t, false)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	ask := func() {
		for _, g := range f.gateways {
			g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage))
		}
	}
	fetches := func(want int) {
		t.Helper()
		rig.Eventually(t, fmt.Sprintf("%d fetches", want), func() bool { return len(site.RobotsExchanges()) >= want })
		if n := len(site.RobotsExchanges()); n != want {
			t.Errorf("%d fetches, want %d", n, want)
		}
	}
	ask()
	ask()
	fetches(3)
	f.run(1, 0, "3 of 3 gateways", "purge", site.Origin().String())
	ask()
	fetches(6)
	f.run(2, 0, "3 of 3 gateways", "refresh", site.Origin().String())
	fetches(9)
	f.run(0, 1, "is not blocked", "unblock", site.Origin().Host)
	out, err := f.gateways[0].Robots("gateways")
	if err != nil || strings.Count(out, "gw") != 3 || strings.Contains(out, "expected") {
		t.Errorf("error %v, want three gateways in %s", err, out)
	}
	if err := f.gateways[0].Reload(rig.Config{Engine: rig.FleetEngine("renamed", f.redis.URL(), 3)}); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, "the new name is known", func() bool {
		out, err := f.gateways[2].Robots("gateways")
		return err == nil && strings.Contains(out, "renamed") && !strings.Contains(out, "gw0")
	})
	f.run(0, 0, "3 of 3 gateways", "deny", "host", "example.com")
	f.gateways[1].Stop()
	f.run(0, 1, "1 of the gateways that the configuration expects are not known", "deny", "all")
	f.run(2, 0, "3 gateways are expected, 2 are known", "gateways")
}

// TestOrdersFollowWhatIsShared checks that gateways that share records or clocks share orders too,
// without an option for a fleet. Without Redis the command reports that the others do not have the
// order yet, and exits with status 1.
func TestOrdersFollowWhatIsShared(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]string{"store": "store redis %s\n" + rig.PaceOff, "clocks": "pace {\nrate off\nshared redis %s\n}"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			f := &orderFleet{t: t, redis: redistest.Start(t)}
			for i := range 2 {
				f.gateways = append(f.gateways, rig.New(t, rig.Config{Engine: fmt.Sprintf("gateway gw%d\n"+shared, i, f.redis.URL())}))
			}
			for _, g := range f.gateways {
				rig.Eventually(t, "each knows the other", func() bool {
					list := decodeAnswer[adminapi.Gateways](t, g.Admin("/robots/gateways").Body)
					return list.Up && len(list.Gateways) == 2
				})
				if a := g.MustFetch("Tester/1.0", site.URL("/")); a.Status != http.StatusOK {
					t.Fatalf("status %d, want 200: %s", a.Status, a.Body)
				}
			}
			f.run(0, 0, "2 of 2 gateways", "deny", "host", site.Origin().Host)
			for _, g := range f.gateways {
				if a := g.MustFetch("Tester/1.0", site.URL("/")); a.Header.Get("Crawlgate-Decision") != "deny; reason=kill_switch" {
					t.Errorf("status %d, decision %q, want a stop", a.Status, a.Header.Get("Crawlgate-Decision"))
				}
			}
			f.redis.Kill()
			rig.Eventually(t, "redis is missed", func() bool { return f.gateways[0].Metric("crawlgate_fleet_up") == 0 })
			f.run(0, 1, "the other gateways get the order when it is back", "deny", "all")
		})
	}
}
