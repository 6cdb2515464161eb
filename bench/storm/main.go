// Command storm measures whether crawlers of known origins notice a fetch storm: 10,000 new origins asked for at once,
// of which 30 % never answer. It runs a gateway binary, origins and clients on loopback of one machine (Linux), and
// prints the latency of the known origins in three phases:
//
//   - quiet: nothing else happens.
//   - crowd: the control. As many clients as in the storm ask for known origins, and as many of them are refused as have
//     origins that hang: what their connections and requests alone cost.
//   - storm: they ask for new origins.
//
// With -pin the gateway has the machine's first CPU to itself, and clients and origins share the others: what is measured
// then is the gateway's doing alone. With -over the clients come one after the other in that time.
//
// Usage:
//
//	go build -o /tmp/crawlgate ./cmd/crawlgate && go run ./bench/storm -gateway /tmp/crawlgate -pin
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"
)

// settings are the command line.
type settings struct {
	gateway  string
	origins  int
	hang     int
	known    int
	rate     int
	phase    time.Duration
	timeout  time.Duration
	parallel int
	pin      bool
	over     time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.gateway, "gateway", "", "the crawlgate binary")
	flag.IntVar(&s.origins, "origins", 10_000, "new origins, each asked for by a client of its own (at most 60,000)")
	flag.IntVar(&s.hang, "hang", 30, "percentage of them that never answer")
	flag.IntVar(&s.known, "known", 100, "known origins")
	flag.IntVar(&s.rate, "rate", 200, "requests a second to known origins")
	flag.DurationVar(&s.phase, "phase", 10*time.Second, "length of the first two phases")
	flag.DurationVar(&s.timeout, "timeout", 20*time.Second, "the gateway's fetch timeout; the storm lasts as long and 5 s more")
	flag.IntVar(&s.parallel, "parallel", 256, "the gateway's parallel fetches")
	flag.BoolVar(&s.pin, "pin", false, "give the gateway a CPU of its own (needs two, and taskset)")
	flag.DurationVar(&s.over, "over", 0, "time in which the clients come; 0: all at once")
	flag.Parse()
	if s.pin {
		if err := stayOff(gatewayCPU); err != nil {
			log.Fatalf("leaving CPU %d to the gateway: %v", gatewayCPU, err)
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, s); err != nil {
		log.Print(err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, s settings) error {
	o, err := startOrigins(ctx, s)
	if err != nil {
		return fmt.Errorf("starting the origins: %w", err)
	}
	defer o.close()
	g, err := startGateway(ctx, s)
	if err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	defer g.stop()
	for i := range s.known { // now they are known
		c := &client{addr: g.addr}
		status, err := c.get(ctx, o.known(i))
		c.close()
		if status != 200 {
			return fmt.Errorf("first request to %s: status %d: %w", o.known(i), status, err)
		}
	}
	fmt.Printf("%d known origins at %d requests/s; %d new ones within %v, of which %d %% hang; parallel %d, timeout %v; "+
		"gateway on a CPU of its own: %v; load before: %s\n",
		s.known, s.rate, s.origins, s.over, s.hang, s.parallel, s.timeout, s.pin, load())
	known := pick(s.known, o.known)
	mixed := func(i int) string { // refused where the storm's would hang
		if o.hangs(i) {
			return o.private(i % s.known)
		}
		return known(i)
	}
	phase := func(name string, length time.Duration) {
		before := g.cpu()
		first, rest, course := measure(ctx, g.addr, s.rate, length, known)
		report(name, first, rest, course)
		fmt.Printf("%s, CPU time of the gateway: %v in %v\n", name, g.cpu()-before, length)
	}
	phase("quiet", s.phase)
	for _, next := range []struct {
		name   string
		length time.Duration
		target func(int) string
	}{{"crowd", s.over + s.phase, mixed}, {"storm", s.over + s.timeout + 5*time.Second, o.fresh}} {
		clients, err := gather(ctx, g.addr, s.origins)
		if err != nil {
			return fmt.Errorf("connecting the clients of the %s: %w", next.name, err)
		}
		done := make(chan tally, 1)
		go func() { done <- clients.ask(ctx, s.over, next.target) }()
		phase(next.name, next.length)
		fmt.Printf("%s, the clients themselves: %v\n", next.name, <-done)
	}
	fresh, again := o.fetches()
	fmt.Printf("robots.txt was fetched from %d of %d new origins, and %d times from the %d known ones\n", fresh, s.origins, again, s.known)
	return ctx.Err()
}

// pick takes the i-th of n in turn.
func pick(n int, url func(int) string) func(int) string {
	return func(i int) string { return url(i % n) }
}

// load is the machine's load average over a minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
