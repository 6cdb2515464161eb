package budget

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// memory is a pool whose answers take time and may be lost, and which notifies the keepers like
// Redis.
type memory struct {
	mu       sync.Mutex
	drawn    map[string]int64
	keepers  []*Keeper
	latency  func() time.Duration
	fails    func() bool
	patience time.Duration
	away     atomic.Bool // whether it is unreachable
	full     bool        // whether it has no room for another counter
	calls    int
}

var errLost = errors.New("lost")

func newMemory() *memory {
	return &memory{
		drawn: map[string]int64{}, patience: 500 * time.Millisecond,
		latency: func() time.Duration { return time.Millisecond }, fails: func() bool { return false },
	}
}

func (p *memory) Gateways() int           { return len(p.keepers) }
func (p *memory) Patience() time.Duration { return p.patience }

func (p *memory) Draw(_ context.Context, a Ask) (Grant, error) {
	time.Sleep(p.latency())
	if p.away.Load() {
		return Grant{}, ErrAway
	}
	if p.fails() {
		return Grant{}, errLost
	}
	if p.full {
		return Grant{Granted: min(a.Want, 1) * a.Limit, Uncounted: true}, nil
	}
	p.mu.Lock()
	p.calls++
	key := a.Agent + " " + a.Day + " " + a.Name
	before := p.drawn[key]
	drawn, answer := a.Apply(before)
	p.drawn[key] = drawn
	p.mu.Unlock()
	for _, k := range p.keepers {
		go func() {
			time.Sleep(p.latency())
			if a.Want > 0 && answer.Granted == 0 && a.Tell {
				k.Needed(a.Agent, a.Name)
			} else if a.Settle < 0 && before >= a.Limit && drawn < a.Limit {
				k.Returned(a.Agent, a.Name)
			}
		}()
	}
	time.Sleep(p.latency())
	return answer, nil
}

// gateways returns n gateways with one pool.
func (p *memory) gateways(n int) []*Keeper {
	for range n {
		p.keepers = append(p.keepers, New(p))
	}
	return p.keepers
}

func (p *memory) close() {
	for _, k := range p.keepers {
		k.Close()
	}
	time.Sleep(time.Second) // until the other gateways have the messages
}

func limits(tb testing.TB, c Config) *Allowance {
	tb.Helper()
	l, err := c.Allowance()
	if err != nil {
		tb.Fatal(err)
	}
	return l
}

// TestConfig checks that valid budgets are read, and that errors name the fault.
func TestConfig(t *testing.T) {
	t.Parallel()
	l := limits(t, Config{Requests: "50000/day", Bytes: "20GiB/day", PerHost: "2000/day", Zone: "Europe/Berlin"})
	if l.Requests != 50000 || l.Bytes != 20<<30 || l.PerHost != 2000 || l.Zone.String() != "Europe/Berlin" {
		t.Errorf("limits = %+v", l)
	}
	for _, c := range []Config{
		{},
		{Zone: "UTC"},
		{Requests: "50000"},
		{Requests: "0/day"},
		{Requests: "-1/day"},
		{Requests: "5/hour"},
		{PerHost: "x/day"},
		{Bytes: "20/week"},
		{Bytes: "9EB/day"},
		{Requests: "5/day", Zone: "Nowhere"},
		{Requests: "5/day", Zone: "Local"},
	} {
		if l, err := c.Allowance(); err == nil {
			t.Errorf("%+v: %+v, want an error", c, l)
		}
	}
}

// TestDay checks that a day ends at the next midnight of its zone, even if the clocks change on
// that day or at midnight.
func TestDay(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ zone, now, day, ends string }{
		{"UTC", "2026-11-27T23:59:59.5Z", "2026-11-27", "2026-11-28T00:00:00Z"},
		{"UTC", "2026-11-28T00:00:00Z", "2026-11-28", "2026-11-29T00:00:00Z"},
		{"Europe/Berlin", "2026-03-28T23:30:00Z", "2026-03-29", "2026-03-29T22:00:00Z"}, // 23 hours
		{"Europe/Berlin", "2026-10-24T22:30:00Z", "2026-10-25", "2026-10-25T23:00:00Z"}, // 25 hours
		{"America/New_York", "2026-03-08T12:00:00Z", "2026-03-08", "2026-03-09T04:00:00Z"},
		{"America/New_York", "2026-11-01T04:00:00Z", "2026-11-01", "2026-11-02T05:00:00Z"},
		{"Asia/Kathmandu", "2026-11-27T00:00:00Z", "2026-11-27", "2026-11-27T18:15:00Z"},
		{"Asia/Beirut", "2026-03-28T12:00:00Z", "2026-03-28", "2026-03-28T22:00:00Z"},       // there is no 0:00
		{"Asia/Beirut", "2026-10-24T20:30:00Z", "2026-10-24", "2026-10-24T22:00:00Z"},       // 23:00 comes twice
		{"Asia/Beirut", "2026-10-24T21:30:00Z", "2026-10-24", "2026-10-24T22:00:00Z"},       // 23:00 for the second time
		{"America/Havana", "2026-10-31T12:00:00Z", "2026-10-31", "2026-11-01T04:00:00Z"},    // 0:00 comes twice
		{"America/Havana", "2026-11-01T04:30:00Z", "2026-11-01", "2026-11-02T05:00:00Z"},    // after the first
		{"Pacific/Apia", "2011-12-29T12:00:00-10:00", "2011-12-29", "2011-12-30T10:00:00Z"}, // no 30th
	} {
		zone, err := time.LoadLocation(tt.zone)
		if err != nil {
			t.Fatal(err)
		}
		now, _ := time.Parse(time.RFC3339, tt.now)
		if d := dayAt(now, zone); d.name != tt.day || d.ends.UTC().Format(time.RFC3339) != tt.ends {
			t.Errorf("%s at %s: %s until %s, want %s until %s", tt.zone, tt.now, d.name, d.ends.UTC().Format(time.RFC3339), tt.day, tt.ends)
		}
	}
}

// TestMidnight checks that a spent budget refuses requests until exactly midnight and that a new
// one starts then, also on the two days on which the clocks change.
func TestMidnight(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		now  string
		wait time.Duration
	}{{"2026-03-29T00:00:00+01:00", 23 * time.Hour}, {"2026-10-25T00:00:00+02:00", 25 * time.Hour}, {"2026-11-27T00:00:00+01:00", 24 * time.Hour}} {
		synctest.Test(t, func(t *testing.T) {
			at, _ := time.Parse(time.RFC3339, tt.now)
			time.Sleep(time.Until(at))
			p := newMemory()
			k := p.gateways(1)[0]
			defer p.close()
			l := limits(t, Config{Requests: "3/day", Zone: "Europe/Berlin"})
			for i := range 2 {
				for n := range int64(3) {
					if r, err := k.Take(t.Context(), "a", l, "h"); err != nil || !r.Limited || r.Left != 2-n {
						t.Fatal(r.Left, err)
					}
				}
				_, err := k.Take(t.Context(), "a", l, "h")
				spent, ok := errors.AsType[*SpentError](err)
				midnight := at.Add(tt.wait)
				if i > 0 {
					break
				}
				if !ok || !time.Now().Add(spent.Wait).Round(time.Second).Equal(midnight) || spent.What != Requests {
					t.Fatal(err, spent.Wait, time.Until(midnight))
				}
				time.Sleep(time.Until(midnight) - time.Nanosecond)
				if _, err := k.Take(t.Context(), "a", l, "h"); err == nil {
					t.Fatal("a request passed before midnight, want it refused")
				}
				time.Sleep(time.Nanosecond)
			}
		})
	}
}

// TestExactlyAll checks that the clients of two gateways get the whole budget and no more, with few
// calls to the pool.
func TestExactlyAll(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{1, 7, 1000, 50_000} {
		synctest.Test(t, func(t *testing.T) {
			p := newMemory()
			gateways := p.gateways(2)
			l := limits(t, Config{Requests: fmt.Sprint(limit, "/day")})
			var passed, refused atomicInt
			var clients sync.WaitGroup
			for i := range 40 {
				clients.Go(func() {
					for {
						if _, err := gateways[i%2].Take(t.Context(), "a", l, "h"); err != nil {
							refused.add(1)
							return
						}
						passed.add(1)
						time.Sleep(time.Duration(i) * time.Millisecond)
					}
				})
			}
			clients.Wait()
			if passed.get() != limit || refused.get() != 40 {
				t.Errorf("limit %d: %d passed and %d were refused, want all of the limit and 40", limit, passed.get(), refused.get())
			}
			t.Logf("limit %d: %d calls of the pool, %.0f for 1,000 requests", limit, p.calls, float64(p.calls)*1000/float64(limit))
			p.close()
		})
	}
}

// TestLastRequests checks that another gateway can use at once what one gateway holds.
func TestLastRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		gateways := p.gateways(2)
		defer p.close()
		l := limits(t, Config{Requests: "1000/day"})
		if _, err := gateways[0].Take(t.Context(), "a", l, "h"); err != nil { // the gateway holds the rest of a slice
			t.Fatal(err)
		}
		for n := range 999 {
			if _, err := gateways[1].Take(t.Context(), "a", l, "h"); err != nil {
				t.Fatalf("request %d: %v", n, err)
			}
		}
		for _, k := range gateways {
			if _, err := k.Take(t.Context(), "a", l, "h"); err == nil {
				t.Fatal("a request beyond the limit passed")
			}
		}
	})
}

// TestRandomSchedule checks that no more is granted than the limit, whatever the order of events
// and whichever calls to the pool fail. If every gateway has returned its rest and no call has
// failed, all of it is available.
func TestRandomSchedule(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 34))
			var mu sync.Mutex
			roll := func(n int) int { mu.Lock(); defer mu.Unlock(); return random.IntN(n) }
			p := newMemory()
			p.latency = func() time.Duration { return time.Duration(roll(20_000)) * time.Microsecond }
			failing := seed%3 == 0
			p.fails = func() bool { return failing && roll(20) == 0 }
			gateways := p.gateways(1 + roll(4))
			limit := int64(1 + roll(400))
			l := limits(t, Config{Requests: fmt.Sprint(limit, "/day"), PerHost: fmt.Sprint(1+roll(200), "/day"), Bytes: "1MB/day"})
			sent := map[string]*atomicInt{"": {}, "h0": {}, "h1": {}, "h2": {}}
			var clients sync.WaitGroup
			for range 1 + roll(30) {
				clients.Go(func() {
					for range roll(60) {
						k, host := gateways[roll(len(gateways))], fmt.Sprint("h", roll(3))
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(roll(2000))*time.Millisecond)
						r, err := k.Take(ctx, "a", l, host)
						cancel()
						time.Sleep(time.Duration(roll(3000)) * time.Millisecond)
						if err == nil && roll(4) == 0 {
							r.Back()
						} else if err == nil {
							sent[""].add(1)
							sent[host].add(1)
							k.Count("a", l, int64(roll(2000)))
						}
					}
				})
			}
			clients.Wait()
			all := sent[""].get()
			if all > limit {
				t.Fatalf("seed %d: %d requests passed, want at most %d", seed, all, limit)
			}
			p.close()
			day := " " + dayAt(time.Now(), time.UTC).name + " "
			for host, n := range sent {
				name, most := Requests, limit
				if host != "" {
					name, most = hostPrefix+host, l.PerHost
				}
				drawn := p.drawn["a"+day+name]
				if n.get() > most || drawn < n.get() || drawn > most || !failing && drawn != n.get() {
					t.Errorf("seed %d: %s: %d sent with a limit of %d, and %d drawn in the end", seed, name, n.get(), most, drawn)
				}
			}
		})
	}
}

// TestChangedLimits checks that a limit that is raised during the day permits the difference, and
// that one that is lowered refuses requests once that much is spent.
func TestChangedLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		k := p.gateways(1)[0]
		defer p.close()
		count := func(l *Allowance) (n int) {
			for {
				if _, err := k.Take(t.Context(), "a", l, "h"); err != nil {
					return n
				}
				n++
			}
		}
		for _, tt := range []struct {
			limit string
			want  int
		}{{"1000/day", 1000}, {"2000/day", 1000}, {"1500/day", 0}, {"2001/day", 1}} {
			if n := count(limits(t, Config{Requests: tt.limit})); n != tt.want {
				t.Errorf("%s: %d passed, want %d", tt.limit, n, tt.want)
			}
		}
		l := limits(t, Config{Requests: "3000/day"})
		if _, err := k.Take(t.Context(), "a", l, "h"); err != nil {
			t.Error(err)
		}
		if n := count(limits(t, Config{Requests: "2002/day"})); n != 0 {
			t.Errorf("%d requests passed after the limit was lowered to the number already spent, want 0", n)
		}
	})
}

// TestTwoSites checks that equal blocks of one agent share their slices. If one has another zone or
// lacks a limit, as happens during a reload, nothing is lost.
func TestTwoSites(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		k := p.gateways(1)[0]
		berlin := Config{Requests: "1000/day", PerHost: "1000/day", Zone: "Europe/Berlin"}
		first := limits(t, berlin)
		take := func(l *Allowance) {
			if _, err := k.Take(t.Context(), "a", l, "h"); err != nil {
				t.Fatal(err)
			}
		}
		for range 50 {
			take(first)
			take(limits(t, berlin))
		}
		other := limits(t, Config{Requests: "1000/day", Zone: "Europe/Paris"})
		k.Count("a", other, 10)
		if s := k.Standing("a", other, ""); k.accounts["a"].limits != first || s.RequestsLeft != 900 {
			t.Errorf("Standing = %+v with limits %+v, want 900 requests left of the first limits", s, k.accounts["a"].limits)
		}
		for range 50 {
			take(other)
			take(first)
		}
		p.close()
		if n, host := p.drawn["a 2000-01-01 requests"], p.drawn["a 2000-01-01 host h"]; n != 200 || host != 150 {
			t.Errorf("%d drawn for 200 requests, and %d for 150 requests with a limit per host", n, host)
		}
	})
}

// TestRaisedMeanwhile checks that an answer to a call from before the limit was raised does not
// spend the rest.
func TestRaisedMeanwhile(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		p.patience = 0
		k := p.gateways(1)[0]
		defer p.close()
		l := limits(t, Config{Requests: "100/day"})
		for range 100 {
			if _, err := k.Take(t.Context(), "a", l, "h"); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		go k.Standing("a", l, "h") // calls the pool
		time.Sleep(1500 * time.Microsecond)
		if _, err := k.Take(t.Context(), "a", limits(t, Config{Requests: "200/day"}), "h"); err != nil {
			t.Error(err)
		}
	})
}

// TestIdleAway checks that a slice that is idle while the pool is unreachable is returned later.
func TestIdleAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		k := p.gateways(1)[0]
		l := limits(t, Config{Requests: "1000/day", PerHost: "1000/day"})
		if _, err := k.Take(t.Context(), "a", l, "h"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		p.away.Store(true)
		time.Sleep(5 * idleFor)
		p.away.Store(false)
		time.Sleep(2 * idleFor)
		p.mu.Lock()
		for name, n := range p.drawn {
			if n != 1 {
				t.Errorf("%s: %d drawn for one request, want 1", name, n)
			}
		}
		p.mu.Unlock()
		p.close()
	})
}

// TestIdleUncounted checks that requests that the pool has not counted are not forgotten while the
// budget is idle.
func TestIdleUncounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		p.full = true
		k := p.gateways(1)[0]
		defer p.close()
		l := limits(t, Config{PerHost: "6/day"})
		for range 2 {
			for range 3 {
				if _, err := k.Take(t.Context(), "a", l, "h"); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(3 * idleFor)
		}
		if _, err := k.Take(t.Context(), "a", l, "h"); err == nil {
			t.Error("a request beyond the limit passed")
		}
	})
}

// TestPoolAway checks that a gateway without its pool uses up its slice, then refuses requests and
// tells clients to retry soon.
func TestPoolAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		k := p.gateways(1)[0]
		defer p.close()
		l := limits(t, Config{Requests: "1000/day"})
		if _, err := k.Take(t.Context(), "a", l, "h"); err != nil {
			t.Fatal(err)
		}
		p.fails = func() bool { return true }
		n := 0
		var err error
		for ; err == nil; n++ {
			_, err = k.Take(t.Context(), "a", l, "h")
		}
		spent, ok := errors.AsType[*SpentError](err)
		if !ok || spent.Wait != retryAfter || !errors.Is(err, errLost) || n > 11 || n < 5 {
			t.Error(n, err)
		}
		p.fails = func() bool { return false }
		if _, err := k.Take(t.Context(), "a", l, "h"); err != nil {
			t.Error(err)
		}
	})
}

// TestBytes checks that bytes are counted after they have passed, and that nothing passes
// afterwards until they are paid for.
func TestBytes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		gateways := p.gateways(2)
		defer p.close()
		l := limits(t, Config{Bytes: "1MB/day"})
		sum := 0
		for ; ; sum += 30_000 {
			if err := gateways[sum/30_000%2].Pass(t.Context(), "a", l, 30_000); err != nil {
				if spent, ok := errors.AsType[*SpentError](err); !ok || spent.What != Bytes {
					t.Error(err)
				}
				break
			}
		}
		if sum < 900_000 || sum > 1_000_000 {
			t.Errorf("%d bytes passed, want 900,000 to 1,000,000", sum)
		}
		for _, k := range gateways {
			if _, err := k.Take(t.Context(), "a", l, "h"); err == nil {
				t.Error("a request passed although no bytes are left")
			}
		}
	})
}

// TestDebt checks that the pool soon learns of all bytes, also of bytes that pass during a draw.
func TestDebt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		k := p.gateways(1)[0]
		l := limits(t, Config{Bytes: "5MiB/day"})
		for i := range 48 {
			if i == 1 {
				time.Sleep(p.latency() / 2) // the first draw is on its way
			}
			k.Count("acme", l, 64<<10)
		}
		time.Sleep(time.Second)
		p.mu.Lock()
		for _, n := range p.drawn {
			if n < 3<<20 || n > 3<<20+2*byteSlice {
				t.Errorf("the pool knows of %d bytes", n)
			}
		}
		p.mu.Unlock()
		p.close()
	})
}

// TestIdle checks that unused slices, also those for hosts, are returned after some time.
func TestIdle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newMemory()
		k := p.gateways(1)[0]
		l := limits(t, Config{Requests: "100000/day", PerHost: "1000/day"})
		for i := range maxHosts + 10 {
			if _, err := k.Take(t.Context(), "a", l, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		hosts := func() int {
			k.mu.Lock()
			defer k.mu.Unlock()
			return len(k.accounts["a"].hosts)
		}
		if n := hosts(); n != maxHosts {
			t.Errorf("%d hosts are kept, want maxHosts", n)
		}
		time.Sleep(3 * idleFor)
		synctest.Wait()
		if n := hosts(); n != 0 {
			t.Errorf("%d hosts are kept after they were idle, want 0", n)
		}
		total := int64(0)
		p.mu.Lock()
		for _, n := range p.drawn {
			total += n
		}
		p.mu.Unlock()
		if want := int64(2 * (maxHosts + 10)); total != want {
			t.Errorf("%d drawn, want %d", total, want)
		}
		time.Sleep(24 * time.Hour)
		k.mu.Lock()
		if len(k.accounts) != 0 {
			t.Error("the account of the day before is kept")
		}
		k.mu.Unlock()
		p.close()
	})
}

type atomicInt struct {
	mu sync.Mutex
	n  int64
}

func (a *atomicInt) add(n int64) { a.mu.Lock(); a.n += n; a.mu.Unlock() }
func (a *atomicInt) get() int64  { a.mu.Lock(); defer a.mu.Unlock(); return a.n }

// BenchmarkTake measures the cost of a budget per request.
func BenchmarkTake(b *testing.B) {
	p := newMemory()
	p.latency = func() time.Duration { return 0 }
	k := p.gateways(1)[0]
	defer k.Close()
	l := limits(b, Config{Requests: "1000000000000/day", Bytes: "1TB/day", PerHost: "1000000000000/day"})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := k.Take(b.Context(), "a", l, "example.com"); err != nil {
				b.Fatal(err)
			}
			k.Count("a", l, 100)
		}
	})
}
