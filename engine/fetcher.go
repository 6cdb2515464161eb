package engine

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

// currentFetcher fetches by the current configuration: a refresh that begins after a reload follows
// the new one, even where a request of the old one asked for it.
type currentFetcher struct{ atomic.Pointer[Engine] }

// Fetch implements robotscache.Fetcher. A fetch that the operator stops counts as given up, which
// says nothing about the site.
func (f *currentFetcher) Fetch(ctx context.Context, o origin.Origin, gate fetch.Gate) fetch.Outcome {
	e := f.Load()
	ctx, entry := e.Enter(ctx, o, "")
	defer entry.Leave()
	out := fetch.Outcome{Cause: fetch.CauseCanceled, Started: time.Now()}
	if err := e.StopsFetch(o); err != nil {
		out.Detail = err.Error()
		return out
	}
	if ctx.Err() == nil {
		out = e.fetcher.Fetch(ctx, o, gate)
	}
	if stop := StoppedBy(ctx); stop != nil {
		return fetch.Outcome{Cause: fetch.CauseCanceled, Detail: stop.Error(), Started: out.Started, Duration: out.Duration}
	}
	return out
}

// StopsFetch returns why the robots.txt of an origin is not asked for, nil if it may be: an order
// of the kill switch, or a deny list at every gateway. All gateways share a record, and one that
// may crawl the origin needs it.
func (e *Engine) StopsFetch(o origin.Origin) error {
	if order, stopped := e.kills.switches.Match(o, ""); stopped {
		return fmt.Errorf("by an order of the kill switch: %s", order)
	}
	if pattern, denied := e.sites.deny(o); denied {
		return fmt.Errorf("by the configuration: deny %s", pattern)
	}
	return nil
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
	_ robotscache.Fetcher = (*currentFetcher)(nil)
	_ http.RoundTripper   = robotsTransport{}
)
