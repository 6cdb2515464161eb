package pace

import "time"

// Limit is what one clock demands of a request. Limits come with each request,
// not with the key: the Crawl-delay differs from agent to agent, and a reload of
// the configuration changes them without touching the clocks.
type Limit struct {
	// Key names the clock. See [HostKey], [SiteKey], [AddressKey] and [AgentKey].
	Key string
	// Interval is the operator's rate as the time between two requests
	// ([Rate.Interval]). Zero or less: no rate.
	Interval time.Duration
	// Burst is how many requests may go at once after a quiet time. Less than
	// one counts as one. It loosens Interval only, never Delay.
	Burst int
	// Delay is the least gap between this request and its neighbours on the
	// clock, before and after: the Crawl-delay after [CrawlDelay.Apply]. Between
	// agents with different delays the longer one holds. Zero or less: none.
	Delay time.Duration
	// Concurrency is the most requests in flight, from the grant to [Slot.Done].
	// Zero or less: no bound, and the request is not counted either. Of two places
	// or more one agent gets all but one, at the first clock of a request that has
	// places, unless it is the only one that ever asked (see [Pacer]).
	Concurrency int
}

// Request asks for one slot.
type Request struct {
	// Limit is the clock of the host.
	Limit
	// Also names further clocks that must agree: the site's, the address's, the
	// agent's own. The strictest decides, and either all are charged or none.
	Also []Limit
	// Agent is whose share of the host the request uses. Requests of one agent
	// go in the order of their arrival.
	Agent string
	// Weight is the agent's share in proportion to others. Less than one counts
	// as one.
	Weight int
	// MaxWait is how long the request may be held. Zero: [Config.Wait]. Less
	// than zero: not at all.
	MaxWait time.Duration
}

// terms is a Limit in the form the arithmetic wants: no value is negative.
type terms struct {
	interval  time.Duration
	tolerance time.Duration // how far the rate's timestamp may lie ahead: (burst-1) intervals
	gap       time.Duration
	places    int  // 0: no bound
	shared    bool // one place is left for another agent
}

// longest bounds every duration taken in, so that sums stay far from overflow:
// no site's wish and no operator's rate needs more than a year.
const longest = 365 * 24 * time.Hour

func (l Limit) terms() terms {
	t := terms{interval: clip(l.Interval), gap: clip(l.Delay)}
	if l.Burst > 1 && t.interval > 0 {
		spare := min(int64(l.Burst-1), int64(longest/t.interval))
		t.tolerance = time.Duration(spare) * t.interval
	}
	t.places = max(l.Concurrency, 0)
	return t
}

// strictest is what satisfies both.
func (t terms) strictest(o terms) terms {
	places := min(t.places, o.places)
	if places == 0 {
		places = max(t.places, o.places)
	}
	return terms{
		interval:  max(t.interval, o.interval),
		tolerance: min(t.tolerance, o.tolerance),
		gap:       max(t.gap, o.gap),
		places:    places,
		shared:    t.shared || o.shared,
	}
}

// unpaced reports whether the terms have neither a rate nor a gap.
func (t terms) unpaced() bool { return t.interval == 0 && t.gap == 0 }

// cost is how much of the clock's time the request uses: the unit in which
// agents share a host. It is never zero, so that agents take turns also where
// only the number of places holds them back.
func (t terms) cost() time.Duration {
	return max(t.interval, t.gap, time.Millisecond)
}

func clip(d time.Duration) time.Duration { return min(max(d, 0), longest) }
