package redisclock

import (
	"context"
	"maps"
	"slices"
	"strconv"
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

// maxOver bounds the places that are given back once Redis is there again. Others run out.
const maxOver = 10_000

// leases are the places that this gateway has, no more than it has requests in flight and
// reservations, and those that it is about to give back.
type leases struct {
	count       atomic.Uint64
	renew, give chan struct{}

	mu    sync.Mutex
	held  map[string][]string // the keys of each lease
	over  []place             // to give back
	after []func()            // what to do then
}

// place is one place of a lease.
type place struct{ key, lease string }

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

// Hold implements pace.Shared: the leases are written when Redis is there again.
func (k *Clock) Hold(demands []pace.Demand) pace.Reservation {
	t := token{lease: k.nextLease()}
	for _, p := range inBuckets(demands) {
		_, places := k.keys(p)
		t.places = append(t.places, places...)
	}
	k.leases.open([]token{t})
	return pace.Reservation{Token: []token{t}}
}

func (k *Clock) nextLease() string {
	return k.link.Process + strconv.FormatUint(k.leases.count.Add(1), 10)
}

// Done implements pace.Shared: one call for each place, in a pipeline with others.
func (k *Clock) Done(r pace.Reservation, after func()) {
	tokens, _ := r.Token.([]token)
	id, keys := k.leases.end(tokens)
	if len(keys) == 0 || k.ctx.Err() != nil {
		after() // it has none, or its lease runs out
		return
	}
	k.leases.drop(id, keys, after)
}

// drop has places given back soon, and then calls after.
func (l *leases) drop(lease string, keys []string, after func()) {
	l.mu.Lock()
	for _, key := range keys {
		l.over = append(l.over, place{key, lease})
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
			k.renewLeases(true)
		case <-tick.C:
			k.renewLeases(false)
		case <-k.ctx.Done():
		}
		k.giveBack()
	}
}

// giveBack returns the places of requests that have ended. While Redis is unreachable, it returns
// them only at this gateway.
func (k *Clock) giveBack() {
	l, up := &k.leases, k.link.State().Up
	l.mu.Lock()
	var over []place
	if up {
		over, l.over = l.over, nil
	} else if len(l.over) > maxOver {
		l.over = nil
	}
	all := l.after
	l.after = nil
	l.mu.Unlock()
	if len(over) > 0 {
		calls := make(rueidis.Commands, len(over))
		for i, p := range over {
			calls[i] = k.link.Client().B().Zrem().Key(p.key).Member(p.lease).Build()
		}
		k.pipeline(calls) // if that fails, they run out
	}
	for _, after := range all {
		after()
	}
}

// renewLeases writes the leases that are held, if Redis has forgotten them, or moves their end.
func (k *Clock) renewLeases(forgotten bool) {
	now, l := k.link.Now(), &k.leases
	if now == 0 || !k.link.State().Up {
		return // the link tells when it is there again
	}
	l.mu.Lock()
	held := maps.Clone(l.held)
	l.mu.Unlock()
	until := float64(now+leaseFor.Milliseconds()) * 1000
	var calls rueidis.Commands
	for id, keys := range held {
		for _, key := range keys {
			b := k.link.Client().B()
			// A lease that has been given back in the meantime must not come back by a renewal in time.
			add := b.Zadd().Key(key).Xx().ScoreMember().ScoreMember(until, id).Build()
			if forgotten {
				add = b.Zadd().Key(key).ScoreMember().ScoreMember(until, id).Build()
			}
			calls = append(calls, add, b.Pexpire().Key(key).Milliseconds(4*leaseFor.Milliseconds()).Build())
		}
	}
	if !k.pipeline(calls) && forgotten {
		time.AfterFunc(renewAgain, func() { signal(l.renew) })
	}
}

// renewAgain is how soon leases that Redis has forgotten are written again if that fails.
const renewAgain = 200 * time.Millisecond

// pipeline makes the calls in one round trip to each node. It reports whether all succeeded.
func (k *Clock) pipeline(calls rueidis.Commands) bool {
	if len(calls) == 0 {
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), link.Timeout)
	defer cancel()
	return !slices.ContainsFunc(k.link.Client().DoMulti(ctx, calls...), func(r rueidis.RedisResult) bool { return r.Error() != nil })
}
