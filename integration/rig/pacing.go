package rig

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// LeastGap returns the shortest time between the arrivals of two requests; see [Arrivals].
func LeastGap(exchanges []testorigin.Exchange) time.Duration {
	slices.SortFunc(exchanges, func(a, b testorigin.Exchange) int { return a.Arrived.Compare(b.Arrived) })
	least := time.Duration(1<<63 - 1)
	for i := 1; i < len(exchanges); i++ {
		least = min(least, exchanges[i].Arrived.Sub(exchanges[i-1].Arrived))
	}
	return least
}

// Scheduling is the delay with which a busy machine may notice an event. Tests add it to upper
// bounds of times, never to lower ones.
const Scheduling = 750 * time.Millisecond

// CrawlUntil lets workers request one page after the other from a site until ctx ends. A refused
// worker tries again a little later, like clients that ignore Retry-After.
func (g *Gateway) CrawlUntil(ctx context.Context, group *sync.WaitGroup, agent string, workers int, site *testorigin.Site) {
	g.T.Helper()
	client := g.Client(agent + "/1.0")
	for w := range workers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				a, err := TryGet(ctx, client, site.URL(fmt.Sprintf("/%s/%d/%d", agent, w, i)))
				if err != nil || a.Status != http.StatusOK {
					Pause(ctx, 100*time.Millisecond)
				}
			}
		})
	}
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// Arrivals returns the times at which requests for pages arrived, by the clock of the origin's
// kernel.
func Arrivals(site *testorigin.Site) []time.Time {
	exchanges := site.PageExchanges()
	times := make([]time.Time, len(exchanges))
	for i, e := range exchanges {
		times[i] = e.Arrived
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// Shortest returns the shortest time in which n+1 requests came. With a rate of n requests per
// second it is at least a second.
func Shortest(times []time.Time, n int) time.Duration {
	least := time.Duration(1<<63 - 1)
	for i := n; i < len(times); i++ {
		least = min(least, times[i].Sub(times[i-n]))
	}
	return least
}

// CheckRefusal checks that an answer is a refusal for politeness, and that its Retry-After is
// within bounds.
func CheckRefusal(t *testing.T, a Answer, least, most time.Duration) {
	t.Helper()
	if a.Status != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429: %s", a.Status, a.Body)
		return
	}
	seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
	after := time.Duration(seconds) * time.Second
	if err != nil || after < least || after > most {
		t.Errorf("Retry-After: %q, want %v to %v", a.Header.Get("Retry-After"), least, most)
	}
	if status := a.Header.Get("Proxy-Status"); !strings.HasPrefix(status, "crawlgate; error=http_request_denied;") {
		t.Errorf("Proxy-Status is %q", status)
	}
	if a.Header.Get("Cache-Control") != "no-store" || a.Body == "" {
		t.Errorf("Cache-Control %q, body %q", a.Header.Get("Cache-Control"), a.Body)
	}
}

// CheckReason stops the gateway, and checks the number of requests in its log that were refused for
// the reason.
func (g *Gateway) CheckReason(reason enforce.Reason, want int) {
	g.T.Helper()
	g.Stop()
	n := 0
	for _, l := range g.ReadLogs() {
		if l.Robots.Reason == reason {
			n++
		}
	}
	if n != want {
		g.T.Errorf("%d lines have the reason %s, want %d", n, reason, want)
	}
}
