// Command storm measures whether crawlers of known origins notice a fetch storm: 10,000 new origins
// are requested at once, and 30 % of these never answer. It runs a gateway binary, origins and
// clients on the loopback device of one machine (Linux), and prints the latency of the known
// origins in three phases:
//
//   - quiet: nothing else happens.
//   - crowd: the control. As many clients as in the storm request pages of known origins, and as
//     many are refused as origins hang in the storm. It shows the cost of connections and requests
//     alone.
//   - storm: they request pages of new origins.
//
// The known origins and their crawler run in a separate process. The crawler keeps its connections
// open from the first phase on, like real crawlers.
//
// With -pin the gateway has the machine's first CPU to itself, and clients and origins share the
// others, so only the gateway's own work is measured. With -over the clients start one after
// another within that time.
//
// Usage:
//
//	go build -o /tmp/crawlgate ./cmd/crawlgate && go run ./bench/storm -gateway /tmp/crawlgate -pin
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/bench/process"
)

// settings are the options of the command line.
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
	do := run
	if os.Getenv(bystanderEnv) != "" {
		do = serveOrders
	}
	if err := do(ctx, s); err != nil {
		log.Print(err)
		stop()
		os.Exit(1)
	}
}

// storm is one run.
type storm struct {
	settings
	to    *process.Gateway
	sites *origins
	by    *bystanders

	refreshes int // of known origins
}

func run(ctx context.Context, set settings) error {
	o, err := startOrigins(ctx, set)
	if err != nil {
		return fmt.Errorf("starting the origins: %w", err)
	}
	defer o.close()
	by, err := startBystanders(ctx)
	if err != nil {
		return err
	}
	defer by.stop()
	g, err := startGateway(ctx, set)
	if err != nil {
		return fmt.Errorf("starting the gateway: %w", err)
	}
	defer g.Stop()
	s := &storm{settings: set, to: g, sites: o, by: by}
	if err := s.introduce(ctx); err != nil {
		return err
	}
	fmt.Printf("%d known origins at %d requests/s, with priority: %v; %d new ones within %v, %d %% of them hang; parallel %d, timeout %v; "+
		"gateway on a CPU of its own: %v; load before: %s\n",
		s.known, s.rate, by.first, s.origins, s.over, s.hang, s.parallel, s.timeout, s.pin, load())
	if err := s.watch("quiet", s.phase); err != nil {
		return err
	}
	mixed := func(i int) string { // refused if the origin would hang in the storm
		if o.hangs(i) {
			return o.private(i % s.known)
		}
		return o.known(i % s.known)
	}
	if err := s.rush(ctx, "crowd", s.phase, mixed); err != nil {
		return err
	}
	if err := s.rush(ctx, "storm", s.timeout+5*time.Second, o.fresh); err != nil {
		return err
	}
	fresh, _ := o.fetches()
	fmt.Printf("robots.txt was fetched from %d of %d new origins, and %d times from the %d known ones; at most the gateway held %s\n",
		fresh, s.origins, s.refreshes, s.known, g.Peak())
	return ctx.Err()
}

// introduce sends a first request to each known origin.
func (s *storm) introduce(ctx context.Context) error {
	for i := range s.known {
		for _, page := range []string{s.by.known.known(i), s.sites.known(i)} {
			c := &client{addr: s.to.Addr}
			status, err := c.get(ctx, page)
			c.close()
			if status != 200 {
				return fmt.Errorf("first request to %s: status %d: %w", page, status, err)
			}
		}
	}
	return nil
}

// rush makes a crowd send its requests while the bystanders measure.
func (s *storm) rush(ctx context.Context, name string, length time.Duration, target func(int) string) error {
	clients, err := gather(ctx, s.to.Addr, s.origins)
	if err != nil {
		return fmt.Errorf("connecting the clients of the %s: %w", name, err)
	}
	done := make(chan tally, 1)
	go func() { done <- clients.ask(ctx, s.over, target) }()
	if err := s.watch(name, s.over+length); err != nil {
		return err
	}
	fmt.Printf("%s, the clients themselves: %v\n", name, <-done)
	return nil
}

// watch measures a phase of the given length.
func (s *storm) watch(name string, length time.Duration) error {
	before, beforeErr := s.to.CPU()
	saw, err := s.by.measure(s.to.Addr, length)
	after, afterErr := s.to.CPU()
	if err := errors.Join(beforeErr, err, afterErr); err != nil {
		return fmt.Errorf("measuring the phase %s: %w", name, err)
	}
	report(name, length, saw.Took)
	fmt.Printf("%s, CPU time of the gateway: %v in %v\n", name, after-before, length)
	s.refreshes = saw.Refreshes
	return nil
}

// load returns the machine's load average over a minute.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
