package redisclock

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/pace"
)

// leaseFor is how long a place stays taken after the gateway that has it was last heard of it: it
// says so three times within that time.
const leaseFor = 30 * time.Second

// leases are the places that this gateway has, no more than it has requests in flight and
// reservations, and those that it is about to give back.
type leases struct {
	count       atomic.Uint64
	renew, give chan struct{}

	mu    sync.Mutex
	held  map[string][]string // the keys of each lease
	calls rueidis.Commands    // that give places back
	after []func()            // what to do then
}

// signal has the one who receives from c look soon.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *leases) open(tokens []token) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tokens {
		if len(t.places) > 0 {
			l.held[t.lease] = append(l.held[t.lease], t.places...)
		}
	}
}

// end takes the lease of a reservation out, and returns its id and keys.
func (l *leases) end(tokens []token) (id string, keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range tokens {
		id = t.lease
	}
	keys = l.held[id]
	delete(l.held, id)
	return id, keys
}

// Done implements pace.Shared: one call for each place, in a pipeline with others.
func (k *Clock) Done(r pace.Reservation, after func()) {
	tokens, _ := r.Token.([]token)
	l := &k.leases
	id, keys := l.end(tokens)
	if len(keys) == 0 || !k.link.State().Up || k.ctx.Err() != nil {
		after() // it has none, or its lease runs out
		return
	}
	l.mu.Lock()
	for _, key := range keys {
		l.calls = append(l.calls, k.link.Client().B().Zrem().Key(key).Member(id).Build())
	}
	l.after = append(l.after, after)
	l.mu.Unlock()
	signal(l.give)
}

// keepLeases gives places back, and renews those that are taken: in time, and at once if Redis may
// have forgotten them.
func (k *Clock) keepLeases() {
	tick := time.NewTicker(leaseFor / 3)
	defer tick.Stop()
	for k.ctx.Err() == nil {
		select {
		case <-k.leases.give:
		case <-k.leases.renew:
			k.renewLeases()
		case <-tick.C:
			k.renewLeases()
		case <-k.ctx.Done():
		}
		k.giveBack()
	}
}

// giveBack gives back what is over. If that fails, the leases run out.
func (k *Clock) giveBack() {
	l := &k.leases
	l.mu.Lock()
	calls, all := l.calls, l.after
	l.calls, l.after = nil, nil
	l.mu.Unlock()
	k.pipeline(calls)
	for _, after := range all {
		after()
	}
}

func (k *Clock) renewLeases() {
	now, l := k.link.Now(), &k.leases
	if now == 0 {
		return
	}
	l.mu.Lock()
	held := maps.Clone(l.held)
	l.mu.Unlock()
	until := float64(now+leaseFor.Milliseconds()) * 1000
	var calls rueidis.Commands
	for id, keys := range held {
		for _, key := range keys {
			b := k.link.Client().B()
			calls = append(calls, b.Zadd().Key(key).ScoreMember().ScoreMember(until, id).Build(),
				b.Pexpire().Key(key).Milliseconds(4*leaseFor.Milliseconds()).Build())
		}
	}
	k.pipeline(calls)
}

// pipeline makes the calls in one round trip to each node, unless Redis is away.
func (k *Clock) pipeline(calls rueidis.Commands) {
	if len(calls) == 0 || !k.link.State().Up {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), link.Timeout)
	defer cancel()
	_ = k.link.Client().DoMulti(ctx, calls...)
}
