// Command overhead measures what a request through the gateway costs, with and without robots.txt.
//
// It runs gateways that differ in one respect, each in its own process: one that enforces, one with
// `mode off`, with -log one that seals its log, and one with a bare handler that forwards through
// the same transport without a decision. The same load is sent to one after another, in a new order
// each round, and the CPU time of each is read from /proc. They are restarted -starts times, also
// in a new order, because of two equal processes one may be faster as long as they run. The origin
// and the load run in this process, so they are not counted.
//
// With -https it measures interception instead: there is one gateway, and the ways to it and from
// it alternate.
//
//	go run ./bench/overhead [-https] [-requests 20000] [-rounds 6] [-starts 1] [-connections 64] [-log] [-ways 'enforce|sealed']
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	_ "github.com/caddyserver/caddy/v2/modules/standard"

	_ "github.com/crawlgate/crawlgate"
)

// options are the options of the command line.
type options struct {
	requests    int // per gateway and round
	rounds      int // per start
	starts      int
	connections int
	ways        *regexp.Regexp
	log         bool
	https       bool
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "run" { // this program also is the gateway
		caddycmd.Main()
		return
	}
	o := options{ways: regexp.MustCompile("")}
	flag.IntVar(&o.requests, "requests", 20_000, "requests per gateway and round")
	flag.IntVar(&o.rounds, "rounds", 6, "rounds per start")
	flag.IntVar(&o.starts, "starts", 1, "number of starts of the gateways")
	flag.IntVar(&o.connections, "connections", 64, "keep-alive connections to the gateway")
	flag.BoolVar(&o.https, "https", false, "measure interception")
	flag.Func("ways", "only the `ways` that match this regular expression; the others are compared with the first", func(text string) (err error) {
		o.ways, err = regexp.Compile(text)
		return err
	})
	flag.BoolVar(&o.log, "log", false, "write the access log to a file")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	sites := make(map[upstream]*site)
	for _, kind := range []upstream{originHTTP, originTLS, originHTTP2} {
		sites[kind] = startOrigin(kind)
		defer sites[kind].close()
	}
	if o.https {
		return measureHTTPS(ctx, o, sites)
	}
	return measure(ctx, o, sites)
}

// measure prints a line per round, the medians, and how much more each took than the first, with
// the standard error.
func measure(ctx context.Context, o options, sites map[upstream]*site) error {
	compared := slices.DeleteFunc(slices.Clone(variants), func(v variant) bool {
		return v.name == "sealed" && !o.log || !o.ways.MatchString(v.name)
	})
	if len(compared) == 0 {
		return errors.New("no gateway to measure: see -ways")
	}
	fmt.Printf("%d requests a round over %d connections; CPU µs a request\n%-7s", o.requests, o.connections, "round")
	for _, v := range compared {
		fmt.Printf("%10s", v.name)
	}
	fmt.Println()
	costs := make([][]float64, len(compared))
	for start := range o.starts {
		if err := measureStart(ctx, o, sites, compared, start, costs); err != nil {
			return err
		}
	}
	printRow("median", costs, median)
	printRow("more", costs, func(c []float64) float64 { return mean(difference(c, costs[0])) })
	printRow("±", costs, func(c []float64) float64 { return standardError(difference(c, costs[0])) })
	return nil
}

// measureStart starts the gateways, and adds their costs per round.
func measureStart(ctx context.Context, o options, sites map[upstream]*site, compared []variant, start int, costs [][]float64) error {
	plain := way{site: sites[originHTTP], dial: absolute}
	gateways := make([]*gateway, len(compared))
	for turn := range compared {
		i := (start + turn) % len(compared)
		var err error
		if gateways[i], err = startGateway(ctx, compared[i], sites[originTLS], o.log); err != nil {
			return fmt.Errorf("starting the gateway %q: %w", compared[i].name, err)
		}
		defer gateways[i].Stop()
		if _, err := gateways[i].load(ctx, plain, o.connections, o.requests/4); err != nil { // warm up
			return fmt.Errorf("loading the gateway %q: %w", compared[i].name, err)
		}
	}
	for round := range o.rounds {
		for turn := range gateways {
			i := (start + round + turn) % len(gateways)
			used, err := gateways[i].load(ctx, plain, o.connections, o.requests)
			if err != nil {
				return fmt.Errorf("loading the gateway %q: %w", compared[i].name, err)
			}
			costs[i] = append(costs[i], float64(used)/float64(time.Microsecond)/float64(o.requests))
		}
		printRow(fmt.Sprint(len(costs[0])), costs, func(c []float64) float64 { return c[len(costs[0])-1] })
	}
	return nil
}

func printRow(label string, costs [][]float64, pick func([]float64) float64) {
	fmt.Printf("%-7s", label)
	for _, c := range costs {
		fmt.Printf("%10.1f", pick(c))
	}
	fmt.Println()
}

// difference is taken within each round, so that it does not include what slows the machine down
// for some rounds.
func difference(a, b []float64) []float64 {
	d := make([]float64, len(a))
	for i := range a {
		d[i] = a[i] - b[i]
	}
	return d
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// standardError returns the standard error of the mean.
func standardError(values []float64) float64 {
	m, sum := mean(values), 0.0
	for _, v := range values {
		sum += (v - m) * (v - m)
	}
	return math.Sqrt(sum / float64(len(values)-1) / float64(len(values)))
}

func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}
