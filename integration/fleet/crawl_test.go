//go:build slow

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// crawlDelay is the Crawl-delay of the hosts.
const crawlDelay = 500 * time.Millisecond

// backWithin is the time after a change of Redis within which everything must work again.
const backWithin = 5 * time.Second

// crawl is a set of gateways with one Redis. Each gateway requests the pages of all hosts as fast
// as it may.
type crawl struct {
	t        *testing.T
	sites    []*testorigin.Site
	gateways []*rig.Gateway
	stop     context.CancelFunc
	workers  sync.WaitGroup
	stopped  int // the number of stopped hosts, which are the first ones
}

// startCrawl starts three gateways that share everything through the Redis at a URL.
func startCrawl(t *testing.T, hosts int, url string) *crawl {
	t.Helper()
	c := &crawl{t: t}
	server := testorigin.Start(t, testorigin.Config{})
	for range hosts {
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetRobots(testorigin.OK(fmt.Sprintf("User-agent: *\nCrawl-delay: %v\n", crawlDelay.Seconds())))
		c.sites = append(c.sites, site)
	}
	for i := range 3 {
		c.gateways = append(c.gateways, rig.New(t, rig.Config{
			Engine: fmt.Sprintf("gateway gw%d\nredis %s {\nexpect 3\n}\npace {\nrate off\nbackoff off\nwait 60s\n}", i, url),
		}))
	}
	for _, g := range c.gateways {
		rig.Eventually(t, "the gateways to meet", func() bool {
			list := decodeAnswer[adminapi.Gateways](t, g.Admin("/robots/gateways").Body)
			return list.Up && len(list.Gateways) == 3
		})
	}
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	t.Cleanup(func() {
		stop()
		c.workers.Wait()
	})
	for i, g := range c.gateways {
		for _, site := range c.sites {
			g.CrawlUntil(ctx, &c.workers, fmt.Sprintf("Agent-%c", 'a'+i), 1, site)
		}
	}
	rig.Eventually(t, "all hosts to be crawled", func() bool {
		for _, site := range c.sites {
			if len(site.PageExchanges()) < 3 {
				return false
			}
		}
		return true
	})
	return c
}

// deny stops the next host at a gateway.
func (c *crawl) deny(gateway int) {
	c.t.Helper()
	host := c.sites[c.stopped].Origin()
	c.stopped++
	if out, err := c.gateways[gateway].Robots("deny", "host", host.Host); err != nil {
		c.t.Logf("deny: %v: %s", err, out) // the other gateways may not have the order yet
	}
}

// works reports whether the gateways share clocks, records and orders.
func (c *crawl) works() bool {
	for _, g := range c.gateways {
		for _, part := range []string{"crawlgate_shared_clock_up", "crawlgate_fleet_up", "crawlgate_store_up"} {
			if g.Metric(part) != 1 {
				return false
			}
		}
	}
	return true
}

// comesBack checks that a fleet works again soon after a change of Redis, and keeps working.
func (c *crawl) comesBack(changed time.Time) {
	c.t.Helper()
	missed := changed
	for time.Since(changed) < backWithin {
		if !c.works() {
			missed = time.Now()
		}
		rig.Pause(c.t.Context(), 50*time.Millisecond)
	}
	c.t.Logf("everything worked again after %v", missed.Sub(changed).Round(10*time.Millisecond))
	if !c.works() {
		c.t.Errorf("not everything works %v after the change", backWithin)
	}
	// Other work on the machine can slow the crawlers down for a while, but not each time.
	var n, most, silent int
	for range 4 {
		if n, most, silent = c.arrive(4 * crawlDelay); n >= most/2 && silent == 0 {
			return
		}
	}
	c.t.Errorf("%d requests, of %d that the hosts allow; %d hosts got none", n, most, silent)
}

// arrive returns the number of requests to hosts that are not stopped, the number that the hosts
// allow in that time, and the number of hosts that got none.
func (c *crawl) arrive(in time.Duration) (n, most, silent int) {
	c.t.Helper()
	since := time.Now()
	rig.Pause(c.t.Context(), in)
	for _, site := range c.sites[c.stopped:] {
		times := after(rig.Arrivals(site), since)
		n += len(times)
		if len(times) == 0 {
			silent++
		}
	}
	return n, int(in/crawlDelay) * (len(c.sites) - c.stopped), silent
}

// end stops the crawl and checks the record of the hosts: requests keep the Crawl-delay, and
// stopped hosts get none once everything works again.
func (c *crawl) end(changed time.Time) {
	c.t.Helper()
	for _, site := range c.sites[:c.stopped] {
		for i, g := range c.gateways {
			if status := g.MustFetch("AcmeBot/1.0", site.URL("/")).Status; status != http.StatusForbidden {
				c.t.Errorf("gw%d: %s: status %d, want 403", i, site.Origin(), status)
			}
		}
		if times := after(rig.Arrivals(site), changed.Add(backWithin)); len(times) > 0 {
			c.t.Errorf("%s: %d requests came to a stopped host later than %v after the change", site.Origin(), len(times), backWithin)
		}
	}
	c.stop()
	c.workers.Wait()
	n, short, least := 0, 0, time.Hour
	var at time.Duration // of the shortest gap
	for _, site := range c.sites {
		if lost := site.Dropped(); lost > 0 {
			c.t.Errorf("the record lacks %d requests", lost)
		}
		times := rig.Arrivals(site)
		n += len(times)
		for i := 1; i < len(times); i++ {
			gap := times[i].Sub(times[i-1])
			if gap < crawlDelay {
				short++
			}
			if gap < least {
				least, at = gap, times[i].Sub(changed)
			}
		}
	}
	c.t.Logf("%d requests to %d hosts, at least %v apart", n, len(c.sites), least)
	if short > 0 {
		c.t.Errorf("%d gaps were shorter than %v, the shortest %v, %v after the change", short, crawlDelay, least, at)
	}
}

func after(times []time.Time, since time.Time) []time.Time {
	for len(times) > 0 && !times[0].After(since) {
		times = times[1:]
	}
	return times
}
