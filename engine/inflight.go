package engine

import (
	"context"
	"errors"
	"sync"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// inflight is the register of all that is on its way to a site: requests from before their decision
// to the last byte of their answer, blind tunnels, fetches of robots.txt. An order of the kill
// switch goes through it and ends what it stops.
//
// Requests register before they are decided, and an order takes effect before the scan, so none
// slips between.
//
// The zero value is ready for use. It is safe for concurrent use.
type inflight struct {
	mu      sync.Mutex
	entries map[*Entry]struct{}
}

// Entry is one of a register. A nil entry is in none.
type Entry struct {
	in     *inflight
	origin origin.Origin
	agent  string // as the kill switch knows it; empty for what no agent asked for
	cancel context.CancelCauseFunc
}

// Enter registers a request to an origin for as long as it runs. The context that it returns ends
// when an order of the kill switch stops the request, see [StoppedBy]. agent is its name for the
// kill switch. The caller must call Leave.
func (e *Engine) Enter(ctx context.Context, o origin.Origin, agent string) (context.Context, *Entry) {
	return e.kills.inflight.enter(ctx, o, agent)
}

func (f *inflight) enter(ctx context.Context, o origin.Origin, agent string) (context.Context, *Entry) {
	ctx, cancel := context.WithCancelCause(ctx)
	e := &Entry{f, o, agent, cancel}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.entries == nil {
		f.entries = make(map[*Entry]struct{})
	}
	f.entries[e] = struct{}{}
	return ctx, e
}

// Leave takes the entry out of the register and ends its context.
func (e *Entry) Leave() {
	if e == nil {
		return
	}
	e.in.mu.Lock()
	delete(e.in.entries, e)
	e.in.mu.Unlock()
	e.cancel(nil)
}

// Cancel ends the context of the entry for another reason than an order.
func (e *Entry) Cancel(why error) { e.cancel(why) }

// stop ends all that the orders stop, and returns how many that were.
func (f *inflight) stop(switches *enforce.KillSwitch) int {
	var requests, fetches []match
	for _, m := range f.matches(switches) {
		if m.agent == "" {
			fetches = append(fetches, m)
		} else {
			requests = append(requests, m)
		}
	}
	// A request that waits for a fetch is to learn of the order, and not that its fetch has ended.
	for _, m := range append(requests, fetches...) {
		m.cancel(&StoppedError{m.order})
	}
	return len(requests) + len(fetches)
}

// match is an entry that an order stops.
type match struct {
	*Entry
	order enforce.Kill
}

// matches collects the entries to end, so that nothing is canceled under the lock.
func (f *inflight) matches(switches *enforce.KillSwitch) (list []match) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for e := range f.entries {
		if order, stopped := switches.Match(e.origin, e.agent); stopped {
			list = append(list, match{e, order})
		}
	}
	return list
}

// StoppedError is the cause of a context that the kill switch ended.
type StoppedError struct{ Order enforce.Kill }

// Error names the order, with its author and reason.
func (e *StoppedError) Error() string { return "stopped while under way: " + e.Order.String() }

// StoppedBy returns the order that ended a context, nil if none did.
func StoppedBy(ctx context.Context) *StoppedError {
	stop, _ := errors.AsType[*StoppedError](context.Cause(ctx))
	return stop
}
