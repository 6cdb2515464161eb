package crawlgate

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// underway is the register of all that is on its way to a site: requests from before their decision to the last octet of
// their answer, blind tunnels, fetches of robots.txt. An order of the kill switch goes through it and ends what it stops.
//
// Who enters decides afterwards; who gives an order puts it in force before it goes through the register. So whatever
// was decided without the order is found here.
//
// The zero value is ready for use. It is safe for concurrent use, and costs a request no goroutine: a place in a list
// and a context.
type underway struct {
	lanes [lanes]lane
}

// lanes is how many lists there are, each with its own lock: a power of two.
const lanes = 32

type lane struct {
	mu    sync.Mutex
	first *passage
	_     [48]byte // keeps neighbouring locks on different cache lines
}

// passage is one entry. It may be part of another value, and must not be copied.
type passage struct {
	origin origin.Origin
	agent  string // as the kill switch knows it; empty for what no agent asked for
	cancel context.CancelCauseFunc

	lane       *lane
	prev, next *passage
}

// enter registers p and returns the context that an order ends. The caller must call leave.
func (u *underway) enter(ctx context.Context, p *passage, o origin.Origin, agent string) context.Context {
	ctx, p.cancel = context.WithCancelCause(ctx)
	p.origin, p.agent = o, agent
	p.lane = &u.lanes[rand.Uint32()%lanes] //nolint:gosec // it spreads load, and guards nothing
	p.lane.mu.Lock()
	p.next = p.lane.first
	if p.next != nil {
		p.next.prev = p
	}
	p.lane.first = p
	p.lane.mu.Unlock()
	return ctx
}

// leave takes p out of the register and ends its context. It does nothing for a passage that never entered.
func (p *passage) leave() {
	if p.lane == nil {
		return
	}
	p.lane.mu.Lock()
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		p.lane.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	p.lane.mu.Unlock()
	p.lane, p.prev, p.next = nil, nil, nil
	p.cancel(nil)
}

// stop ends all that the orders in force stop, and returns how many that were.
func (u *underway) stop(switches *enforce.KillSwitch) int {
	var requests, fetches []hit
	for i := range u.lanes {
		for _, h := range u.lanes[i].stopped(switches) {
			if h.agent == "" {
				fetches = append(fetches, h)
			} else {
				requests = append(requests, h)
			}
		}
	}
	// A request that waits for a fetch is to learn of the order, and not that its fetch has ended.
	for _, h := range append(requests, fetches...) {
		h.cancel(&stoppedError{h.order})
	}
	return len(requests) + len(fetches)
}

// hit is a passage that an order stops.
type hit struct {
	agent  string // empty for a fetch of robots.txt
	cancel context.CancelCauseFunc
	order  enforce.Kill
}

// stopped collects the hits, so that nothing is canceled under the lock.
func (l *lane) stopped(switches *enforce.KillSwitch) (hits []hit) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := l.first; p != nil; p = p.next {
		if order, stopped := switches.Match(p.origin, p.agent); stopped {
			hits = append(hits, hit{p.agent, p.cancel, order})
		}
	}
	return hits
}

// stoppedError is the cause of a context that the kill switch ended.
type stoppedError struct{ order enforce.Kill }

// Error says who stopped what and why.
func (e *stoppedError) Error() string { return "stopped while under way: " + e.order.String() }

// stopOf returns the order that ended a context, nil if none did.
func stopOf(ctx context.Context) *stoppedError {
	stop, _ := errors.AsType[*stoppedError](context.Cause(ctx))
	return stop
}
