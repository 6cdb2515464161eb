package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"sync"
	"time"
)

// client is one connection to the gateway.
type client struct {
	addr string
	conn net.Conn
	r    *bufio.Reader
}

func (c *client) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// dial connects unless it is connected.
func (c *client) dial(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", c.addr)
	if err != nil {
		return err
	}
	c.conn, c.r = conn, bufio.NewReaderSize(conn, 2<<10)
	return nil
}

// get requests an absolute URL and returns the status.
func (c *client) get(ctx context.Context, rawURL string) (int, error) {
	if err := c.dial(ctx); err != nil {
		return 0, err
	}
	u, err := url.Parse(rawURL)
	if err != nil {
		return 0, err
	}
	_ = c.conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err = fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Storm/1.0\r\n\r\n", rawURL, u.Host); err == nil {
		var resp *http.Response
		if resp, err = http.ReadResponse(c.r, &http.Request{Method: http.MethodGet}); err == nil {
			defer func() { _ = resp.Body.Close() }() // the body was read to its end
			if _, err = io.Copy(io.Discard, resp.Body); err == nil && !resp.Close {
				return resp.StatusCode, nil
			}
			c.close()
			return resp.StatusCode, err
		}
	}
	c.close()
	return 0, err
}

// tally counts the results of requests.
type tally struct {
	took     []time.Duration
	statuses map[int]int
}

// String returns the statuses (0: no answer) and the quantiles of the time.
func (t tally) String() string {
	if len(t.took) == 0 {
		return "no requests"
	}
	at := func(permille int) time.Duration { return t.quantile(permille).Round(10 * time.Microsecond) }
	return fmt.Sprintf("%d requests, by status %v; p50 %v, p90 %v, p99 %v, p99.9 %v, max %v",
		len(t.took), t.statuses, at(500), at(900), at(990), at(999), at(1000))
}

// quantile returns the time within which permille of a thousand requests were answered.
func (t tally) quantile(permille int) time.Duration {
	took := slices.Sorted(slices.Values(t.took))
	if len(took) == 0 {
		return 0
	}
	return took[min(len(took)*permille/1000, len(took)-1)]
}

// seen is a request to a known origin.
type seen struct {
	Since  time.Duration // from the beginning of the phase to when the request was due
	Took   time.Duration
	Status int
}

// report prints the results of a phase for the known origins: its burst, the rest, and each second.
func report(phase string, length time.Duration, all []seen) {
	var first, rest, whole tally
	seconds := make([]tally, length/time.Second+1)
	for _, s := range all {
		part := &rest
		if s.Since < burst {
			part = &first
		}
		part.add(s.Status, s.Took)
		whole.add(s.Status, s.Took)
		seconds[min(int(s.Since/time.Second), len(seconds)-1)].add(s.Status, s.Took)
	}
	fmt.Printf("%s, first %v: %v\n%s, then: %v\n%s, p99 as a whole: %v; of each second in ms:",
		phase, burst, first, phase, rest, phase, whole.quantile(990).Round(10*time.Microsecond))
	for i := range seconds {
		fmt.Printf(" %d", seconds[i].quantile(990).Milliseconds())
	}
	fmt.Println()
}

func (t *tally) add(status int, took time.Duration) {
	if t.statuses == nil {
		t.statuses = make(map[int]int)
	}
	t.statuses[status]++
	t.took = append(t.took, took)
}

// burst is the time at the beginning of a phase that is reported separately: the machine, which
// also runs the clients, is then busy with their requests.
const burst = 3 * time.Second

// measure requests URLs at a fixed rate. Each time counts from the moment at which the request was
// due, so a gateway that stalls does not slow its own measurement down.
func measure(ctx context.Context, kept crowd, rate int, length time.Duration, target func(int) string) []seen {
	type job struct {
		i  int
		at time.Time
	}
	jobs := make(chan job, rate*int(length/time.Second+1))
	var mu sync.Mutex
	var all []seen
	var wg sync.WaitGroup
	began := time.Now()
	for _, cl := range kept {
		wg.Go(func() {
			for j := range jobs {
				status, _ := cl.get(ctx, target(j.i)) // no answer is status 0
				s := seen{j.at.Sub(began), time.Since(j.at), status}
				mu.Lock()
				all = append(all, s)
				mu.Unlock()
			}
		})
	}
	pause := time.Second / time.Duration(rate)
	for i := 0; time.Since(began) < length && ctx.Err() == nil; i++ {
		at := began.Add(time.Duration(i) * pause)
		time.Sleep(time.Until(at))
		jobs <- job{i, at}
	}
	close(jobs)
	wg.Wait()
	return all
}

// crowd is a number of clients, each connected to the gateway, that send their requests at once.
type crowd []*client

// gather connects n clients, some at a time, since only their requests are measured.
func gather(ctx context.Context, addr string, n int) (crowd, error) {
	c := make(crowd, n)
	for i := range c {
		c[i] = &client{addr: addr}
		if err := c[i].dial(ctx); err != nil {
			return c, err
		}
	}
	return c, nil
}

// ask makes each client send one request, all within the given time.
func (c crowd) ask(ctx context.Context, over time.Duration, target func(int) string) tally {
	var mu sync.Mutex
	var all tally
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i, cl := range c {
		wg.Go(func() {
			defer cl.close()
			<-start
			time.Sleep(over * time.Duration(i) / time.Duration(len(c)))
			began := time.Now()
			status, _ := cl.get(ctx, target(i)) // no answer is status 0
			took := time.Since(began)
			mu.Lock()
			defer mu.Unlock()
			all.add(status, took)
		})
	}
	close(start)
	wg.Wait()
	return all
}
