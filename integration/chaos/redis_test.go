//go:build slow

package chaos

import (
	"context"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// redisServer is a redis-server for one test, on a free port of loopback.
type redisServer struct {
	t    *testing.T
	path string
	port string
	dir  string
	cmd  *exec.Cmd
}

func startRedis(t *testing.T) *redisServer {
	t.Helper()
	_, port, err := net.SplitHostPort(rig.FreePort(t))
	if err != nil {
		t.Fatal(err)
	}
	s := &redisServer{t: t, path: redistest.Program(t), port: port, dir: rig.TempDir(t)}
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *redisServer) start() {
	s.t.Helper()
	s.cmd = exec.Command(s.path, "--port", s.port, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "yes")
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	rig.Eventually(s.t, "redis-server answers", func() bool {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort("127.0.0.1", s.port), time.Second)
		if err != nil {
			return false
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(time.Second))
		_, err = conn.Write([]byte("PING\r\n"))
		pong := make([]byte, 5)
		if err == nil {
			_, err = conn.Read(pong)
		}
		return err == nil && string(pong) == "+PONG"
	})
}

func (s *redisServer) stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // killed
}

func (s *redisServer) store() string { return "store redis redis://127.0.0.1:" + s.port }

// cluster returns two gateways that share a Redis.
func cluster(t *testing.T, config rig.Config) [2]*rig.Gateway {
	t.Helper()
	return [2]*rig.Gateway{rig.New(t, config), rig.New(t, config)}
}

// fixed is a site that never changes, with the right answers for its open and its private page.
type fixed struct {
	site          *testorigin.Site
	open, private int
}

// fixedSites starts n sites: of every ten, eight have rules, one has no robots.txt, and one is
// broken.
func fixedSites(t *testing.T, server *testorigin.Server, n int, took time.Duration) []fixed {
	t.Helper()
	sites := make([]fixed, n)
	for i := range sites {
		s := fixed{server.Site(t, testorigin.SiteConfig{}), http.StatusOK, http.StatusForbidden}
		b := testorigin.OK(rules)
		switch i % 10 {
		case 8:
			b, s.private = testorigin.Status(http.StatusNotFound), http.StatusOK
		case 9:
			b, s.open = testorigin.Status(http.StatusServiceUnavailable), http.StatusForbidden
		}
		s.site.SetRobots(b.After(took))
		sites[i] = s
	}
	return sites
}

// check requests both pages of the site.
func (s *fixed) check(t *testing.T, c *caller) {
	t.Helper()
	for page, want := range map[string]int{openPage: s.open, privatePage: s.private} {
		status, head, err := c.get(s.site.URL(page))
		if err != nil || status != want {
			t.Errorf("%s by %s: status %d, want %d: error %v, header %v", s.site.URL(page), c.addr, status, want, err, head)
		}
	}
}

// onceEach fails the test if a site was not fetched exactly once.
func onceEach(t *testing.T, sites []fixed) {
	t.Helper()
	wrong := 0
	for _, s := range sites {
		if n := len(s.site.RobotsExchanges()); n != 1 {
			if wrong++; wrong <= 5 {
				t.Errorf("%s got %d fetches from the cluster, want 1", s.site.Origin(), n)
			}
		}
	}
	t.Logf("%d of %d origins were fetched exactly once", len(sites)-wrong, len(sites))
}

// TestChaosRedisOneFetch sends 2,000 clients of two gateways to 1,000 new origins at once. Each
// origin must get one fetch.
func TestChaosRedisOneFetch(t *testing.T) {
	rig.LoadsMachine(t)
	const origins, clients = 1000, 2000
	redis := startRedis(t)
	sites := fixedSites(t, testorigin.Start(t, testorigin.Config{}), origins, 100*time.Millisecond)
	gateways := cluster(t, rig.Config{Engine: redis.store() + "\n" + rig.PaceOff})
	began := time.Now()
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() {
			c := &caller{addr: gateways[i/origins].Addr}
			defer c.close()
			<-start
			sites[i%origins].check(t, c)
		})
	}
	close(start)
	wg.Wait()
	t.Logf("%d clients were served in %v", clients, time.Since(began).Round(time.Millisecond))
	onceEach(t, sites)
	for _, g := range gateways {
		g.Stop()
		if t.Failed() {
			t.Logf("log of the gateway at %s: %s", g.Addr, g.Stderr)
		}
	}
}

// TestChaosRedisDeathMidLease kills a gateway during its fetches. The first request for one of its
// origins at the other gateway is answered within about 5 s, because a lease lasts for 4 s without
// renewal.
func TestChaosRedisDeathMidLease(t *testing.T) {
	rig.NeedsQuiet(t)
	const origins, lease, limit = 40, 4 * time.Second, 6 * time.Second
	redis := startRedis(t)
	server := testorigin.Start(t, testorigin.Config{})
	sites := make([]fixed, origins)
	for i := range sites {
		sites[i] = fixed{server.Site(t, testorigin.SiteConfig{}), http.StatusOK, http.StatusForbidden}
		sites[i].site.SetRobots(testorigin.HangBeforeHead())
	}
	gateways := cluster(t, rig.Config{Engine: redis.store() + "\n" + rig.PaceOff})
	var dying sync.WaitGroup
	for _, s := range sites {
		dying.Go(func() {
			c := &caller{addr: gateways[0].Addr}
			defer c.close()
			_, _, _ = c.get(s.site.URL(openPage)) // the gateway dies during this
		})
	}
	fetched := func() bool {
		return !slices.ContainsFunc(sites, func(s fixed) bool { return len(s.site.RobotsExchanges()) == 0 })
	}
	rig.Eventually(t, "all leases to be taken", fetched)
	// Wait longer than a lease lasts without renewal: only the renewals keep the other gateway
	// waiting.
	sleepFor(t.Context(), lease+time.Second)
	var other sync.WaitGroup
	other.Go(func() {
		c := &caller{addr: gateways[1].Addr}
		defer c.close()
		status, _, err := c.get(sites[0].site.URL(openPage))
		if err != nil || status != http.StatusOK {
			t.Errorf("a request that waited for the death: status %d, error %v, want 200", status, err)
		}
	})
	sleepFor(t.Context(), time.Second)
	if n := len(sites[0].site.RobotsExchanges()); n != 1 {
		t.Errorf("%d fetches while the lease is renewed, want 1", n)
	}

	gateways[0].Kill()
	died := time.Now()
	dying.Wait()
	took := make([]time.Duration, origins)
	var wg sync.WaitGroup
	for i, s := range sites {
		s.site.SetRobots(testorigin.OK(rules))
		wg.Go(func() {
			c := &caller{addr: gateways[1].Addr}
			defer c.close()
			s.check(t, c)
			took[i] = time.Since(died)
		})
	}
	wg.Wait()
	other.Wait()
	for _, s := range sites {
		if n := len(s.site.RobotsExchanges()); n != 2 {
			t.Errorf("%s was fetched %d times, want one by each gateway", s.site.Origin(), n)
		}
	}
	last := slices.Max(took)
	t.Logf("%d origins were taken over, the last one %v after the death", origins, last.Round(time.Millisecond))
	if last > limit {
		t.Errorf("the last answer came %v after the death, want at most %v", last, limit)
	}
}

// outageTime returns the duration of the outage of Redis. CRAWLGATE_CHAOS_OUTAGE sets another one;
// 30 s is the full size.
func outageTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("CRAWLGATE_CHAOS_OUTAGE")
	if text == "" {
		return 6 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CRAWLGATE_CHAOS_OUTAGE: %v", err)
	}
	return d
}

// TestChaosRedisOutage stops Redis under the load of both gateways and starts it again. Decisions
// on known and new origins are right all the time, and afterwards the gateways share records again.
func TestChaosRedisOutage(t *testing.T) {
	rig.NeedsQuiet(t) // its clients send 320 requests a second in total
	redis := startRedis(t)
	server := testorigin.Start(t, testorigin.Config{})
	known := fixedSites(t, server, 100, 10*time.Millisecond)
	during := fixedSites(t, server, 100, 10*time.Millisecond)
	after := fixedSites(t, server, 100, 10*time.Millisecond)
	c := timing{ttl: 4 * time.Second, retry: [2]time.Duration{time.Second, 4 * time.Second}, timeout: 2 * time.Second, unreachableFor: time.Hour}
	gateways := cluster(t, rig.Config{Engine: c.engine(redis.store())})

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var load sync.WaitGroup
	checks := make([]int, 16)
	for i := range checks {
		load.Go(func() {
			random := rand.New(rand.NewPCG(4, uint64(i)))
			client := &caller{addr: gateways[i%2].Addr}
			defer client.close()
			for ctx.Err() == nil {
				known[random.IntN(len(known))].check(t, client)
				checks[i] += 2
				sleepFor(ctx, 100*time.Millisecond)
			}
		})
	}
	sleepFor(ctx, 2*time.Second)
	redis.stop()
	outage := outageTime(t)
	sleepFor(ctx, outage/2)
	visitAll(t, gateways, during)
	sleepFor(ctx, outage/2)
	redis.start()
	sleepFor(ctx, 3*time.Second) // the gateway tries Redis once a second
	visitAll(t, gateways, after)
	stop()
	load.Wait()

	for _, s := range during {
		if n := len(s.site.RobotsExchanges()); n < 1 {
			t.Errorf("%s was never fetched", s.site.Origin())
		}
	}
	sum := 0
	for _, n := range checks {
		sum += n
	}
	t.Logf("%d verdicts on known origins, %v without Redis", sum, outage)
	for i, s := range after {
		if n := len(s.site.RobotsExchanges()); n != 1 && i%10 != 9 { // the broken ones are fetched again
			t.Errorf("%s got %d fetches from the cluster after the outage, want 1", s.site.Origin(), n)
		}
	}
}

// visitAll requests all sites from both gateways at once.
func visitAll(t *testing.T, gateways [2]*rig.Gateway, sites []fixed) {
	t.Helper()
	var wg sync.WaitGroup
	for _, g := range gateways {
		for _, s := range sites {
			wg.Go(func() {
				c := &caller{addr: g.Addr}
				defer c.close()
				s.check(t, c)
			})
		}
	}
	wg.Wait()
}
