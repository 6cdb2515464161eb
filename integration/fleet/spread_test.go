//go:build slow

package fleet

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestClocksSpread reserves a slot at many hosts in a cluster. The busiest primary may have at most
// 1.3 times the average number of keys and of calls.
func TestClocksSpread(t *testing.T) {
	rig.LoadsMachine(t)
	const callers, imbalance = 64, 1.3
	hosts := scale(20_000, 1_000_000)
	c := redistest.StartCluster(t)
	l, err := link.New(link.Config{URL: c.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	clock := redisclock.New(l, 1)
	t.Cleanup(clock.Close)
	rig.Eventually(t, "the link is up", func() bool { return l.State().Up })
	memory := func() (sum int) {
		for _, n := range c.Nodes[:3] {
			sum += infoOf(t, n.Say("INFO memory"), "used_memory:")
		}
		return sum
	}
	empty, began := memory(), time.Now()
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			for n := i; n < hosts; n += callers {
				demand := pace.Demand{Key: fmt.Sprintf("www.host-%d.example", n), Interval: time.Hour}
				// A new Redis gives no slot at first, and then one after the interval.
				var r pace.Reservation
				var err error
				for end := time.Now().Add(rig.Patience); r.Outcome != pace.Reserved && time.Now().Before(end); rig.Pause(t.Context(), 20*time.Millisecond) {
					if r, err = clock.Reserve(t.Context(), []pace.Demand{demand}, 3*time.Hour); r.Outcome == pace.Reserved {
						break
					}
				}
				if err != nil || r.Outcome != pace.Reserved {
					t.Errorf("%s: outcome %v, error %v, want a reservation", demand.Key, r.Outcome, err)
					return
				}
			}
		})
	}
	group.Wait()
	took := time.Since(began)
	keys, calls := make([]int, 3), make([]int, 3)
	for i, n := range c.Nodes[:3] {
		_, keyspace, _ := strings.Cut(n.Say("INFO keyspace"), "db0:")
		if keyspace != "" {
			keys[i] = infoOf(t, keyspace, "keys=")
		}
		if stats := n.Say("INFO commandstats"); strings.Contains(stats, "cmdstat_evalsha:") {
			calls[i] = infoOf(t, stats, "cmdstat_evalsha:calls=")
		}
	}
	t.Logf("%d hosts: keys %v, calls %v, %.0f reservations a second, %d bytes for each host",
		hosts, keys, calls, float64(hosts)/took.Seconds(), (memory()-empty)/hosts)
	for what, n := range map[string][]int{"keys": keys, "calls": calls} {
		sum, most := n[0]+n[1]+n[2], max(n[0], n[1], n[2])
		if sum < hosts || float64(most) > imbalance*float64(sum)/3 {
			t.Errorf("%s: %v at the primaries, want at most %.1f times the mean at each", what, n, imbalance)
		}
	}
}
