package crawlgate

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// liveFetcher fetches by the configuration in force: a refresh that begins after a reload follows the new configuration,
// whoever asked for it.
type liveFetcher struct{ atomic.Pointer[App] }

// Fetch implements robotscache.Fetcher. A fetch that the operator stops counts as given up, which
// says nothing about the site.
func (f *liveFetcher) Fetch(ctx context.Context, o origin.Origin, gate fetch.Gate) fetch.Outcome {
	a := f.Load()
	var p passage
	ctx = a.stops.underway.enter(ctx, &p, o, "")
	defer p.leave()
	out := fetch.Outcome{Cause: fetch.CauseCanceled, Started: time.Now()}
	if err := a.stopsFetch(o); err != nil {
		out.Detail = err.Error()
		return out
	}
	if ctx.Err() == nil {
		out = a.fetcher.Fetch(ctx, o, gate)
	}
	if stop := stopOf(ctx); stop != nil {
		return fetch.Outcome{Cause: fetch.CauseCanceled, Detail: stop.Error(), Started: out.Started, Duration: out.Duration}
	}
	return out
}

// stopsFetch returns why the robots.txt of an origin is not asked for, nil if it may be: an order
// of the kill switch, or a deny list at every gateway. All gateways share a record, and one that
// may crawl the origin needs it.
func (a *App) stopsFetch(o origin.Origin) error {
	if order, stopped := a.stops.switches.Match(o, ""); stopped {
		return fmt.Errorf("by an order of the kill switch: %s", order)
	}
	if pattern, denied := a.sites.deny(o); denied {
		return fmt.Errorf("by the configuration: deny %s", pattern)
	}
	return nil
}

// Recorded implements robotscache.Observer: it tells of what a fetch has changed, as the configuration in force wants it.
func (o *cacheObserver) Recorded(before fetch.Record, out fetch.Outcome) {
	a := o.fetcher.Load()
	a.emitter.fetched(a.cfg.policy, before, before.Origin, out)
}

// complaintPause is the time between two complaints about the same.
const complaintPause = time.Minute

// throttle lets a complaint through once in complaintPause. The zero value is ready; it is safe for concurrent use.
type throttle struct{ next atomic.Int64 }

func (t *throttle) open(now time.Time) bool {
	n, next := now.UnixNano(), t.next.Load()
	return n >= next && t.next.CompareAndSwap(next, n+int64(complaintPause))
}

// robotsTransport keeps redirects of robots.txt from leading to a host that the operator stops.
type robotsTransport struct {
	http.RoundTripper
	stops func(origin.Origin) error
}

// RoundTrip implements http.RoundTripper.
func (t robotsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	o, err := origin.FromURL(r.URL)
	if err != nil {
		return nil, err
	}
	if err := t.stops(o); err != nil {
		return nil, stoppedHopError{err}
	}
	return t.RoundTripper.RoundTrip(r)
}

// stoppedHopError is the operator's refusal of a redirect.
type stoppedHopError struct{ error }

// Forbidden makes the fetcher take the order for what it is: a refusal of our own.
func (stoppedHopError) Forbidden() string { return string(fetch.CauseForbiddenAddress) }

// Interface guards.
var (
	_ robotscache.Fetcher = (*liveFetcher)(nil)
	_ http.RoundTripper   = robotsTransport{}
)
