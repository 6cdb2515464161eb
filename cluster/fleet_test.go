package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

func TestMain(m *testing.M) {
	// A rueidis client that is closed while it waits to refresh the topology sleeps on for up to a
	// second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// gateway is a Local that keeps everything in memory.
type gateway struct {
	tb     testing.TB
	stops  enforce.Stops
	events chan string // errors

	mu    sync.Mutex
	acted []string
	lost  int
	last  string
}

func (g *gateway) Orders() enforce.StopSet { return g.stops.All() }

func (g *gateway) Merge(other enforce.StopSet) map[string]int {
	if err := g.stops.Update(func(o enforce.StopSet) (enforce.StopSet, error) { return o.Merge(other, time.Now()) }); err != nil {
		g.tb.Error(err)
	}
	ended := map[string]int{}
	for _, order := range other.Held {
		ended[order.ID] = 5
	}
	return ended
}

func (g *gateway) Act(_ context.Context, a Action) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if a.Value == "bad" {
		return 0, errors.New("a bad action")
	}
	if a.Late {
		a.Kind = "late " + a.Kind
	}
	g.acted = append(g.acted, string(a.Kind)+" "+a.Value)
	return 1, nil
}

func (g *gateway) Lost() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost++
}

func (g *gateway) LastAction() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last
}

func (g *gateway) KeepAction(id string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last = id
}

func (g *gateway) done() (acted []string, lost int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.acted), g.lost
}

// linkTo connects to Redis.
func linkTo(tb testing.TB, url string) *link.Link {
	tb.Helper()
	l, err := link.New(link.Config{URL: url})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	return l
}

// join starts a gateway.
func join(tb testing.TB, s *redistest.Server, name string, g *gateway) *Fleet {
	tb.Helper()
	g.tb, g.events = tb, make(chan string, 100)
	f := New(Config{
		Link: linkTo(tb, s.URL()), Local: g,
		Unread: func() {},
		Failed: func(err error) {
			select {
			case g.events <- err.Error():
			default:
			}
		},
	}, Self{Name: name, Version: "v1"}, 0)
	tb.Cleanup(func() { _ = f.Close() })
	redistest.Eventually(tb, name+" is in the fleet", func() bool { _, state := f.Gateways(tb.Context()); return state.Up })
	return f
}

// three returns a fleet of three gateways that have exchanged heartbeats.
func three(t *testing.T) (s *redistest.Server, all []*Fleet, gateways []*gateway) {
	t.Helper()
	s = redistest.Start(t)
	for i := range 3 {
		g := new(gateway)
		all, gateways = append(all, join(t, s, fmt.Sprint("gw", i), g)), append(gateways, g)
	}
	meet(t, all)
	return s, all, gateways
}

func meet(t *testing.T, all []*Fleet) {
	t.Helper()
	for _, f := range all {
		redistest.Eventually(t, "all gateways to know each other", func() bool {
			list, state := f.Gateways(t.Context())
			return state.Up && state.Gateways == len(all) && len(list) == len(all)
		})
	}
}

// give gives an order at a gateway.
func give(t *testing.T, f *Fleet, g *gateway, id string) Acknowledgements {
	t.Helper()
	if err := g.stops.Set(enforce.Stop{ID: id, Scope: enforce.StopHost, Value: id + ".example", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	return f.Given(t.Context(), id, 2)
}

// lift lifts an order at a gateway.
func lift(t *testing.T, f *Fleet, g *gateway, id string) Acknowledgements {
	t.Helper()
	err := g.stops.Update(func(o enforce.StopSet) (enforce.StopSet, error) {
		o, _, found := o.Lift(enforce.Stop{Scope: enforce.StopHost, Value: id + ".example"}, enforce.Lift{At: time.Now()})
		if !found {
			t.Errorf("the order %s to lift is not known", id)
		}
		return o, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f.Given(t.Context(), LiftOf(id), 0)
}

// held returns the ids of the orders at a gateway.
func held(g *gateway) string {
	var all []string
	for _, order := range g.stops.List() {
		all = append(all, order.ID)
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func agree(t *testing.T, gateways []*gateway, want string) {
	t.Helper()
	redistest.Eventually(t, "all hold "+want, func() bool {
		return !slices.ContainsFunc(gateways, func(g *gateway) bool { return held(g) != want })
	})
}

func TestOrdersReachAllAndAreAnswered(t *testing.T) {
	t.Parallel()
	s, all, gateways := three(t)
	for i := range 20 {
		id := fmt.Sprint("order-", i)
		began := time.Now()
		r := give(t, all[i%3], gateways[i%3], id)
		if answered, n, ended := r.Counts(); answered != 3 || n != 3 || ended != 12 || r.Pending {
			t.Fatalf("%s: got %+v, want 3 of 3 answers and 12 ended requests", id, r)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("%s took %v, want at most a second", id, took)
		}
		agree(t, gateways, id) // at once, since all have answered
		if answered, n, _ := lift(t, all[(i+1)%3], gateways[(i+1)%3], id).Counts(); answered != 3 || n != 3 {
			t.Fatalf("lift of %s: %d of %d gateways answered, want 3 of 3", id, answered, n)
		}
		agree(t, gateways, "")
	}
	if n := s.Say("HLEN {crawlgate}:fleet:orders") + s.Say("HLEN {crawlgate}:fleet:lifted"); n != ":0\r\n:20\r\n" {
		t.Errorf("redis has %q orders and lifts, want 0 and 20", n)
	}
}

func TestRedisIsNeverObeyed(t *testing.T) {
	t.Parallel()
	s, all, gateways := three(t)
	give(t, all[0], gateways[0], "a")
	give(t, all[1], gateways[1], "b")
	s.Say("FLUSHALL")
	if answered, n, _ := give(t, all[2], gateways[2], "c").Counts(); answered != 3 || n != 3 {
		t.Errorf("after FLUSHALL %d of %d gateways answered, want 3 of 3", answered, n)
	}
	agree(t, gateways, "a b c")
	redistest.Eventually(t, "redis to have the orders again", func() bool { return s.Say("HLEN {crawlgate}:fleet:orders") == ":3\r\n" })

	s.Kill()
	redistest.Eventually(t, "both links to be down", func() bool { return !all[0].link.State().Up && !all[1].link.State().Up })
	r := give(t, all[0], gateways[0], "d")
	if answered, n, _ := r.Counts(); answered != 1 || n != 3 || !r.Pending || r.Gateways[1].LastHeartbeat.IsZero() {
		t.Errorf("an order without redis: %+v", r)
	}
	lift(t, all[1], gateways[1], "a")
	if _, state := all[0].Gateways(t.Context()); state.Pending != 1 {
		t.Errorf("%d pending, want d", state.Pending)
	}
	if r := all[0].Tell(t.Context(), Purge, "x", 1); !r.Pending || r.NotDelivered {
		t.Errorf("an action without redis: %+v", r)
	}
	if n := all[0].State().Queued; n != 1 {
		t.Errorf("%d actions wait, want the purge", n)
	}
	if got := held(gateways[2]); got != "a b c" {
		t.Errorf("the third gateway holds %s, want a b c", got)
	}
	s.Start() // empty
	agree(t, gateways, "b c d")
	redistest.Eventually(t, "no gateway to have pending orders", func() bool {
		_, state := all[0].Gateways(t.Context())
		return state.Pending == 0 && all[0].State().Queued == 0
	})
}

// TestAStopWinsOverALiftThatDidNotKnowIt cuts a gateway off by giving it a Redis of its own.
func TestAStopWinsOverALiftThatDidNotKnowIt(t *testing.T) {
	t.Parallel()
	here, there := redistest.Start(t), redistest.Start(t)
	a, b := new(gateway), new(gateway)
	fa, fb := join(t, here, "a", a), join(t, here, "b", b)
	meet(t, []*Fleet{fa, fb})
	give(t, fa, a, "x")
	if err := fb.Close(); err != nil {
		t.Fatal(err)
	}
	fb = join(t, there, "b", b)
	lift(t, fa, a, "x")
	if err := b.stops.Set(enforce.Stop{ID: "again", Scope: enforce.StopHost, Value: "X.example", At: time.Now()}); err != nil {
		t.Fatal(err)
	}
	fb.Given(t.Context(), "again", 0)
	agree(t, []*gateway{a}, "")
	agree(t, []*gateway{b}, "again")
	if err := fb.Close(); err != nil {
		t.Fatal(err)
	}
	join(t, here, "b", b)
	agree(t, []*gateway{a, b}, "again")
}

func TestActionsAreDoneOnceByAllOthers(t *testing.T) {
	t.Parallel()
	s, all, gateways := three(t)
	for i := range 5 {
		if answered, n, ended := all[0].Tell(t.Context(), Purge, fmt.Sprint(i), 1).Counts(); answered != 3 || n != 3 || ended != 3 {
			t.Errorf("%d of %d gateways answered and ended %d requests, want 3 of 3 and 3", answered, n, ended)
		}
	}
	if acted, _ := gateways[0].done(); len(acted) > 0 {
		t.Errorf("the gateway performed its own actions again: %q", acted)
	}
	want := []string{"purge 0", "purge 1", "purge 2", "purge 3", "purge 4"}
	if acted, _ := gateways[1].done(); !slices.Equal(acted, want) {
		t.Errorf("the second gateway performed %q", acted)
	}
	s.Say("FLUSHALL")
	redistest.Eventually(t, "the gateway to notice the lost actions", func() bool { _, lost := gateways[1].done(); return lost == 1 })
	if answered, _, _ := all[0].Tell(t.Context(), Unblock, "h", 0).Counts(); answered != 3 {
		t.Errorf("after the loss %d gateways answered, want 3", answered)
	}
	if answered, _, _ := all[1].Tell(t.Context(), Unblock, "bad", 0).Counts(); answered != 1 {
		t.Errorf("%d gateways answered a bad action, want 1", answered)
	}
	redistest.Eventually(t, "the bad action to be reported", func() bool { return strings.Contains(<-gateways[0].events, "a bad action") })
	late := join(t, s, "late", new(gateway))
	meet(t, append(all, late))
	if acted, _ := late.config.Local.(*gateway).done(); len(acted) > 0 {
		t.Errorf("a new gateway performed %q, want nothing", acted)
	}
}

// TestAPurgeWaitsForRedis checks that each gateway performs a purge once, even if Redis fails, and
// that an unblock does not wait.
func TestAPurgeWaitsForRedis(t *testing.T) {
	t.Parallel()
	s, all, gateways := three(t)
	all[0].Tell(t.Context(), Purge, "before", 1)
	s.Kill()
	redistest.Eventually(t, "the link to be down", func() bool { return !all[0].link.State().Up })
	for range 2 {
		if r := all[0].Tell(t.Context(), Purge, "queued", 1); !r.Pending || r.NotDelivered {
			t.Errorf("a purge without redis: %+v", r)
		}
	}
	if r := all[0].Tell(t.Context(), Unblock, "site", 1); r.Pending || !r.NotDelivered {
		t.Errorf("an unblock without redis: %+v", r)
	}
	s.Start()
	for _, g := range gateways[1:] {
		redistest.Eventually(t, "all gateways to perform the purge", func() bool { acted, _ := g.done(); return slices.Contains(acted, "purge queued") })
	}
	all[0].Tell(t.Context(), Purge, "after", 1)
	want := []string{"purge before", "purge queued", "purge after"}
	for _, g := range gateways[1:] {
		if acted, _ := g.done(); !slices.Equal(acted, want) {
			t.Errorf("it did %q, want %q", acted, want)
		}
	}
	if acted, _ := gateways[0].done(); len(acted) > 0 {
		t.Errorf("the gateway that got the purge performed it again: %q", acted)
	}
}

// TestNoActionIsDoneTwice checks that no action is performed twice if a call whose answer was lost
// is repeated, or if a failover loses the last actions.
func TestNoActionIsDoneTwice(t *testing.T) {
	t.Parallel()
	s, all, gateways := three(t)
	for _, value := range []string{"one", "two"} {
		all[0].Tell(t.Context(), Purge, value, 1)
	}
	again := Action{ID: "again", From: "x", Kind: Purge, Value: "again"}
	for range 2 {
		if _, err := all[0].send(t.Context(), all[0].link.Client(), write{Actions: []string{text(again)}}); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, "all actions to be read", func() bool {
		return strings.Contains(s.Say("XREVRANGE {crawlgate}:fleet:actions + - COUNT 1"), gateways[1].LastAction()+"\r\n")
	})
	s.Say("XDEL {crawlgate}:fleet:actions " + gateways[1].LastAction())
	redistest.Eventually(t, "the gateway to notice the lost actions", func() bool { _, lost := gateways[1].done(); return lost == 1 })
	all[0].Tell(t.Context(), Purge, "three", 1)
	want := []string{"purge one", "purge two", "purge again", "purge three"}
	if acted, _ := gateways[1].done(); !slices.Equal(acted, want) {
		t.Errorf("it did %q, want %q", acted, want)
	}
}

func TestTwoOfOneNameAreSaid(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := []*Fleet{join(t, s, "same", new(gateway)), join(t, s, "same", new(gateway))}
	meet(t, all)
	redistest.Eventually(t, "both gateways to report a shared name", func() bool {
		list, _ := all[0].Gateways(t.Context())
		return len(list) == 2 && list[0].NameTwice && list[1].NameTwice
	})
	if err := all[1].Close(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, "one gateway to be left", func() bool {
		list, _ := all[0].Gateways(t.Context())
		return len(list) == 1 && !list[0].NameTwice
	})
}

// TestGarbageInRedis checks that a malformed order is reported and left alone, and that everything
// else works.
func TestGarbageInRedis(t *testing.T) {
	t.Parallel()
	s, all, gateways := three(t)
	s.Say("HSET {crawlgate}:fleet:orders bad nonsense")
	s.Say("HSET {crawlgate}:fleet:acks bad nonsense")
	s.Say("ZADD {crawlgate}:fleet:gateways 9e15 bad")
	s.Say("XADD {crawlgate}:fleet:actions * action nonsense")
	if answered, n, _ := give(t, all[0], gateways[0], "a").Counts(); answered != 3 || n != 3 {
		t.Errorf("%d of %d gateways answered, want 3 of 3", answered, n)
	}
	agree(t, gateways, "a")
	if answered, _, _ := all[0].Tell(t.Context(), Purge, "x", 1).Counts(); answered != 3 {
		t.Errorf("%d gateways performed the action, want 3", answered)
	}
	said := map[string]bool{}
	for len(said) < 3 {
		why := <-gateways[1].events
		for _, what := range []string{`order "bad"`, "says of itself", "action "} {
			if strings.Contains(why, what) {
				said[what] = true
			}
		}
	}
}

// TestManyOrders fills an empty Redis from two gateways with 3,000 orders each.
func TestManyOrders(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	a, b := new(gateway), new(gateway)
	const each = 3000
	for i, g := range []*gateway{a, b} {
		var all enforce.StopSet
		for n := range each {
			id := fmt.Sprintf("%d-%d", i, n)
			all.Held = append(all.Held, enforce.Stop{ID: id, Scope: enforce.StopHost, Value: id + ".example", At: time.Now()})
		}
		g.tb = t
		g.Merge(all)
	}
	join(t, s, "a", a)
	join(t, s, "b", b)
	redistest.Eventually(t, "both gateways to hold all orders", func() bool { return len(a.stops.List()) == 2*each && len(b.stops.List()) == 2*each })
	redistest.Eventually(t, "redis to have all orders", func() bool { return s.Say("HLEN {crawlgate}:fleet:orders") == ":6000\r\n" })
}

// TestRedisUser checks that the rights that docs/fleet.md gives to a Redis user suffice for
// everything that a gateway does.
func TestRedisUser(t *testing.T) {
	t.Parallel()
	line := testdocs.Line(t, "fleet.md", "ACL SETUSER fleet ")
	s := redistest.Start(t)
	if said := s.Say("ACL SETUSER fleet " + strings.ReplaceAll(line, "{acme}", "{crawlgate}")); said != "+OK\r\n" {
		t.Fatal(said)
	}
	s.Say("ACL SETUSER default off")
	var all []*Fleet
	gateways := []*gateway{new(gateway), new(gateway)}
	for i, g := range gateways {
		g.tb, g.events = t, make(chan string, 100)
		l := linkTo(t, strings.Replace(s.URL(), "redis://", "redis://fleet:PASSWORD@", 1))
		t.Cleanup(l.Watch(func(s link.State, _ bool) {
			if s.Why != nil {
				t.Error(s.Why)
			}
		}))
		f := New(Config{Link: l, Local: g, Failed: func(err error) { t.Error(err) }}, Self{Name: fmt.Sprint("gw", i)}, 2)
		t.Cleanup(func() { _ = f.Close() })
		all = append(all, f)
	}
	meet(t, all)
	give(t, all[0], gateways[0], "a")
	lift(t, all[1], gateways[1], "a")
	if answered, n, _ := give(t, all[0], gateways[0], "b").Counts(); answered != 2 || n != 2 {
		t.Errorf("an order: %d of %d gateways answered, want 2 of 2", answered, n)
	}
	if answered, n, _ := all[1].Tell(t.Context(), Purge, "x", 0).Counts(); answered != 2 || n != 2 {
		t.Errorf("a purge: %d of %d gateways answered, want 2 of 2", answered, n)
	}
	quick := 0 // polling would take a quarter of a second on average
	for i := range 20 {
		began := time.Now()
		if give(t, all[0], gateways[0], fmt.Sprint("m", i)); time.Since(began) < 100*time.Millisecond {
			quick++
		}
	}
	if quick < 10 {
		t.Errorf("%d of 20 orders arrived at once, want at least 10: messages may be lost", quick)
	}
}
