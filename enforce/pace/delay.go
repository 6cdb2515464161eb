package pace

import (
	"fmt"
	"time"
)

// Above says what becomes of a Crawl-delay above the operator's maximum. Peers
// differ: Heritrix clamps, Nutch skips the page, crawler-commons takes it as a
// disallow (reference/features.md part c).
type Above uint8

const (
	// Clamp waits for the maximum instead.
	Clamp Above = iota
	// Refuse does not crawl the host.
	Refuse
	// Honor waits for as long as the site says.
	Honor
)

// ParseAbove reads "clamp", "refuse" or "honor".
func ParseAbove(s string) (Above, error) {
	for a := Clamp; a <= Honor; a++ {
		if s == a.String() {
			return a, nil
		}
	}
	return Clamp, fmt.Errorf("parsing what to do above the longest crawl delay: %q is not clamp, refuse or honor", s)
}

// String is the form that ParseAbove reads.
func (a Above) String() string {
	switch a {
	case Clamp:
		return "clamp"
	case Refuse:
		return "refuse"
	case Honor:
		return "honor"
	}
	return fmt.Sprintf("Above(%d)", uint8(a))
}

// CrawlDelay is the operator's policy for the Crawl-delay (or Request-rate) of
// an agent's group, which RFC 9309 does not know but many sites write.
type CrawlDelay struct {
	// Min is the least delay; a shorter one that the site names is raised to it.
	// It is no default: without one the operator's rate alone holds.
	Min time.Duration
	// Max is the longest delay, Above what happens beyond it. Zero: no maximum.
	Max   time.Duration
	Above Above
}

// Apply returns the delay to keep and whether the host may be crawled at all,
// for the delay that the group declares; zero or less is none. ok is false only
// by [Refuse].
func (c CrawlDelay) Apply(declared time.Duration) (delay time.Duration, ok bool) {
	if declared <= 0 {
		return 0, true
	}
	delay = max(declared, c.Min)
	if c.Max <= 0 || delay <= c.Max {
		return delay, true
	}
	switch c.Above {
	case Honor:
		return delay, true
	case Refuse:
		return delay, false
	case Clamp:
	}
	return c.Max, true
}
