package redisclock

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestClocksAreSpreadOverTheNodes checks clusters of 3 or 6 nodes with equal numbers of slots, for
// the default prefix and others.
func TestClocksAreSpreadOverTheNodes(t *testing.T) {
	t.Parallel()
	if got := redistest.Slot("{123456789}"); got != 12739 { // the Redis Cluster specification
		t.Fatalf("slot of 123456789 = %d, want 12739", got)
	}
	const hosts = 1_000_000
	var load [buckets]int
	for i := range hosts {
		load[bucketOf(fmt.Sprintf("www.host-%d.example", i))]++
	}
	for _, prefix := range []string{"crawlgate", "acme", "production"} {
		for _, nodes := range []int{3, 6} {
			k := &Clock{link: &link.Link{Prefix: prefix}}
			count := make([]int, nodes)
			for bucket, n := range load {
				count[redistest.Slot(k.eraKey(bucket))*nodes/redistest.Slots] += n
			}
			for node, n := range count {
				if n*nodes*10 > hosts*13 {
					t.Errorf("%s: node %d of %d has %d of %d hosts, want at most 1.3 times the mean", prefix, node, nodes, n, hosts)
				}
			}
			t.Logf("%s: %v", prefix, count)
		}
	}
}

// TestBucketsOfOneRequest checks that the clocks of a host and its site need one call.
func TestBucketsOfOneRequest(t *testing.T) {
	t.Parallel()
	for keys, want := range map[string]int{
		"www.example.co.uk":                                 1,
		"agent:a@b@www.example.co.uk www.example.co.uk":     1,
		"agent:a@b.example.de b.example.de site:example.de": 1,
		"192.0.2.1 site:192.0.2.1":                          1,
		"www.example.com site:example.com addr:192.0.2.1":   2,
		"agent:a@h.example.com addr:2001:db8::1":            2,
	} {
		var demands []pace.Demand
		for key := range strings.FieldsSeq(keys) {
			demands = append(demands, pace.Demand{Key: key})
		}
		if got := len(inBuckets(demands)); got != want {
			t.Errorf("%s: %d calls, want %d", keys, got, want)
		}
	}
}

// TestReserveInTwoBucketsGivesOneSlot checks that both clocks have the same slot, whichever is
// later, and that none is reserved if the narrow clock is not ready.
func TestReserveInTwoBucketsGivesOneSlot(t *testing.T) {
	t.Parallel()
	k := clockAt(t, redistest.Start(t))
	d := []pace.Demand{demand("h.example", time.Hour), demand("addr:192.0.2.1", time.Minute)}
	reserve(t, k, d[1])
	both := reserve(t, k, d...)
	if !about(both.Wait, 59500*time.Millisecond) || both.At.After(both.Until) {
		t.Errorf("%+v, want the slot of the address", both)
	}
	if r := reserve(t, k, d[0]); !about(r.Wait, time.Hour+59500*time.Millisecond) {
		t.Errorf("the next slot of the host is in %s, want an hour later", r.Wait)
	}
	if err := k.Release(both); err != nil {
		t.Fatal(err)
	}
	r, err := k.Reserve(t.Context(), d, ever)
	if err != nil || r.Outcome != pace.NotYet || !about(r.Wait, 2*time.Hour+59500*time.Millisecond) {
		t.Errorf("Reserve = %+v, %v; want NotYet until the host is ready", r, err)
	}
	if r, err := k.Reserve(t.Context(), d, time.Hour); err != nil || r.Outcome != pace.TooLate {
		t.Errorf("Reserve = %+v, %v; want too late", r, err)
	}
	if r := reserve(t, k, d[1]); !about(r.Wait, 59500*time.Millisecond) {
		t.Errorf("the next slot of the address is in %s: one was lost", r.Wait)
	}
}

// TestEra checks that after a loss of memory nothing is reserved for a second. Then each slot comes
// at least the gap, or the interval with a spent burst, after the loss. All other buckets record
// the loss at once, and all gateways are told.
func TestEra(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one, other := clockAt(t, s), clockAt(t, s)
	back := make(chan struct{}, 100)
	for _, k := range []*Clock{one, other} {
		k.Watch(func(string, time.Duration, int) {}, func() {
			select {
			case back <- struct{}{}:
			default:
			}
		})
	}
	for range 4 {
		<-back // each gateway's link is up and listens
	}
	burst := demand("b.example", time.Minute)
	burst.Tolerance = 4 * time.Minute
	gap := pace.Demand{Key: "g.example", Delay: time.Minute}
	reserve(t, one, burst)
	flushed := time.Now()
	s.Say("FLUSHALL")
	r, err := one.Reserve(t.Context(), []pace.Demand{gap}, ever)
	if err != nil || r.Outcome != pace.NotYet || r.Wait <= 0 || r.Wait > time.Second {
		t.Fatalf("Reserve = %+v, %v; want NotYet for a second", r, err)
	}
	<-back
	<-back // both are told
	redistest.Eventually(t, "all are noted", func() bool {
		return s.Say(`EVAL "return #redis.call('KEYS', '*}:era')" 0`) == ":1024\r\n"
	})
	for _, want := range []struct {
		demand pace.Demand
		least  time.Duration
	}{{gap, time.Minute}, {gap, 2 * time.Minute}, {burst, time.Minute}, {burst, 2 * time.Minute}} {
		var r pace.Reservation
		redistest.Eventually(t, "the second is over", func() bool {
			var err error
			r, err = other.Reserve(t.Context(), []pace.Demand{want.demand}, ever)
			return err == nil && r.Outcome == pace.Reserved
		})
		if r.Wait < want.least-time.Since(flushed)+time.Second || r.Wait > want.least+time.Second {
			t.Errorf("the slot of %s is in %s, want at least %s", want.demand.Key, r.Wait, want.least)
		}
	}
}

// TestRedisUser checks that the rights in docs/fleet.md are enough for the user of the clocks, and
// that this user cannot lift an order.
func TestRedisUser(t *testing.T) {
	t.Parallel()
	line := testdocs.Line(t, "fleet.md", "ACL SETUSER clocks ")
	s := redistest.Start(t)
	if got := s.Say("ACL SETUSER clocks " + strings.NewReplacer("{acme", "{crawlgate", "&acme:", "&crawlgate:").Replace(line)); got != "+OK\r\n" {
		t.Fatal(got)
	}
	s.Remember(1)
	s.Say("ACL SETUSER default nopass -@all +acl|log ~* &* +ping +hello +client")
	k := openClock(t, link.Config{URL: strings.Replace(s.URL(), "//", "//clocks:PASSWORD@", 1)})
	k.Watch(func(string, time.Duration, int) {}, func() {})
	blocked := make(chan string, 1)
	other := openClock(t, link.Config{URL: strings.Replace(s.URL(), "//", "//clocks:PASSWORD@", 1)})
	other.Watch(func(key string, _ time.Duration, _ int) {
		select {
		case blocked <- key:
		default:
		}
	}, func() {})
	released, done := demand("h.example", time.Minute), demand("i.example", time.Minute)
	released.Places, done.Places = 1, 1
	if err := k.Release(reserve(t, k, released)); err != nil {
		t.Error(err)
	}
	ended := make(chan struct{})
	k.Done(reserve(t, k, done), func() { close(ended) })
	<-ended
	if _, got := outcome(t, k, done); got != pace.Reserved {
		t.Errorf("outcome %v after the place was given back", got)
	}
	if _, got := outcome(t, k, done); got != pace.Full {
		t.Errorf("outcome %v with the place taken, want full", got)
	}
	redistest.Eventually(t, "the gateway listens", func() bool {
		if err := k.Block("g.example", time.Minute, 1); err != nil {
			t.Error(err)
		}
		return len(blocked) > 0
	})
	if found, err := k.Unblock("g.example"); !found || err != nil {
		t.Errorf("unblock: %v, %v", found, err)
	}
	c := k.link.Client()
	if err := c.Do(t.Context(), c.B().Hset().Key("{crawlgate}:fleet:lifted").FieldValue().FieldValue("a", "{}").Build()).Error(); err == nil {
		t.Error("the user of the clocks can lift orders")
	}
	if got := s.Say("ACL LOG 20"); strings.Count(got, "NOPERM")+strings.Count(got, "reason") != 1 {
		t.Errorf("Redis refused other commands: %s", got)
	}
}

// TestEraWithoutTheRightToAsk checks that a user that may not ask Redis for its run still notices
// an emptied Redis, and disturbs no other clock.
func TestEraWithoutTheRightToAsk(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	full := clockAt(t, s)
	if got := s.Say("ACL SETUSER poor on >secret ~* &* +@all -info"); got != "+OK\r\n" {
		t.Fatal(got)
	}
	poor := openClock(t, link.Config{URL: strings.Replace(s.URL(), "//", "//poor:secret@", 1)})
	for i, k := range []*Clock{poor, full, poor, full} {
		if r := reserve(t, k, demand(fmt.Sprintf("h%d.example", i), 0)); r.Wait != 0 {
			t.Errorf("call %d: the slot is in %s", i, r.Wait)
		}
		reserve(t, k, demand("h.example", 0))
	}
	s.Say("FLUSHALL")
	r, err := poor.Reserve(t.Context(), []pace.Demand{demand("h.example", 0)}, ever)
	if err != nil || r.Outcome != pace.NotYet {
		t.Errorf("Reserve = %+v, %v; want NotYet after the loss", r, err)
	}
}

// TestAClockMoves checks that a clock moves to another node with its slot, and that the next
// reservation is an interval after the last one. While the slot moves, Redis refuses the call,
// because its keys are on both sides.
func TestAClockMoves(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t)
	k := openClock(t, link.Config{URL: c.URL()})
	const interval = 10 * time.Second
	slot := func() time.Duration {
		var r pace.Reservation
		redistest.Eventually(t, "there is a slot", func() (ok bool) {
			var err error
			r, err = k.Reserve(t.Context(), []pace.Demand{demand("h.example", interval)}, ever)
			return err == nil && r.Outcome == pace.Reserved // a new Redis reserves nothing in its first second
		})
		return at(t, r)
	}
	first := slot()
	c.Move(k.clockKey("h.example"), func() {
		if r, err := k.Reserve(t.Context(), []pace.Demand{demand("h.example", interval), demand("new.h.example", interval)}, ever); err == nil {
			t.Errorf("Reserve = %+v while the clock moves, want an error", r)
		}
	})
	if second := slot(); !about(second-first, interval) {
		t.Errorf("the slots are %v apart, want %v", second-first, interval)
	}
}
