package link

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

func TestMain(m *testing.M) {
	resolveHere()
	trustHere()
	// A rueidis client that is closed while it waits to refresh the topology sleeps on for up to a
	// second.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

func open(t *testing.T, c Config) *Link {
	t.Helper()
	l, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// TestNewRefusesABadConfiguration checks that New refuses bad URLs, with an error that does not
// contain the password.
func TestNewRefusesABadConfiguration(t *testing.T) {
	t.Parallel()
	for _, url := range []string{
		"", "://", "http://:secret@127.0.0.1:6379", "redis://:secret@127.0.0.1:bad port", "redis://user:secret@127.0.0.1/x", "redis://user:secret@[::1",
	} {
		if l, err := New(Config{URL: url}); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("New with URL %q = %v, %v", url, l, err)
		}
	}
}

// TestListenDoesNotWaitForAHeartbeat checks that a message that is published right after the start
// is received.
func TestListenDoesNotWaitForAHeartbeat(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := open(t, Config{URL: s.URL(), Heartbeat: time.Hour})
	heard := make(chan string, 2)
	ctx, done := t.Context(), make(chan struct{})
	go func() {
		defer close(done)
		l.Listen(ctx, "news", func(message string) { heard <- message })
	}()
	t.Cleanup(func() { <-done })
	redistest.Eventually(t, "the link to listen", func() bool { return s.Say("PUBLISH news hello") == ":1\r\n" })
	if first, got := <-heard, <-heard; first != "" || got != "hello" {
		t.Errorf("heard %q and %q, want to be told of the subscription and the message", first, got)
	}
}

// TestGatewaysAreCountedByWhatTheyShare checks that a gateway that shares only orders is not
// counted among those that share clocks, and vice versa. A gateway that leaves is no longer counted
// at once, not only after ten heartbeats.
func TestGatewaysAreCountedByWhatTheyShare(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	c := Config{URL: s.URL(), Heartbeat: time.Minute} // longer than the test
	both, orders, clocks, store := open(t, c), open(t, c), open(t, c), open(t, c)
	both.Announce(func() string { return "both" })
	orders.Announce(func() string { return "orders" })
	both.ShareClocks(1)
	clocks.ShareClocks(1)
	count := func(when string, fleet, sharing int) {
		t.Helper()
		for _, l := range []*Link{clocks, orders, store, both} {
			if err := l.Beat(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if got := both.State(); got.Gateways != fleet {
			t.Errorf("%s: %d gateways of the fleet, want %d", when, got.Gateways, fleet)
		}
		if n := strings.Count(s.Say("ZRANGE {crawlgate}:fleet:clocks 0 -1"), "$"); n != sharing {
			t.Errorf("%s: %d share clocks, want %d", when, n, sharing)
		}
	}
	count("all gateways have begun", 2, 2)
	if got := both.State().Clocks; got != 2 {
		t.Errorf("%d share clocks, want 2", got)
	}
	if err := orders.Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	count("one gateway has left the fleet", 1, 2)
	clocks.ShareClocks(0)
	count("one gateway no longer shares clocks", 1, 1)
	if got := both.State().Clocks; got != 2 {
		t.Errorf("%d share clocks, want 2 for as long as Redis has just come back", got)
	}
	if notes := s.Say("HVALS {crawlgate}:fleet:acks"); !strings.Contains(notes, "both") || !strings.Contains(notes, "orders") {
		t.Errorf("redis has the notes %q, want those of both and orders", notes)
	}
}

// TestAwayIsToldOnceAndComesBackByItself checks that a failed call of any user marks Redis as down,
// once, until the next heartbeat that succeeds.
func TestAwayIsToldOnceAndComesBackByItself(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := open(t, Config{URL: s.URL(), Heartbeat: 20 * time.Millisecond})
	l.ShareClocks(4)
	changes := make(chan State, 100)
	end := l.Watch(func(s State, news bool) {
		if news {
			changes <- s
		}
	})
	next := func(up bool) State {
		t.Helper()
		s := <-changes
		if s.Up != up {
			t.Errorf("%+v, want up: %v", s, up)
		}
		return s
	}
	if up := next(true); up.Clocks != 4 || up.Why != nil || l.Now() == 0 {
		t.Errorf("%+v; want 4 for as long as others may not have come back", up)
	}
	failure := errors.New("no answer")
	l.Fail(failure)
	if back := next(true); !errors.Is(back.Why, failure) {
		t.Errorf("state = %+v, want the cause of the failure", back)
	}
	redistest.Eventually(t, "one gateway to be counted", func() bool { return l.State().Clocks == 1 })
	s.Kill()
	if away := next(false); away.Why == nil || away.Clocks != 1 {
		t.Errorf("%+v; want the last known number", away)
	}
	s.Start()
	if back := next(true); back.Clocks != 1 || len(changes) > 0 {
		t.Errorf("state = %+v and %d more changes, want one gateway with clocks and no change", back, len(changes))
	}
	end()
}

// TestClocksJoinAnOldLink checks that the clocks are counted correctly if the link was up for long
// before they are shared, while other gateways reload at about the same time.
func TestClocksJoinAnOldLink(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := open(t, Config{URL: s.URL(), Heartbeat: 50 * time.Millisecond})
	redistest.Eventually(t, "the link to be up for longer than a gateway counts as alive", func() bool {
		return l.State().Up && time.Since(l.State().Since) > l.aliveFor()
	})
	l.ShareClocks(4)
	if err := l.Beat(t.Context()); err != nil || l.State().Clocks != 4 {
		t.Errorf("%v, %+v; want the 4 that there are at least", err, l.State())
	}
	redistest.Eventually(t, "one gateway to be counted", func() bool { return l.State().Clocks == 1 })
}

// TestAnAttemptToConnectIsShared checks that while a server accepts connections and does not
// answer, users of the link share one attempt to connect.
func TestAnAttemptToConnectIsShared(t *testing.T) {
	t.Parallel()
	silent, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = silent.Close() })
	l := open(t, Config{URL: "redis://" + silent.Addr().String(), Heartbeat: time.Hour})
	first, err := silent.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = first.Close() })
	var beats sync.WaitGroup
	for range 4 {
		beats.Go(func() {
			if err := l.Beat(t.Context()); err == nil {
				t.Error("a heartbeat got an answer from a silent server")
			}
		})
	}
	beats.Wait()
	_ = silent.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Millisecond))
	if c, err := silent.Accept(); err == nil {
		_ = c.Close()
		t.Error("a second attempt to connect was made")
	}
}

// TestNobodyConnectsAfterClose checks that a closed link does not connect again: an unloaded
// configuration may still give an order.
func TestNobodyConnectsAfterClose(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Kill()
	l := open(t, Config{URL: s.URL()})
	l.Close()
	s.Start()
	if err := l.Beat(t.Context()); !errors.Is(err, errClosed) || l.Client() != nil {
		t.Errorf("after Close, Beat = %v and client = %v, want errClosed and nil", err, l.Client())
	}
}

// TestTurns checks that gateways that share clocks agree on their order, and that an outage and an
// empty Redis after it do not change the order.
func TestTurns(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	all := make([]*Link, 3)
	for i := range all {
		all[i] = open(t, Config{URL: s.URL(), Heartbeat: 400 * time.Millisecond})
		all[i].ShareClocks(1)
	}
	turns := func(of int) map[int]*Link {
		known := map[int]*Link{}
		for _, l := range all {
			turns := l.State().Turns
			if turns.Of == of {
				known[turns.Place] = l
			}
			if off := time.Duration(time.Now().UnixNano()) - turns.Time(); turns.Of > 0 && off.Abs() > time.Second {
				t.Errorf("the clock of the turns is off by %s", off)
			}
		}
		return known
	}
	redistest.Eventually(t, "all gateways to have a turn", func() bool { return len(turns(3)) == 3 })
	before := turns(3)
	if !before[0].State().Turns.Kept.IsZero() {
		t.Error("the order is kept although redis was never down")
	}
	s.Kill()
	redistest.Eventually(t, "all links to be down", func() bool { return !all[0].State().Up && !all[1].State().Up && !all[2].State().Up })
	s.Start()
	redistest.Eventually(t, "all links to be up", func() bool { return all[0].State().Up && all[1].State().Up && all[2].State().Up })
	if after := turns(3); after[0] != before[0] || after[1] != before[1] || after[2] != before[2] {
		t.Error("the order has changed")
	}
	for _, l := range all {
		if l.State().Turns.Kept.IsZero() {
			t.Error("the order is not kept although redis was down")
		}
	}
}

// TestPlacesAreToldSeldom checks that a gateway asks for its place only if the number of gateways
// has changed or after some time, and not while the order is kept: it is slow for Redis to find one
// among many.
func TestPlacesAreToldSeldom(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for _, tt := range []struct {
		turns   Turns
		sharing bool
		want    int
	}{
		{Turns{}, false, -1},
		{Turns{}, true, 0},
		{Turns{Of: 3, placed: now.Add(-4 * time.Second)}, true, 3},
		{Turns{Of: 3, placed: now.Add(-5 * time.Second)}, true, 0},
		{Turns{Of: 3, placed: now.Add(-time.Hour), Kept: now.Add(time.Second)}, true, -1},
	} {
		if got := tt.turns.known(tt.sharing, now, 5*time.Second); got != tt.want {
			t.Errorf("%+v, sharing %v: %d, want %d", tt.turns, tt.sharing, got, tt.want)
		}
	}
	s := redistest.Start(t)
	l := open(t, Config{URL: s.URL(), Heartbeat: time.Minute})
	if err := l.Beat(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, tt := range []struct {
		process, known string
		want           int64
	}{{"b", "0", 0}, {"a", "1", 0}, {"b", "1", 1}, {"b", "2", -1}, {"b", "0", 1}, {"b", "-1", -1}} {
		answer, err := heartbeatScript.Exec(t.Context(), l.Client(), []string{l.Key("gateways"), l.Key("acks"), l.Key("clocks")},
			[]string{tt.process, "", "false", "true", "3600000", "5000", tt.known}).AsIntSlice()
		if err != nil || answer[3] != tt.want {
			t.Errorf("heartbeat %d: %v, %v; want place %d", i, answer, err, tt.want)
		}
	}
}
