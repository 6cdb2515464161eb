package integration

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

// scheduling is how late something may be noticed on a busy machine. It is added to how long a thing may take at most,
// and never to how soon it may happen.
const scheduling = 750 * time.Millisecond

// crawlUntil has workers ask one site for one page after the other until ctx ends; a refused one tries again a little
// later, as clients do that do not honour Retry-After.
func (g *gateway) crawlUntil(ctx context.Context, group *sync.WaitGroup, agent string, workers int, site *testorigin.Site) {
	g.t.Helper()
	client := g.client(agent + "/1.0")
	for w := range workers {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				a, err := tryGet(ctx, client, site.URL(fmt.Sprintf("/%s/%d/%d", agent, w, i)))
				if err != nil || a.status != http.StatusOK {
					pause(ctx, 100*time.Millisecond)
				}
			}
		})
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// How gaps are measured. The gateway answers for when bytes leave it. It counts a gap from when a request was
// written, or from the first byte of its answer, if that comes sooner than the next request is due; so on one gateway the
// last segment of a request's head reaches the origin's kernel no later than the moment from which the next one is counted.
// When an origin's process reads them is another matter: it may sleep for as long as the whole gap. So requests are timed
// by the kernel's stamps of their segments (testorigin.Exchange.Arrived), and then no error is permitted. The kernel does
// not stamp connections. Tunnels are timed when the process accepts them; the permitted error is the most that the same
// process overslept in that time (acceptTimes.late).

// arrivals are the times at which requests for pages had arrived, by the clock of the origin's kernel.
func arrivals(site *testorigin.Site) []time.Time {
	exchanges := site.PageExchanges()
	times := make([]time.Time, len(exchanges))
	for i, e := range exchanges {
		times[i] = e.Arrived
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// shortest is the least time in which n+1 requests came. Where a rate allows n requests in a second it is never below
// one.
func shortest(times []time.Time, n int) time.Duration {
	least := time.Duration(1<<63 - 1)
	for i := n; i < len(times); i++ {
		least = min(least, times[i].Sub(times[i-n]))
	}
	return least
}

// checkRefusal looks whether an answer is the gateway's refusal for politeness, and when it says to come back.
func checkRefusal(t *testing.T, a answer, least, most time.Duration) {
	t.Helper()
	if a.status != http.StatusTooManyRequests {
		t.Errorf("status %d, want 429: %s", a.status, a.body)
		return
	}
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	after := time.Duration(seconds) * time.Second
	if err != nil || after < least || after > most {
		t.Errorf("Retry-After: %q, want %v to %v", a.header.Get("Retry-After"), least, most)
	}
	if status := a.header.Get("Proxy-Status"); !strings.HasPrefix(status, "crawlgate; error=http_request_denied;") {
		t.Errorf("Proxy-Status: %q", status)
	}
	if a.header.Get("Cache-Control") != "no-store" || a.body == "" {
		t.Errorf("Cache-Control %q, body %q", a.header.Get("Cache-Control"), a.body)
	}
}

// checkReason ends the gateway and looks how many requests its log says were refused for the reason.
func (g *gateway) checkReason(reason enforce.Reason, want int) {
	g.t.Helper()
	g.stop()
	n := 0
	for _, l := range g.readLogs() {
		if l.Robots.Reason == reason {
			n++
		}
	}
	if n != want {
		g.t.Errorf("%d lines say %s, want %d", n, reason, want)
	}
}
