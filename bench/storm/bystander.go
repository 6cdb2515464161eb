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

// The bystanders are the known origins and the crawler that requests their pages. They run in a
// separate process. With a higher priority, if the user may set it, that process gets a CPU even
// while the ten thousand clients and origins of the storm run. So it measures the gateway like a
// client on another machine.

// bystanderEnv is set for the bystanders' process.
const bystanderEnv = "STORM_BYSTANDER"

// order is an order to the bystanders.
type order struct {
	Addr   string // of the gateway
	Length time.Duration
}

// sight is the result of the requests to known origins.
type sight struct {
	Port      int // of the known origins; only an order sets the other fields
	Took      []seen
	Refreshes int // number of requests for robots.txt
}

// serveOrders runs in the bystanders' process: it prints the address of the known origins, and
// measures on demand.
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

// bystanders is the process of the bystanders, as the storm's process uses it.
type bystanders struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	enc *json.Encoder
	dec *json.Decoder

	known origins // to name their URLs
	first bool    // whether they have priority
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

// measure makes the bystanders request known pages for some time.
func (b *bystanders) measure(addr string, length time.Duration) (sight, error) {
	if err := b.enc.Encode(order{addr, length}); err != nil {
		return sight{}, fmt.Errorf("ordering a measurement: %w", err)
	}
	var s sight
	err := b.dec.Decode(&s)
	return s, err
}

func (b *bystanders) stop() {
	_ = b.in.Close() // they stop at its end
	_ = b.cmd.Wait()
}
