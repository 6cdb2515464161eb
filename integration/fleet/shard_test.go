//go:build slow

package fleet

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestShareOrShard measures the calls of Redis that docs/fleet.md promises: at most two for a
// request with three gateways that share everything, and none with three gateways behind HAProxy
// that share orders.
func TestShareOrShard(t *testing.T) {
	rig.LoadsMachine(t)
	for _, c := range []struct {
		name, engine string
		sharded      bool
		most         float64 // calls for a request
	}{
		{"shared", "gateway gw%d\nredis %s {\nexpect 3\n}\npace {\nrate off\nconcurrency 1000\n}", false, 2},
		{"sharded", "gateway gw%d\nfleet redis %s {\nexpect 3\n}\npace {\nrate off\nconcurrency 1000\n}", true, 0.05},
	} {
		redis := redistest.Start(t)
		var gateways []*rig.Gateway
		for i := range 3 {
			gateways = append(gateways, rig.New(t, rig.Config{Engine: fmt.Sprintf(c.engine, i, redis.URL())}))
		}
		for _, g := range gateways {
			rig.Eventually(t, "the gateways to meet", func() bool {
				return len(decodeAnswer[adminapi.Gateways](t, g.Admin("/robots/gateways").Body).Gateways) == 3
			})
		}
		through := gateways
		if c.sharded {
			through = []*rig.Gateway{rig.StartHAProxy(t, gateways, "")}
		}
		server := testorigin.Start(t, testorigin.Config{RecordSize: 1})
		var pages []string
		for range scale(60, 600) {
			pages = append(pages, server.Site(t, testorigin.SiteConfig{}).URL("/page"))
		}
		load := func(period time.Duration, clients int) (n, calls int) {
			var done atomic.Int64
			ctx, stop := context.WithTimeout(t.Context(), period)
			defer stop()
			var workers sync.WaitGroup
			before := scriptCalls(t, redis)
			for i := range clients {
				client := through[i%len(through)].Client("AcmeBot/1.0")
				workers.Go(func() {
					for k := i; ctx.Err() == nil; k++ {
						if a, err := rig.TryGet(ctx, client, pages[k%len(pages)]); err == nil && a.Status == http.StatusOK {
							done.Add(1)
						}
					}
				})
			}
			<-ctx.Done()
			workers.Wait()
			return int(done.Load()), scriptCalls(t, redis) - before
		}
		period := time.Duration(scale(2, 20)) * time.Second
		load(period, 24) // until each gateway has the rules of each host
		_, idle := load(period, 0)
		n, calls := load(period, 24)
		each := float64(calls-idle) / float64(max(n, 1))
		t.Logf("%s: %.0f requests a second, %.2f calls of Redis for each; %.0f calls a second without requests",
			c.name, float64(n)/period.Seconds(), each, float64(idle)/period.Seconds())
		if each > c.most {
			t.Errorf("%s: %.2f calls of Redis for a request, want at most %v", c.name, each, c.most)
		}
		for _, g := range gateways {
			g.Stop()
		}
	}
}

// scriptCalls returns the number of scripts that Redis has run. Requests cause no other calls.
func scriptCalls(t *testing.T, redis *redistest.Server) int {
	t.Helper()
	return infoOf(t, redis.Say("INFO commandstats"), "cmdstat_evalsha:calls=")
}

// infoOf returns a number from the output of INFO.
func infoOf(t *testing.T, info, name string) int {
	t.Helper()
	_, rest, found := strings.Cut(info, name)
	digits := len(rest) - len(strings.TrimLeft(rest, "0123456789"))
	n, err := strconv.Atoi(rest[:digits])
	if !found || err != nil {
		t.Fatalf("INFO has no number %s: %s", name, info)
	}
	return n
}

// scale returns how large a test of scale is.
func scale(small, whole int) int {
	if rig.Long() {
		return whole
	}
	return small
}
