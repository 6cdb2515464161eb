package redispool

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// gateway is a gateway of a fleet.
type gateway struct {
	*budget.Keeper
	pool *Counters
}

func open(t *testing.T, s *redistest.Server) gateway {
	t.Helper()
	return openAs(t, s, s.URL(), 0)
}

func openAs(t *testing.T, s *redistest.Server, url string, room int) gateway {
	t.Helper()
	l, err := link.New(link.Config{URL: url, Prefix: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	l.Announce(func() string { return "here" })
	g := gateway{pool: &Counters{Link: l, room: room}}
	g.Keeper = budget.New(g.pool)
	before := subscribers(s)
	go g.pool.Listen(t.Context(), g.Keeper)
	t.Cleanup(func() { g.Close(); l.Close() })
	redistest.Eventually(t, "the gateway listens", func() bool { return l.State().Up && subscribers(s) > before })
	return g
}

// word returns the n-th line from the end of an answer of the protocol.
func word(answer string, n int) string {
	lines := strings.Split(strings.TrimSpace(answer), "\r\n")
	return strings.TrimPrefix(lines[max(len(lines)-n, 0)], ":")
}

func subscribers(s *redistest.Server) (n int) {
	_, _ = fmt.Sscan(word(s.Say("PUBSUB NUMSUB {acme}:fleet:budgets"), 1), &n)
	return n
}

// reported waits until Redis knows of 120 draws. Until then it counts too few.
func reported(t *testing.T, s *redistest.Server) {
	t.Helper()
	redistest.Eventually(t, "Redis to know of 120 draws", func() bool {
		lines := strings.Split(s.Say("HGETALL "+word(s.Say("KEYS *budget*"), 1)), "\r\n")
		for i, line := range lines {
			if n := 0; line == "requests" || strings.HasPrefix(line, "host ") {
				_, _ = fmt.Sscan(lines[min(i+2, len(lines)-1)], &n) // after the length of the value
				return n >= 120
			}
		}
		return false
	})
}

// limits has a zone whose midnight is hours away.
func limits(t *testing.T, c budget.Config) *budget.Allowance {
	t.Helper()
	if hour := time.Now().UTC().Hour(); hour < 6 || hour >= 18 {
		c.Zone = "Etc/GMT+12"
	}
	l, err := c.Allowance()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// calls returns the number of script calls since the server started.
func calls(s *redistest.Server) (n int) {
	_, stats, _ := strings.Cut(s.Say("INFO commandstats"), "cmdstat_evalsha:calls=")
	_, _ = fmt.Sscan(strings.ReplaceAll(stats, ",", " "), &n)
	return n
}

// patiently takes a request for up to a minute, because Redis may be unreachable for moments on a
// busy machine. lost counts the failures.
func (g gateway) patiently(t *testing.T, l *budget.Allowance, host string, lost *atomic.Int64) (budget.Receipt, error) {
	t.Helper()
	for began := time.Now(); ; {
		r, err := g.Take(t.Context(), "a", l, host)
		spent, ok := errors.AsType[*budget.SpentError](err)
		if err == nil || !ok || spent.Err == nil || time.Since(began) > time.Minute {
			return r, err
		}
		lost.Add(1)
		time.Sleep(100 * time.Millisecond)
	}
}

// TestFleet checks that two gateways with 40 clients get the whole budget and nothing more, and
// that each can use what the other returns. A slice may be lost if its grant did not arrive.
func TestFleet(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gateways := []gateway{open(t, s), open(t, s)}
	l := limits(t, budget.Config{Requests: "1000/day", PerHost: "700/day"})
	var passed, lost atomic.Int64
	var clients sync.WaitGroup
	for i := range 40 {
		clients.Go(func() {
			for n := 0; ; n++ {
				r, err := gateways[i%2].patiently(t, l, fmt.Sprint("h", i%3), &lost)
				if err != nil {
					if spent, ok := errors.AsType[*budget.SpentError](err); !ok || spent.Err != nil {
						t.Error(err)
					}
					return
				}
				if n%10 == 0 {
					r.Back()
				} else {
					passed.Add(1)
				}
			}
		})
	}
	clients.Wait()
	if n, away := passed.Load(), lost.Load(); n > 1000 || n < 1000-50*min(away, 2) {
		t.Errorf("%d requests passed, want 1000 or, since %d draws failed, a little less", n, away)
	}
	for range 2 {
		for _, g := range gateways {
			if _, err := g.Take(t.Context(), "a", l, "h9"); err == nil {
				t.Error("a request beyond the limit passed")
			}
		}
	}
	t.Logf("%d calls of Redis for 1,000 requests", calls(s))
	key := word(s.Say("KEYS *budget*"), 1)
	if !strings.HasPrefix(key, "{acme:budget:a}:20") {
		t.Fatal(key)
	}
	if got := word(s.Say("HGET "+key+" requests"), 1); got != "1000" {
		t.Errorf("Redis has %s requests drawn, want 1000", got)
	}
	if got := word(s.Say("TTL "+key), 1); !strings.HasPrefix(got, "172") {
		t.Errorf("the counter expires after %s s, want about 172,800", got)
	}
}

// TestRedisUser checks that the rights that docs/fleet.md gives to the user of a fleet suffice for
// its budgets.
func TestRedisUser(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	if got := s.Say("ACL SETUSER fleet " + testdocs.Line(t, "fleet.md", "ACL SETUSER fleet ")); got != "+OK\r\n" {
		t.Fatal(got)
	}
	url := strings.Replace(s.URL(), "//", "//fleet:PASSWORD@", 1)
	one, two := openAs(t, s, url, 0), openAs(t, s, url, 0)
	l := limits(t, budget.Config{Requests: "1000/day"})
	if _, err := one.Take(t.Context(), "a", l, "h"); err != nil {
		t.Fatal(err)
	}
	var lost atomic.Int64
	for n := range 999 { // the last of these are those that the first gateway returns
		if _, err := two.patiently(t, l, "h", &lost); err != nil && lost.Load() == 0 {
			t.Fatal(n, err)
		}
	}
	s.Say("ACL SETUSER fleet resetkeys ~{acme}:fleet:*")
	_, err := one.Take(t.Context(), "b", l, "h")
	if spent, ok := errors.AsType[*budget.SpentError](err); !ok || spent.Err == nil {
		t.Errorf("without rights: got error %v, want a *budget.SpentError with a cause", err)
	}
	if state := one.pool.Link.State(); !state.Up {
		t.Errorf("without rights to the budgets, the link is down: %v", state.Why)
	}
}

// TestRedisForgets checks that nothing is drawn while Redis is down. If Redis comes back empty, the
// gateway writes the number drawn again.
func TestRedisForgets(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := open(t, s)
	l := limits(t, budget.Config{Requests: "100/day"})
	take := func() (n int, err error) {
		for {
			if _, err = g.Take(t.Context(), "a", l, "h"); err != nil {
				return n, err
			}
			if n++; n == 60 {
				return n, nil
			}
		}
	}
	if n, err := take(); n != 60 {
		t.Fatal(n, err)
	}
	s.Kill()
	n, err := take()
	if spent, ok := errors.AsType[*budget.SpentError](err); !ok || spent.Err == nil || spent.Wait > time.Minute || n > 1 {
		t.Fatal(n, err)
	}
	s.Start()
	redistest.Eventually(t, "Redis is back", func() bool { return g.pool.Link.State().Up })
	more, err := take()
	if spent, ok := errors.AsType[*budget.SpentError](err); !ok || spent.Err != nil || 60+n+more > 100 || 60+n+more < 98 {
		t.Errorf("%d, then %d, then %d requests passed, want about 100 in all; the last error is %v", 60, n, more, err)
	}
}

// TestEachRemembers checks that an empty Redis accepts the number of each gateway, whichever
// reports first.
func TestEachRemembers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gateways := []gateway{open(t, s), open(t, s)}
	l := limits(t, budget.Config{Requests: "100/day"})
	passed := 0
	for i, n := range []int{30, 50} { // the first has drawn less
		for range n {
			if _, err := gateways[i].Take(t.Context(), "a", l, "h"); err != nil {
				t.Fatal(err)
			}
			passed++
		}
	}
	s.Kill()
	redistest.Eventually(t, "Redis is away", func() bool { return !gateways[0].pool.Link.State().Up && !gateways[1].pool.Link.State().Up })
	s.Start()
	redistest.Eventually(t, "Redis is back", func() bool { return gateways[0].pool.Link.State().Up && gateways[1].pool.Link.State().Up })
	var lost atomic.Int64
	for refused := 0; refused < 2; {
		refused = 0
		for _, g := range gateways {
			if _, err := g.patiently(t, l, "h", &lost); err != nil {
				refused++
			} else {
				passed++
			}
		}
	}
	// What the first drew before the second reported was not counted.
	if passed > 103 || passed < 95 {
		t.Errorf("%d requests passed, want about 100", passed)
	}
}

// TestOthersRemember checks that an empty Redis also learns what gateways have drawn that do not ask
// it for more.
func TestOthersRemember(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		first  int // requests of the gateway that goes on
		limits budget.Config
	}{
		{"requests", 10, budget.Config{Requests: "200/day"}},
		{"new gateway", 0, budget.Config{Requests: "200/day"}},
		{"host", 10, budget.Config{PerHost: "200/day"}},
		{"new gateway, host", 0, budget.Config{PerHost: "200/day"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			gateways := []gateway{open(t, s), open(t, s)}
			l := limits(t, tt.limits)
			passed := 0
			for i, n := range []int{tt.first, 120} {
				for range n {
					if _, err := gateways[i].Take(t.Context(), "a", l, "h"); err != nil {
						t.Fatal(err)
					}
					passed++
				}
			}
			s.Say("FLUSHALL")
			var lost atomic.Int64
			for {
				if _, err := gateways[0].patiently(t, l, "h", &lost); err != nil {
					break
				}
				if passed++; passed == tt.first+121 {
					reported(t, s)
				}
			}
			if passed > 206 || passed < 190 {
				t.Errorf("%d requests passed, want about 200", passed)
			}
		})
	}
}

// TestSetBack checks that gateways restore what a Redis has forgotten that comes back with an older
// copy of its data.
func TestSetBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	gateways := []gateway{open(t, s), open(t, s)}
	l := limits(t, budget.Config{Requests: "200/day"})
	var lost atomic.Int64
	passed := 0
	take := func(by, n int) {
		for ; n > 0; n-- {
			if _, err := gateways[by].patiently(t, l, "h", &lost); err != nil {
				return
			}
			passed++
		}
	}
	take(0, 10)
	s.Say("SAVE")
	take(1, 120)
	s.Kill()
	redistest.Eventually(t, "Redis is away", func() bool { return !gateways[0].pool.Link.State().Up && !gateways[1].pool.Link.State().Up })
	s.Start()
	redistest.Eventually(t, "all listen again", func() bool {
		return gateways[0].pool.Link.State().Up && gateways[1].pool.Link.State().Up && subscribers(s) == 2
	})
	reported(t, s)
	if take(0, 300); passed > 206 || passed < 190 {
		t.Errorf("%d requests passed, want about 200", passed)
	}
}

// TestReportsWhenDrawsWork checks that a gateway reports to a Redis that was set back as soon as it
// answers draws, which may be later than it took the subscription.
func TestReportsWhenDrawsWork(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := open(t, s)
	l := limits(t, budget.Config{Requests: "200/day"})
	for range 120 {
		if _, err := g.Take(t.Context(), "a", l, "h"); err != nil {
			t.Fatal(err)
		}
	}
	reported(t, s)
	s.Say("HSET " + word(s.Say("KEYS *budget*"), 1) + " requests 10 draws 1")
	g.pool.Link.Fail(errors.New("no answer yet"))
	reported(t, s)
}

// TestNoRoom checks that each gateway counts a host beyond the maximum of counters itself, and
// neither refuses nor passes all its requests.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	g := openAs(t, s, s.URL(), 1)
	l := limits(t, budget.Config{PerHost: "5/day"})
	if _, err := g.Take(t.Context(), "a", l, "known"); err != nil {
		t.Fatal(err)
	}
	l = limits(t, budget.Config{PerHost: "5/day", Requests: "100/day"}) // its counter has room
	for host, want := range map[string]int{"known": 4, "new": 5} {
		n := 0
		for ; n < 100; n++ {
			if _, err := g.Take(t.Context(), "a", l, host); err != nil {
				break
			}
		}
		if n != want {
			t.Errorf("%d requests to the host %s, want %d", n, host, want)
		}
	}
}
