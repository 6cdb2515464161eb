package pace

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/publicsuffix"
)

// Limit is what one clock demands of a request. Limits come with each request, not with the key:
// the Crawl-delay differs from agent to agent, and a reload of the configuration changes limits
// without touching the clocks.
type Limit struct {
	// Key names the clock. See [Scope.Key] and [AgentKey].
	Key string
	// Interval is the operator's rate as the time between two requests ([ParseRate]). Zero or less: no
	// rate.
	Interval time.Duration
	// Burst is how many requests may go at once after a quiet time. Less than one counts as one. It
	// loosens Interval only, never Delay.
	Burst int
	// Delay is the least gap between this request and its neighbours on the clock, before and after:
	// the Crawl-delay after [CrawlDelay.Apply]. Between agents with different delays the longer one
	// holds. Zero or less: none.
	Delay time.Duration
	// Concurrency is the most requests in flight, from the grant to [Slot.Done]. Zero or less: no
	// bound, and the request is not counted either. Of two places or more one agent gets all but one,
	// at the first clock of a request that has places, unless it is the only agent that ever asked
	// (see [Pacer]).
	Concurrency int
}

// Request asks for one slot.
type Request struct {
	// Limit is the clock of the host.
	Limit
	// Also names further clocks that must agree: the site's, the address's, the agent's own. The
	// strictest decides, and either all are charged or none. A key that was named before is left out.
	Also []Limit
	// Agent is whose share of the host the request uses. Requests of one agent go in the order of
	// their arrival.
	Agent string
	// MaxWait is how long the request may be held. Zero: [Config.Wait]. Less than zero: not at all.
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

// spacing is the least time between two requests: a rate with a burst asks for none.
func (t terms) spacing() time.Duration {
	if t.tolerance > 0 {
		return t.gap
	}
	return max(t.gap, t.interval)
}

// cost is how much of the clock's time the request uses: the unit in which agents share a host. It
// is never zero, so agents alternate even if only the number of places limits them.
func (t terms) cost() time.Duration { return max(t.interval, t.gap, time.Millisecond) }

// The prefixes keep the kinds of key apart. None can begin a host name or an IPv6 literal, so a
// host is its own key, without an allocation.
const (
	agentPrefix   = "agent:"
	sitePrefix    = "site:"
	addressPrefix = "addr:"
)

// AgentKey is the agent's own clock within another one: the agent's rate at one host, when key is
// the host's.
func AgentKey(agent, key string) string { return agentPrefix + agent + "@" + key }

// rank orders the clocks of one request from the narrow to the wide. All requests pass their clocks
// in this order, so no two can wait for each other; and a clock that many hosts share is asked only
// when the host's own clock is ready, so a slow host does not occupy it.
func rank(key string) int {
	switch {
	case strings.HasPrefix(key, agentPrefix):
		return 0
	case strings.HasPrefix(key, sitePrefix):
		return 2
	case strings.HasPrefix(key, addressPrefix):
		return 3
	}
	return 1
}

// Scope is what one clock stands for. The zero value is [PerHost].
type Scope string

const (
	// PerHost is a clock for each host, all ports and schemes together: they are one machine, or one
	// team's machines.
	PerHost Scope = "host"
	// PerSite is a clock for each registrable domain: www.example.co.uk and img.example.co.uk share
	// the clock of example.co.uk. Private suffixes count (a.github.io and b.github.io are two sites).
	// A host without a registrable domain, such as an IP literal or localhost, is its own site.
	PerSite Scope = "site"
	// PerAddress is a clock for each resolved address. IPv4 in IPv6 counts as IPv4; a zone is left
	// out.
	PerAddress Scope = "address"
)

// Key is the key of a host under the scope. host is canonical (lower-case, punycode, an IPv6
// literal without brackets). An address that is not valid (the name did not resolve) falls back to
// the host's key.
func (c Scope) Key(host string, addr netip.Addr) string {
	switch {
	case c == PerSite:
		site, err := publicsuffix.EffectiveTLDPlusOne(host)
		if err != nil {
			site = host
		}
		return sitePrefix + site
	case c == PerAddress && addr.IsValid():
		return addressPrefix + addr.Unmap().WithZone("").String()
	}
	return host
}

const (
	maxRateCount = 1_000_000
	maxRatePer   = 24 * time.Hour
	// minInterval keeps "1000000/1ms" from meaning "off".
	minInterval = time.Microsecond
)

// ParseRate reads an operator's rate as the time between two requests: "5/s", "30/m", "100/h",
// "1/10s", "1/1m30s" or "off". The count is a whole number from 1 to 1,000,000; the time is s, m, h
// or a duration of at most a day. Off is zero: no rate, while Crawl-delay, concurrency and blocks
// still apply. Anything else is an error.
func ParseRate(s string) (interval time.Duration, err error) {
	if s == "off" {
		return 0, nil
	}
	count, per, found := strings.Cut(s, "/")
	if !found {
		return 0, fmt.Errorf("parsing rate %q: want COUNT/TIME, such as 5/s, 30/m or 1/10s, or off", s)
	}
	n, err := strconv.ParseUint(count, 10, 32)
	switch {
	case err != nil:
		return 0, fmt.Errorf("parsing rate %q: count %q is not a whole number "+
			"(write 1/2s for one request every two seconds)", s, count)
	case n == 0:
		return 0, fmt.Errorf("parsing rate %q: count is 0 (write off for no rate; to refuse a host, deny it)", s)
	case n > maxRateCount:
		return 0, fmt.Errorf("parsing rate %q: count %s is above %d", s, count, maxRateCount)
	}
	d, err := parsePer(per)
	if err != nil {
		return 0, fmt.Errorf("parsing rate %q: %w", s, err)
	}
	interval = (d + time.Duration(n) - 1) / time.Duration(n) // so that the rate is never exceeded
	if interval < minInterval {
		return 0, fmt.Errorf("parsing rate %q: more than one request every %s; write off for no rate", s, minInterval)
	}
	return interval, nil
}

func parsePer(per string) (time.Duration, error) {
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
	if d, ok := units[per]; ok {
		return d, nil
	}
	d, err := time.ParseDuration(per)
	switch {
	case per == "":
		return 0, fmt.Errorf("the time after / is missing")
	case err != nil || per[0] == '+':
		return 0, fmt.Errorf("time %q is not s, m, h or a duration such as 10s", per)
	case d <= 0:
		return 0, fmt.Errorf("time %q is not above zero", per)
	case d > maxRatePer:
		return 0, fmt.Errorf("time %q is above %s", per, maxRatePer)
	}
	return d, nil
}

// Above says what happens on a Crawl-delay above the operator's maximum. Other crawlers differ:
// Heritrix clamps, Nutch skips the page, crawler-commons takes it as a disallow. The zero value is
// [Clamp].
type Above string

const (
	// Clamp waits for the maximum instead.
	Clamp Above = "clamp"
	// Refuse does not crawl the host.
	Refuse Above = "refuse"
	// Honor waits for as long as the site says.
	Honor Above = "honor"
)

// CrawlDelay is the operator's policy for the Crawl-delay (or Request-rate) of an agent's group,
// which RFC 9309 does not know but many sites write.
type CrawlDelay struct {
	// Min is the least delay; a shorter one that the site names is raised to it. It is no default:
	// without a Crawl-delay only the operator's rate applies.
	Min time.Duration
	// Max is the longest delay, Above what happens beyond it. Zero: no maximum.
	Max   time.Duration
	Above Above
}

// Apply returns the delay to keep and whether the host may be crawled at all, for the delay that
// the group declares; zero or less is no delay. ok is false only by [Refuse].
func (c CrawlDelay) Apply(declared time.Duration) (delay time.Duration, ok bool) {
	if declared <= 0 {
		return 0, true
	}
	delay = max(declared, c.Min)
	if c.Max <= 0 || delay <= c.Max || c.Above == Honor {
		return delay, true
	}
	if c.Above == Refuse {
		return delay, false
	}
	return c.Max, true
}
