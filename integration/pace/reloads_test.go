//go:build slow

package pace

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestManyReloads loads a configuration over and over under load. No request is lost, each is
// counted once, and nothing of earlier configurations remains. CRAWLGATE_RELOADS sets the number of
// reloads.
//
// Caddy opens a socket for each configuration. Unless net.ipv4.tcp_migrate_req is set, Linux resets
// the connections in the old socket's backlog. Their requests reached no listener, as the counts at
// the end show.
func TestManyReloads(t *testing.T) {
	t.Parallel()
	reloads := 10
	if text := os.Getenv("CRAWLGATE_RELOADS"); text != "" {
		var err error
		if reloads, err = strconv.Atoi(text); err != nil {
			t.Fatalf("CRAWLGATE_RELOADS: %v", err)
		}
	}
	server := testorigin.Start(t, testorigin.Config{RecordSize: 1 << 18})
	sites := []*testorigin.Site{server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})}
	config := func(version int) rig.Config {
		return rig.Config{Engine: fmt.Sprintf("user_agent Version/%d\npace {\nrate 100/s\nburst 1\nwait 30s\n}", version)}
	}
	g := rig.New(t, config(0))
	var asked, answered, lost atomic.Int64
	crawl := func(ctx context.Context, workers int) {
		var all sync.WaitGroup
		for w := range workers {
			client := g.Client(fmt.Sprintf("Crawler-%d/1.0", w))
			all.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					asked.Add(1)
					a, err := rig.TryGet(t.Context(), client, sites[i%len(sites)].URL(fmt.Sprintf("/%d/%d", w, i)))
					if errors.Is(rig.Unread(err), rig.ErrUnread) {
						lost.Add(1) // reset in the old listener's backlog
						continue
					}
					if err != nil || a.Status != http.StatusOK {
						t.Errorf("status %d, error %v: %s", a.Status, err, a.Body)
						return
					}
					answered.Add(1)
				}
				client.CloseIdleConnections()
			})
		}
		all.Wait()
	}
	round := func(first, last int) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		var load sync.WaitGroup
		load.Go(func() { crawl(ctx, 8) })
		for version := first; version <= last; version++ {
			if err := g.Reload(config(version)); err != nil {
				t.Error(err)
			}
			if n := int64(g.Metric("crawlgate_decisions_total")); n > asked.Load() {
				t.Errorf("%d requests were counted, want at most %d", n, asked.Load())
			}
		}
		stop()
		load.Wait()
	}

	round(1, 3) // makes everything that is made once
	before := rests(g)
	round(4, 3+reloads)
	after := rests(g)
	t.Logf("%d requests, %d reloads, %d connections reset", answered.Load(), reloads, lost.Load())
	if n := lost.Load(); n > 0 && migrates() {
		t.Errorf("%d connections were reset, although the kernel hands them to the next listener", n)
	} else if n > int64(8*(3+reloads)) { // a worker has one connection at a time
		t.Errorf("%d connections were reset, want at most one for each worker and reload", n)
	}
	t.Logf("before: %+v", before)
	t.Logf("after:  %+v", after)

	if n := int64(g.Metric("crawlgate_decisions_total")); n != answered.Load() {
		t.Errorf("%d requests were counted, want the %d answered ones", n, answered.Load())
	}
	reached := 0
	for _, site := range sites {
		reached += len(site.PageExchanges())
	}
	if int64(reached) != answered.Load() {
		t.Errorf("%d requests reached the origins, want the %d answered ones", reached, answered.Load())
	}
	// A remaining configuration would hold some goroutines and a megabyte for each reload.
	if after.goroutines > before.goroutines+reloads/2+5 {
		t.Errorf("%d goroutines after %d reloads, %d before: %s", after.goroutines, reloads, before.goroutines, pprof(g, "goroutine?debug=1"))
	}
	if grown := after.heap - before.heap; grown > int64(reloads)<<17+8<<20 {
		t.Errorf("the heap has grown by %d KiB after %d reloads", grown>>10, reloads)
	}
}

// migrates reports whether the kernel hands the backlog of a closed socket to another one at the
// same port.
func migrates() bool {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_migrate_req")
	return err == nil && strings.TrimSpace(string(text)) == "1"
}

// rest is what a gateway holds without requests.
type rest struct {
	goroutines int
	heap, rss  int64 // bytes
}

// rests waits until the gateway is idle. Old servers close their last connections within about a
// second.
func rests(g *rig.Gateway) rest {
	g.T.Helper()
	var r rest
	least := 1 << 30
	for quiet := 0; quiet < 10; quiet++ { // a second without a new low
		time.Sleep(100 * time.Millisecond)
		head, _, _ := strings.Cut(pprof(g, "goroutine?debug=1"), "\n")
		if _, err := fmt.Sscanf(head, "goroutine profile: total %d", &r.goroutines); err != nil {
			g.T.Fatalf("%q: %v", head, err)
		}
		if r.goroutines < least {
			least, quiet = r.goroutines, 0
		}
	}
	r.goroutines = least
	pprof(g, "heap?gc=1")
	pprof(g, "heap?gc=1") // frees what finalizers and pools hold
	r.heap = int64(g.Metric("go_memstats_heap_alloc_bytes"))
	r.rss = int64(g.Metric("process_resident_memory_bytes"))
	return r
}

// pprof returns a profile of the gateway.
func pprof(g *rig.Gateway, what string) string {
	g.T.Helper()
	return g.Admin("/debug/pprof/" + what).Body
}
