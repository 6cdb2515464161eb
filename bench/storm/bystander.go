package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// The bystanders are the known origins and the crawler that asks for their pages. They are a separate process. With a
// higher priority, which the user must be allowed to set, that process always gets a CPU beside the storm's ten thousand
// clients and origins. So it measures the gateway as another machine would.

// bystanderEnv tells a process that it is that one.
const bystanderEnv = "STORM_BYSTANDER"

// order is what the bystanders are told to do.
type order struct {
	Addr   string // of the gateway
	Length time.Duration
}

// sight is the result of the known origins' requests.
type sight struct {
	Port      int // of the known origins; the rest is for an order only
	Took      []seen
	Refreshes int // robots.txt files that were asked for
}

// serveOrders is the process of the bystanders: it says where the known origins are, and measures on demand.
func serveOrders(ctx context.Context, s settings) error {
	o, err := startOrigins(ctx, s)
	if err != nil {
		return err
	}
	defer o.close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(sight{Port: o.port}); err != nil {
		return err
	}
	var kept crowd
	for in := json.NewDecoder(os.Stdin); ; {
		var next order
		switch err := in.Decode(&next); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading an order: %w", err)
		}
		if kept == nil {
			if kept, err = gather(ctx, next.Addr, 128); err != nil {
				return err
			}
		}
		took := measure(ctx, kept, s.rate, next.Length, func(i int) string { return o.known(i % s.known) })
		_, refreshes := o.fetches()
		if err := out.Encode(sight{Port: o.port, Took: took, Refreshes: refreshes}); err != nil {
			return err
		}
	}
}

// bystanders is that process, seen from the other.
type bystanders struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder

	known origins // to name their URLs
	first bool    // they have priority
}

func startBystanders(ctx context.Context) (*bystanders, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := append([]string{self}, os.Args[1:]...)
	b := &bystanders{first: os.Geteuid() == 0}
	if b.first {
		command = append([]string{"nice", "-n", strconv.Itoa(-20)}, command...)
	}
	b.cmd = exec.CommandContext(ctx, command[0], command[1:]...)
	b.cmd.Env = append(os.Environ(), bystanderEnv+"=1")
	b.cmd.Stderr = os.Stderr
	if b.in, err = b.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	b.enc, b.dec = json.NewEncoder(b.in), json.NewDecoder(out)
	if err := b.cmd.Start(); err != nil {
		return nil, err
	}
	var hello sight
	if err := b.dec.Decode(&hello); err != nil {
		b.stop()
		return nil, fmt.Errorf("starting the known origins: %w", err)
	}
	b.known.port = hello.Port
	return b, nil
}

// measure has them ask for known pages for a time.
func (b *bystanders) measure(addr string, length time.Duration) (sight, error) {
	if err := b.enc.Encode(order{addr, length}); err != nil {
		return sight{}, fmt.Errorf("ordering a measurement: %w", err)
	}
	var s sight
	err := b.dec.Decode(&s)
	return s, err
}

func (b *bystanders) stop() {
	_ = b.in.Close() // at its end they stop
	_ = b.cmd.Wait()
}
