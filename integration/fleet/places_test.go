//go:build slow

package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestPlacesOfAFleet crawls one slow host through more gateways than places. The host never has
// more open answers than places. If all requests reach one gateway through HAProxy, it uses all
// places.
func TestPlacesOfAFleet(t *testing.T) {
	rig.LoadsMachine(t)
	const gateways, places, slow = 12, 8, 150 * time.Millisecond
	redis := redistest.Start(t)
	server := testorigin.Start(t, testorigin.Config{})
	all := make([]*rig.Gateway, gateways)
	var starting sync.WaitGroup
	for i := range all {
		starting.Go(func() {
			all[i] = rig.New(t, rig.Config{Engine: fmt.Sprintf("gateway gw%d\nstore none\nredis %s {\nexpect %d\n}\npace {\nrate off\nbackoff off\nconcurrency %d\nwait 30s\n}",
				i, redis.URL(), gateways, places)})
		})
	}
	starting.Wait()
	for _, g := range all {
		rig.Eventually(t, "the gateways to meet", func() bool {
			return len(decodeAnswer[adminapi.Gateways](t, g.Admin("/robots/gateways").Body).Gateways) == gateways
		})
	}
	rig.Pause(t.Context(), 5*time.Second) // until then each gateway uses only its share of the places
	balancer := rig.StartHAProxy(t, all[:3], "")
	for _, phase := range []struct {
		name    string
		through []*rig.Gateway
	}{{"each by itself", all}, {"all by HAProxy", []*rig.Gateway{balancer}}} {
		name, through := phase.name, phase.through
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetPages(testorigin.OK("page").After(slow))
		ctx, stop := context.WithTimeout(t.Context(), time.Duration(scale(3, 30))*time.Second)
		var workers sync.WaitGroup
		for i := range 4 * gateways {
			through[i%len(through)].CrawlUntil(ctx, &workers, fmt.Sprintf("Agent-%c", 'a'+i%3), 1, site)
		}
		<-ctx.Done()
		ended := time.Now()
		workers.Wait()
		stop()
		// A site may notice later than the gateways that a client has left.
		most, n := mostOpen(slices.DeleteFunc(site.PageExchanges(), func(e testorigin.Exchange) bool { return e.Start.After(ended) }), slow)
		t.Logf("%s: %d answers, %d open at most", name, n, most)
		if most > places {
			t.Errorf("%s: %d open answers, want at most the concurrency %d", name, most, places)
		}
		if most < places {
			t.Errorf("%s: %d places were used, want %d", name, most, places)
		}
	}
}

// mostOpen returns the largest number of answers that were open at once, and the number of all
// answers. An answer counts as open for at most the time that the site waits before it, because a
// gateway may have all of it before the site records its end.
func mostOpen(exchanges []testorigin.Exchange, wait time.Duration) (most, n int) {
	type event struct {
		at   time.Time
		open int
	}
	var events []event
	for _, e := range exchanges {
		if !e.End.IsZero() {
			end := e.Start.Add(min(wait, e.End.Sub(e.Start)))
			events = append(events, event{e.Start, 1}, event{end, -1})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return a.at.Compare(b.at) })
	open := 0
	for _, e := range events {
		open += e.open
		most = max(most, open)
	}
	return most, len(events) / 2
}

// TestOrderAmongMany checks the cost of an order when 10,000 are in force. For each gateway it is
// less than 2 KB from Redis and a sixth of the processor time for reading and writing all orders.
// The order reaches all gateways within a second.
func TestOrderAmongMany(t *testing.T) {
	rig.LoadsMachine(t)
	const gateways, orders, each, maxCPU, maxBytes = 3, 9900, 20, 5 * time.Millisecond, 2048
	redis := redistest.Start(t)
	f := &orderFleet{t: t, redis: redis}
	for i := range gateways {
		f.gateways = append(f.gateways, startWithOrders(t, rig.FleetEngine(fmt.Sprint("gw", i), redis.URL(), gateways), orders))
	}
	f.meet()
	rig.Eventually(t, "redis has all orders", func() bool {
		return redis.Say("HLEN "+fleetKey) == fmt.Sprintf(":%d\r\n", orders)
	})
	rig.Pause(t.Context(), time.Second)
	cost := func(work func()) (cpu time.Duration, sent int) {
		at, before := time.Now(), sentBy(t, redis)
		used := f.cpu()
		work()
		took := time.Since(at)
		cpu, sent = f.cpu()-used, sentBy(t, redis)-before
		// The use in the same time without orders.
		before, used = sentBy(t, redis), f.cpu()
		rig.Pause(t.Context(), took)
		return cpu - (f.cpu() - used), sent - (sentBy(t, redis) - before)
	}
	var longest time.Duration
	cpu, sent := cost(func() {
		for i := range each {
			began := time.Now()
			order := fmt.Sprintf(`{"scope":"host","value":"new-%d.example"}`, i)
			given := decodeAnswer[adminapi.OrderGiven](t, askAdmin(f.gateways[i%gateways], http.MethodPost, "/robots/deny", order))
			if n, known, _ := given.Counts(); n != gateways || known != gateways {
				t.Errorf("%d of %d gateways confirmed the order", n, known)
			}
			longest = max(longest, time.Since(began))
			rig.Pause(t.Context(), 100*time.Millisecond)
		}
	})
	perCPU, perBytes := cpu/(each*gateways), sent/(each*gateways)
	t.Logf("an order among %d: %v of processor time and %d bytes for each gateway, %v at most until all have it", orders, perCPU, perBytes, longest)
	if perCPU > maxCPU {
		t.Errorf("an order takes %v of processor time at each gateway, want at most %v", perCPU, maxCPU)
	}
	if perBytes > maxBytes {
		t.Errorf("an order takes %d bytes for each gateway, want at most %d", perBytes, maxBytes)
	}
	if longest > time.Second {
		t.Errorf("an order took %v to reach all gateways, want at most 1s", longest)
	}
}

// startWithOrders starts a gateway with the given number of orders in its file.
func startWithOrders(t *testing.T, engine string, orders int) *rig.Gateway {
	t.Helper()
	var set enforce.StopSet
	for i := range orders {
		set.Held = append(set.Held, enforce.Stop{
			ID: fmt.Sprintf("order-%d", i), Scope: enforce.StopHost, Value: fmt.Sprintf("host-%d.example", i), At: time.Now().UTC(),
		})
	}
	text, err := json.Marshal(set)
	if err != nil {
		t.Fatal(err)
	}
	g := &rig.Gateway{T: t, Dir: rig.TempDir(t), Addr: rig.FreePort(t)}
	folder := filepath.Dir(g.Store())
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "stops.json"), append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := g.Start(rig.Config{Engine: engine}); err != nil {
		t.Fatal(err)
	}
	return g
}

// cpu returns the processor time that the gateways have used.
func (f *orderFleet) cpu() (sum time.Duration) {
	f.t.Helper()
	for _, g := range f.gateways {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.Cmd.Process.Pid))
		if err != nil {
			f.t.Skip(err) // only Linux has /proc
		}
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')'):]))
		for _, field := range fields[12:14] { // user and system, in hundredths of a second
			ticks, _ := strconv.Atoi(field)
			sum += time.Duration(ticks) * 10 * time.Millisecond
		}
	}
	return sum
}

// sentBy returns how many bytes Redis has sent.
func sentBy(t *testing.T, s *redistest.Server) int {
	t.Helper()
	return infoOf(t, s.Say("INFO stats"), "total_net_output_bytes:")
}
