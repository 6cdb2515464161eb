package cluster

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/crawlgate/crawlgate/cluster/link"
)

// readWithin is how long requests wait until the orders in Redis are read.
const readWithin = 2 * time.Second

// gate holds up requests while it is shut. The zero value is open. It is safe for concurrent use.
type gate struct{ opened atomic.Pointer[chan struct{}] } // nil while it is open

// shut shuts the gate until open is called, or until d has passed: then it calls late.
func (g *gate) shut(d time.Duration, late func()) {
	opened := make(chan struct{})
	if g.opened.CompareAndSwap(nil, &opened) {
		time.AfterFunc(d, func() {
			if g.release(&opened) {
				late()
			}
		})
	}
}

func (g *gate) open() { g.release(g.opened.Load()) }

func (g *gate) release(opened *chan struct{}) bool {
	if opened == nil || !g.opened.CompareAndSwap(opened, nil) {
		return false
	}
	close(*opened)
	return true
}

// wait waits until the gate is open, or ctx ends.
func (g *gate) wait(ctx context.Context) {
	if opened := g.opened.Load(); opened != nil {
		select {
		case <-*opened:
		case <-ctx.Done():
		}
	}
}

// AwaitOrders waits until the orders in Redis have been read, if the gateway has just joined or
// Redis has just come back. It waits for at most two seconds, or until ctx ends. It does not wait
// while a gateway that was connected has lost Redis: then the orders that this gateway knows are
// in force.
func (f *Fleet) AwaitOrders(ctx context.Context) {
	if f != nil {
		f.gate.wait(ctx)
	}
}

// watch shuts the gate when Redis comes back: orders may have been given in the meantime.
func (f *Fleet) watch(s link.State, news bool) {
	if news && s.Up && time.Since(time.Unix(0, f.read.Load())) > 2*poll {
		f.gate.shut(readWithin, f.config.Unread)
		f.wake()
	}
}
