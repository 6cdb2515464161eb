// Fleet measures how long orders take in a fleet of a hundred gateways with a real Redis. It also
// simulates a day of crawling, and crawling from several regions, on a virtual clock. RESULTS.md
// has the results.
//
//	go run ./bench/fleet orders -redis redis://127.0.0.1:6379
//	go run ./bench/fleet day
//	go run ./bench/fleet regions
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/crawlgate/crawlgate/cluster"
	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/enforce"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 || !slices.Contains([]string{"orders", "day", "regions"}, args[0]) {
		return fmt.Errorf("want orders, day or regions")
	}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	url := f.String("redis", "redis://127.0.0.1:6379", "the Redis of orders; use one of its own")
	gateways := f.Int("gateways", 100, "number of gateways")
	most := f.Int("orders", 9900, "number of orders in force at the end")
	origins := f.Int("origins", 10_000_000, "number of origins in a day")
	hot := f.Int("hot", 25_000, "rulesets in the memory of a gateway: 256 MiB of them at 11 KiB")
	rate := f.Int("rate", 10_000, "requests a second of the whole fleet")
	length := f.Duration("for", 24*time.Hour, "length of a day")
	regions := f.Int("regions", 10, "number of regions, each with the same number of gateways")
	foreign := f.Float64("foreign", 0.1, "share of requests from outside the home region of their host")
	if err := f.Parse(args[1:]); err != nil {
		return err
	}
	switch args[0] {
	case "orders":
		return orders(*url, *gateways, *most)
	case "regions":
		for _, p := range []plan{eachItsOwn, oneRedis, homes} {
			newWorldwide(p, *regions, *gateways, *origins, *foreign, *length).run(*rate, *length)
		}
		return nil
	}
	for _, mode := range []mode{alone, shared, sharded} {
		newDay(mode, *gateways, *origins, *hot).run(*rate, *length)
	}
	return nil
}

// local is a gateway that has only orders.
type local struct {
	stops enforce.Stops
	name  string
}

func (l *local) Orders() enforce.StopSet { return l.stops.All() }

func (l *local) Merge(other enforce.StopSet) map[string]int {
	_ = l.stops.Update(func(o enforce.StopSet) (enforce.StopSet, error) { return o.Merge(other, time.Now()) })
	return nil
}

func (l *local) Act(context.Context, cluster.Action) (int, error) { return 0, nil }
func (l *local) Lost()                                            {}
func (l *local) LastAction() string                               { return "0-1" }
func (l *local) KeepAction(string)                                {}

// orders measures orders with few and with many of them in force.
func orders(url string, n, most int) error {
	ctx := context.Background()
	locals, fleets := make([]*local, n), make([]*cluster.Fleet, n)
	var away, failed atomic.Int64
	prefix := fmt.Sprint("bench-", os.Getpid())
	for i := range n {
		locals[i] = &local{name: fmt.Sprint("gw", i)}
		l, err := link.New(link.Config{URL: url, Prefix: prefix})
		if err != nil {
			return err
		}
		defer l.Close()
		l.Watch(func(s link.State, _ bool) {
			if !s.Up {
				away.Add(1)
			}
		})
		f := cluster.New(cluster.Config{
			Link: l, Local: locals[i], Failed: func(error) { failed.Add(1) }, Unread: func() {},
		}, cluster.Self{Name: locals[i].name}, n)
		defer func() { _ = f.Close() }()
		fleets[i] = f
	}
	for {
		if list, _ := fleets[0].Gateways(ctx); len(list) == n {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(2 * time.Second)
	for _, held := range []int{0, 1000, most} {
		var many enforce.StopSet
		for i := range held - len(locals[0].stops.List()) {
			id := fmt.Sprintf("many-%d-%d", held, i)
			many.Held = append(many.Held, enforce.Stop{ID: id, Scope: enforce.StopHost, Value: id + ".example", At: time.Now()})
		}
		began := time.Now()
		locals[0].Merge(many)
		fleets[0].Given(ctx, "x", 0)
		for slices.ContainsFunc(locals, func(l *local) bool { return len(l.stops.List()) < held }) {
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Printf("%d gateways, %d orders: all have them after %v\n", n, held, time.Since(began).Round(time.Millisecond))
		var took []time.Duration
		late := 0
		for i := range 30 {
			order := enforce.Stop{ID: fmt.Sprintf("o-%d-%d", held, i), Scope: enforce.StopHost, Value: fmt.Sprintf("o%d-%d.example", held, i), At: time.Now()}
			began := time.Now()
			if err := locals[i%n].stops.Set(order); err != nil {
				return err
			}
			answered, all, _ := fleets[i%n].Given(ctx, order.ID, 0).Counts()
			took = append(took, time.Since(began))
			late += all - answered
		}
		slices.Sort(took)
		fmt.Printf("%d gateways, %d orders: all have answered after %v (median), %v at most; %d answers missing, %d heartbeats without redis, %d calls failed\n",
			n, held, took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), late, away.Load(), failed.Load())
	}
	return nil
}
