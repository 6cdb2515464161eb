package enforce

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/enforce/pace"
)

// DefaultMaxCrawlDelay is the longest Crawl-delay that is kept where the operator says nothing.
const DefaultMaxCrawlDelay = 30 * time.Second

// Politeness is the operator's part in when an allowed request may go. The zero value paces
// nothing and holds no request.
type Politeness struct {
	// Interval, Burst and Concurrency hold for each clock, see [pace.Limit].
	Interval    time.Duration
	Burst       int
	Concurrency int
	// CrawlDelay says how far a site's Crawl-delay is kept.
	CrawlDelay pace.CrawlDelay
	// Wait is the longest time that a request may be held; zero or less for not at all.
	Wait time.Duration
	// Per names the clocks of a host, at least one. The first is blocked where the host asks for
	// a pause.
	Per []pace.Scope
}

// Request returns the slot that a request needs: the operator's limits, the site's Crawl-delay and
// the agent's interval together. address resolves the origin's host and is called once for each
// [pace.PerAddress]; the host's clock stands in for one that is not valid. The error is for
// [Decision.RefuseSlot].
func (p Politeness) Request(d Decision, address func() netip.Addr) (pace.Request, error) {
	delay, ok := p.CrawlDelay.Apply(d.CrawlDelay)
	if !ok {
		return pace.Request{}, &crawlDelayError{asked: d.CrawlDelay, limit: p.CrawlDelay.Max}
	}
	limit := pace.Limit{Interval: p.Interval, Burst: p.Burst, Delay: delay, Concurrency: p.Concurrency}
	request := pace.Request{Agent: d.Agent, MaxWait: p.Wait}
	if p.Wait <= 0 {
		request.MaxWait = -1 // zero would stand for the pacer's default
	}
	for i, scope := range p.Per {
		var addr netip.Addr
		if scope == pace.PerAddress {
			addr = address()
		}
		limit.Key = scope.Key(d.Origin.Host, addr)
		if i == 0 {
			request.Limit = limit
		} else {
			request.Also = append(request.Also, limit)
		}
	}
	if d.interval > 0 {
		key := pace.AgentKey(d.Agent, pace.HostKey(d.Origin.Host))
		request.Also = append(request.Also, pace.Limit{Key: key, Interval: d.interval, Burst: 1})
	}
	return request, nil
}

// crawlDelayError is a Crawl-delay that the operator refuses to keep.
type crawlDelayError struct{ asked, limit time.Duration }

// Error implements error.
func (e *crawlDelayError) Error() string {
	return fmt.Sprintf("Crawl-delay %s is above the limit of %s", brief(e.asked), brief(e.limit))
}

// brief is a duration without the units that are zero at its end: 1h, not 1h0m0s.
func brief(d time.Duration) string {
	s := d.String()
	for _, zero := range []string{"m0s", "h0m"} {
		if strings.HasSuffix(s, zero) {
			s = s[:len(s)-len("0s")]
		}
	}
	return s
}

// RefuseSlot returns d refused because the request gets no slot. err is the error of
// [Politeness.Request], [pace.Pacer.Acquire] or [pace.Slot.Confirm], ctx the context of the request.
func (d Decision) RefuseSlot(ctx context.Context, err error) Decision {
	if refused, ok := errors.AsType[*pace.Refused](err); ok {
		return d.Refuse(slotReasons[refused.Reason], "", time.Duration(refused.Seconds())*time.Second)
	}
	if delay, ok := errors.AsType[*crawlDelayError](err); ok {
		return d.Refuse(ReasonCrawlDelay, delay.Error(), 0)
	}
	if ctx.Err() != nil {
		return d.Refuse(ReasonCanceled, "the client left while it was held", 0)
	}
	return d.Refuse(ReasonInternal, err.Error(), 0)
}

var slotReasons = map[pace.Reason]Reason{
	pace.ReasonWait:        ReasonRateLimited,
	pace.ReasonBlocked:     ReasonBackoff,
	pace.ReasonConcurrency: ReasonConcurrency,
	pace.ReasonQueueFull:   ReasonQueueFull,
	pace.ReasonWaitersFull: ReasonOverloaded,
	pace.ReasonOverflow:    ReasonOverloaded,
}

// AsksForPause reports whether an answer asks to leave the host alone for a while, and for how
// long; zero if it does not say.
func AsksForPause(status int, header http.Header, now time.Time) (pause time.Duration, asked bool) {
	if status != http.StatusTooManyRequests && status != http.StatusServiceUnavailable {
		return 0, false
	}
	return pace.ParseRetryAfter(header.Get("Retry-After"), now), true
}
