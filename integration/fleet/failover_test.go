//go:build slow

package fleet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// fleetKey is a key on the node that has the orders.
const fleetKey = "{crawlgate}:fleet:orders"

// failovers are the ways in which Redis moves to another server, as docs/fleet.md lists them. Each
// starts a Redis and returns its URL and a function that makes it move.
var failovers = map[string]func(t *testing.T) (url string, change func()){
	"primary killed": func(t *testing.T) (string, func()) {
		t.Helper()
		c := redistest.StartCluster(t)
		return c.URL(), func() { c.Nodes[c.Owner(fleetKey)].Kill() }
	},
	"failed over": func(t *testing.T) (string, func()) {
		t.Helper()
		c := redistest.StartCluster(t)
		return c.URL(), func() { c.Failover(c.Owner(fleetKey)) }
	},
	"taken over": func(t *testing.T) (string, func()) {
		t.Helper()
		c := redistest.StartCluster(t)
		return c.URL(), func() { c.TakeOver(c.Owner(fleetKey)) }
	},
	"demoted behind its name": demoted,
}

// demoted does what managed Redis does: the name moves to the former replica, and the former
// primary stays up as its replica, with its connections.
func demoted(t *testing.T) (string, func()) {
	t.Helper()
	first, second := redistest.Start(t), redistest.Start(t, "--repl-diskless-sync-delay", "0")
	follow := func(s, primary *redistest.Server) {
		s.Say("REPLICAOF " + strings.ReplaceAll(primary.Addr(), ":", " "))
	}
	follow(second, first)
	rig.Eventually(t, "the replica follows", func() bool {
		return strings.Contains(second.Say("INFO replication"), "master_link_status:up")
	})
	name := startRelay(t, first.Addr())
	return "redis://" + name.addr, func() {
		second.Say("REPLICAOF NO ONE")
		follow(first, second)
		name.move(second.Addr())
	}
}

// turns lets two crawls run at once. Two processors are too slow for more.
var turns = make(chan struct{}, 2)

func twoAtOnce(t *testing.T) {
	t.Helper()
	t.Parallel()
	turns <- struct{}{}
	t.Cleanup(func() { <-turns })
}

// TestFailover crawls through each kind of failover, and gives an order before it and in the
// middle. Requests to a host keep its Crawl-delay, no order is lost, and everything works within
// five seconds.
func TestFailover(t *testing.T) { //nolint:tparallel // LoadsMachine does
	rig.LoadsMachine(t)
	for name, start := range failovers {
		t.Run(name, func(t *testing.T) {
			twoAtOnce(t)
			for run := range scale(1, 20) {
				t.Run(fmt.Sprint(run), func(t *testing.T) {
					url, change := start(t)
					c := startCrawl(t, scale(12, 200), url)
					c.deny(0)
					changed := time.Now()
					change()
					t.Logf("the change took %v", time.Since(changed).Round(time.Millisecond))
					c.deny(1)
					c.comesBack(changed)
					c.end(changed)
				})
			}
		})
	}
}

// TestRedisForgets empties Redis during a crawl, reloads it, and restores a snapshot from before an
// order. Requests to a host keep its Crawl-delay, and no order is lifted.
func TestRedisForgets(t *testing.T) { //nolint:tparallel // LoadsMachine does
	rig.LoadsMachine(t)
	for name, forget := range map[string]func(t *testing.T, s *redistest.Server, c *crawl){
		"FLUSHALL": func(t *testing.T, s *redistest.Server, _ *crawl) {
			t.Helper()
			for range scale(3, 50) {
				if said := s.Say("FLUSHALL"); said != "+OK\r\n" {
					t.Error(said)
				}
				rig.Pause(t.Context(), 700*time.Millisecond) // longer than a slot, so that each gateway finds some
			}
		},
		"DEBUG RELOAD": func(t *testing.T, s *redistest.Server, _ *crawl) {
			t.Helper()
			if said := s.Say("DEBUG RELOAD"); said != "+OK\r\n" {
				t.Error(said)
			}
		},
		"an old snapshot": func(t *testing.T, s *redistest.Server, c *crawl) {
			t.Helper()
			c.deny(1) // the snapshot lacks it
			rig.Pause(t.Context(), 2*crawlDelay)
			s.Kill()
			s.Start()
		},
		"a new server": func(t *testing.T, s *redistest.Server, c *crawl) {
			t.Helper()
			s.Kill()
			if err := os.Remove(filepath.Join(s.Dir(), "dump.rdb")); err != nil {
				t.Error(err)
			}
			s.Start()
		},
	} {
		t.Run(name, func(t *testing.T) {
			twoAtOnce(t)
			s := redistest.Start(t, "--enable-debug-command", "local")
			c := startCrawl(t, scale(12, 200), s.URL())
			c.deny(0)
			if said := s.Say("SAVE"); said != "+OK\r\n" {
				t.Fatal(said)
			}
			forget(t, s, c)
			forgot := time.Now()
			c.comesBack(forgot)
			c.end(forgot)
		})
	}
}
