package pace

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"
)

// An instant is the time since the Pacer's epoch, which lies years before its start: the zero
// instant is long ago, whatever is added to it.
type instant = time.Duration

const (
	// longest bounds every duration from outside, so that sums stay far from overflow. No site's delay
	// and no operator's rate needs more than a year.
	longest = 365 * 24 * time.Hour
	// epochAge is how far before a Pacer's start its epoch lies: longer than any interval or delay, so
	// a clock never used is always ready.
	epochAge = 2 * longest
	// never is the time of something that only another event can cause.
	never = instant(1<<63 - 1)
)

func clip(d time.Duration) time.Duration { return min(max(d, 0), longest) }

// terms is a Limit in the form that the arithmetic needs: no value is negative.
type terms struct {
	interval  time.Duration
	tolerance time.Duration // how far the rate's timestamp may lie ahead: (burst-1) intervals
	gap       time.Duration
	places    int  // 0: no bound
	shared    bool // one place is left for another agent
	turns     bool // gateways take turns here while the shared clock is away
}

func (l Limit) terms() terms {
	t := terms{interval: clip(l.Interval), gap: clip(l.Delay), places: max(l.Concurrency, 0)}
	if l.Burst > 1 && t.interval > 0 {
		spare := min(int64(l.Burst-1), int64(longest/t.interval))
		t.tolerance = time.Duration(spare) * t.interval
	}
	return t
}

// unpaced reports whether the terms have neither a rate nor a gap.
func (t terms) unpaced() bool { return t.interval == 0 && t.gap == 0 }

// spacing is the least time between two requests. It is zero for a rate with a burst.
func (t terms) spacing() time.Duration {
	if t.tolerance > 0 {
		return t.gap
	}
	return max(t.gap, t.interval)
}

// cost is how much of the clock's time the request uses: the unit in which agents share a host. It
// is never zero, so agents alternate even if only the number of places limits them.
func (t terms) cost() time.Duration { return max(t.interval, t.gap, time.Millisecond) }

// gcra is the state of one clock: GCRA and the gap beside it. The zero value is a clock never used.
// It is pure: state and time in, state or time out.
//
// GCRA (ITU-T I.371; also redis_rate, throttled, boulder): tat is the theoretical arrival time of
// the next request if all came evenly. A request conforms when it comes no earlier than tat less
// the tolerance; it then moves tat on by its interval. One timestamp holds both rate and burst, and
// the time that is missing is the exact wait.
type gcra struct {
	tat  instant
	last instant       // when the last request went
	gap  time.Duration // the gap which that request demands after itself
}

// ready is the instant from which a request under t conforms. It may lie in the past.
func (g gcra) ready(t terms) instant { return max(g.tat-t.tolerance, g.last+max(g.gap, t.gap)) }

// readyAlone is ready for a request that may use no burst.
func (g gcra) readyAlone(t terms) instant {
	t.tolerance = 0
	return g.ready(t)
}

// take is the state after a request under t went at the given instant, which the caller has found
// to be ready.
func (g gcra) take(t terms, at instant) gcra {
	return gcra{tat: max(g.tat, at) + t.interval, last: at, gap: t.gap}
}

// withoutBurst is the state with no burst left at the given instant: the next request under t may
// go then, and the one after it an interval later.
func (g gcra) withoutBurst(t terms, at instant) gcra {
	g.tat = max(g.tat, at+t.tolerance)
	return g
}

// turn is when a gateway may send a request while the shared clock is unreachable. A round has a
// turn for each gateway. A turn lasts a slot plus the most that a request may be late, so two
// requests are a slot apart. Requests that take no turns have the zero turn.
type turn struct {
	at, since   instant // since is when the shared clock went away, or came back
	round, late time.Duration
	settled     time.Duration // after the shared clock is back, until nobody takes turns
}

// next is the first turn that is not over.
func (u turn) next(now instant) instant {
	if late := now - u.at - u.late; late > 0 && u.round > 0 {
		u.at += (late + u.round - 1) / u.round * u.round
	}
	return u.at
}

// clock is the state of one key. Its shard's lock guards it. A million clocks are normal, so the
// rare parts are behind pointers.
type clock struct {
	// reserved is the latest slot that a request took at the shared clock in place of an earlier one.
	// This state does not include it until the request goes.
	reserved instant
	key      string
	gcra     gcra
	backoff  *backoff // nil: the site never asked for a pause, or that is forgiven
	queue    *queue   // nil: no request waits, and no agent keeps its position
	inFlight int32    // requests in flight that are counted
	serial   uint32   // counts the requests that went
}

// ready is the instant from which a request under t may go, as far as time decides.
func (c *clock) ready(t terms) instant { return max(c.gcra.ready(t), c.blockedUntil()) }

// blockedUntil is the end of the block; without one, in the past.
func (c *clock) blockedUntil() instant {
	if c.backoff == nil {
		return 0
	}
	return c.backoff.until
}

// stateFor is the state for the next request. Right after a block it has no burst, because requests
// that piled up during the block must not burst upon the site. It also has no burst that may have
// been used before this process began.
func (c *clock) stateFor(t terms, at instant) gcra {
	switch {
	case c.backoff != nil && c.backoff.fresh:
		return c.gcra.withoutBurst(t, at)
	case c.serial == 0:
		return c.gcra.withoutBurst(t, c.gcra.last)
	}
	return c.gcra
}

// idle reports whether the clock says no more than a new one would, for requests whose delay is at
// most keep.
func (c *clock) idle(now instant, keep time.Duration) bool {
	return c.queue == nil && c.inFlight == 0 &&
		c.gcra.tat <= now && c.gcra.last+max(c.gcra.gap, keep) <= now &&
		(c.backoff == nil || c.backoff.forgotten(now))
}

// full reports whether no place in flight is left for the agent under t, under the shard's lock.
func (p *Pacer) full(s *shard, c *clock, t terms, agent string) bool {
	return t.places > 0 && (int(c.inFlight) >= t.places || p.hasMaxPlaces(s, c, t, agent))
}

// hasMaxPlaces reports whether the agent has as many places as one may have.
func (p *Pacer) hasMaxPlaces(s *shard, c *clock, t terms, agent string) bool {
	most := t.places - 1
	return t.shared && most > 0 && int(c.inFlight) >= most &&
		int(s.inFlight[inFlight{c, agent}]) >= most && !p.alone()
}

// inFlight names the requests of one agent in flight that a clock counts. Their number is kept in
// the clock's shard while there are any: most clocks have none.
type inFlight struct {
	clock *clock
	agent string
}

// charge books a request of the agent that goes now, under the shard's lock.
func (s *shard) charge(c *clock, t terms, agent string, now instant) charge {
	if t.places > 0 {
		c.inFlight++
	}
	if t.gap > 0 {
		s.keep(c)
	}
	if t.shared {
		if s.inFlight == nil {
			s.inFlight = make(map[inFlight]int32)
		}
		s.inFlight[inFlight{c, agent}]++
	}
	before := c.stateFor(t, now)
	if c.backoff != nil {
		c.backoff.fresh = false
	}
	c.gcra = before.take(t, now)
	c.serial++
	return charge{shard: s, clock: c, agent: agent, terms: t, before: before, at: now, serial: c.serial}
}

// release returns the place that a request under t took.
func (s *shard) release(c *clock, t terms, agent string) {
	if t.places == 0 {
		return
	}
	c.inFlight--
	if t.shared {
		of := inFlight{c, agent}
		if s.inFlight[of]--; s.inFlight[of] == 0 {
			delete(s.inFlight, of)
		}
	}
	s.elect(c)
	c.wakeNext()
}

// expire drops positions whose time is over, and an empty queue.
func (c *clock) expire(now instant) {
	if c.queue != nil {
		c.queue.expire(now)
		c.dropEmptyQueue()
	}
}

func (c *clock) dropEmptyQueue() {
	if q := c.queue; q.current == nil && len(q.flows) == 0 {
		c.queue = nil
	}
}

// wakeNext makes the first request look again.
func (c *clock) wakeNext() {
	if c.queue == nil {
		return
	}
	if w := c.queue.first(); w != nil {
		w.wakeUp()
	}
}

// elect determines which flows of the clock must let others go first, and so its head.
func (s *shard) elect(c *clock) {
	if c.queue == nil {
		return
	}
	for _, f := range c.queue.flows {
		f.held = false
		if len(f.waiters) > 0 {
			w := f.waiters[0]
			f.held = w.pacer.hasMaxPlaces(s, c, w.pacer.coordination().dividePlaces(w.terms), w.agent)
		}
	}
	c.queue.elect()
}

const shardCount = 64 // a power of two

// table holds the clocks, in shards with a lock each.
type table struct {
	seed   maphash.Seed
	keys   atomic.Int64
	delay  atomic.Int64 // the longest that was ever asked for
	next   int          // the shard that the sweep takes next
	shards [shardCount]shard
}

type shard struct {
	mu       sync.Mutex
	clocks   map[string]*clock
	swept    instant             // when it was full, and swept for that
	kept     map[*clock]struct{} // clocks that have a backoff, or had a gap
	floor    instant             // when an unknown key counts as last asked
	inFlight map[inFlight]int32
	_        [32]byte // keeps neighbouring locks on different cache lines
}

func (t *table) shard(key string) *shard {
	return &t.shards[maphash.String(t.seed, key)%shardCount]
}

// each calls f for each shard, under its lock.
func (t *table) each(f func(s *shard)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		f(s)
		s.mu.Unlock()
	}
}

// clock returns the key's clock under s.mu, making it unless the shard has as many as the limit.
func (t *table) clock(s *shard, key string, cfg *Config, now instant, limit int) *clock {
	if c := s.clocks[key]; c != nil {
		return c
	}
	if len(s.clocks) >= limit && now-s.swept >= sweepEvery {
		s.swept = now
		t.sweep(s, now, cfg.Idle)
	}
	if len(s.clocks) >= limit {
		return nil
	}
	if s.clocks == nil {
		s.clocks = make(map[string]*clock)
	}
	c := &clock{key: key, gcra: gcra{last: s.floor}}
	s.clocks[key] = c
	t.keys.Add(1)
	return c
}

const (
	// sweepEvery is the pause between two steps in the background. sweepRounds steps go once through
	// all keys. With a million keys, a step locks each of two shards for about 6 ms.
	sweepEvery  = time.Second
	sweepRounds = shardCount / 2
)

// keepSweeping starts the sweep when it does not run.
func (p *Pacer) keepSweeping() {
	if p.sweeping.Load() || !p.sweeping.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(sweepEvery, p.sweep)
}

// sweep is one step of the sweep. It runs as long as there are keys.
func (p *Pacer) sweep() {
	if p.table.sweepNext(p.config.Load(), p.now()) {
		time.AfterFunc(sweepEvery, p.sweep)
		return
	}
	p.sweeping.Store(false)
	if p.table.keys.Load() > 0 {
		p.keepSweeping() // a key came in between
	}
}

// remember notes the request's longest delay.
func (t *table) remember(r *Request) {
	delay := r.Delay
	for i := range r.Also {
		delay = max(delay, r.Also[i].Delay)
	}
	for known := t.delay.Load(); int64(clip(delay)) > known; known = t.delay.Load() {
		t.delay.CompareAndSwap(known, int64(clip(delay)))
	}
}

// sweepNext is one step in the background. It reports whether keys are left. It keeps a clock for
// as long as the longest delay, because an agent with that delay may still come and need the time
// of the clock's last request.
func (t *table) sweepNext(cfg *Config, now instant) bool {
	keep := max(cfg.Idle, time.Duration(t.delay.Load()))
	for range shardCount / sweepRounds {
		s := &t.shards[t.next]
		t.next = (t.next + 1) % shardCount
		s.mu.Lock()
		t.sweep(s, now, keep)
		s.mu.Unlock()
	}
	return t.keys.Load() > 0
}

// sweep drops the clocks of a shard that were idle for the given time. It moves the others to a new
// map, because a map never shrinks.
func (t *table) sweep(s *shard, now instant, keep time.Duration) {
	kept := make(map[string]*clock)
	for key, c := range s.clocks {
		c.expire(now)
		if c.idle(now, keep) {
			delete(s.kept, c)
			t.keys.Add(-1)
		} else {
			kept[key] = c
		}
	}
	s.clocks = kept
}
