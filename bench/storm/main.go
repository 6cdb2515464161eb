// Command storm measures whether crawlers of known origins notice a fetch storm: 10,000 new origins asked for at once,
// of which 30 % never answer. It runs a gateway binary, origins and clients on loopback of one machine (Linux), and
// prints the latency of the known origins in three phases:
//
//   - quiet: nothing else happens.
//   - crowd: as many clients as in the storm, all at once, ask for known origins: what the connections alone cost on a
//     machine that runs the clients too.
//   - storm: they ask for new origins.
//
// Usage:
//
//	go build -o /tmp/crawlgate ./cmd/crawlgate && go run ./bench/storm -gateway /tmp/crawlgate
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
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
	flag.Parse()
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
	fmt.Printf("%d known origins at %d requests/s; %d new ones, of which %d %% hang; %d fetches at once, %v each\n",
		s.known, s.rate, s.origins, s.hang, s.parallel, s.timeout)
	known := pick(s.known, o.known)
	phase := func(name string, length time.Duration) {
		first, rest := measure(ctx, g.addr, s.rate, length, known)
		report(name, first, rest)
	}
	phase("quiet", s.phase)
	for _, next := range []struct {
		name   string
		length time.Duration
		target func(int) string
	}{{"crowd", s.phase, known}, {"storm", s.timeout + 5*time.Second, o.fresh}} {
		clients, err := gather(ctx, g.addr, s.origins)
		if err != nil {
			return fmt.Errorf("connecting the clients of the %s: %w", next.name, err)
		}
		done := make(chan tally, 1)
		go func() { done <- clients.ask(ctx, next.target) }()
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
