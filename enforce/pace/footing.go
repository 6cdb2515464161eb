package pace

import (
	"hash/fnv"
	"time"
)

// footing is on what ground a request goes now.
type footing struct {
	peers  Peers
	shared bool // the shared clock decides about rates and gaps
	alone  bool // there is one, but it cannot be asked
}

func (p *Pacer) footing() footing {
	if p.shared == nil {
		return footing{}
	}
	peers := p.shared.Peers()
	peers.Count = max(peers.Count, 1)
	return footing{peers: peers, shared: peers.Up, alone: !peers.Up}
}

func (w *waiter) footing() footing {
	f := w.pacer.footing()
	// What failed w before is trusted again when it has been away and come back.
	if f.shared && w.spurned > 0 && w.pacer.now()-f.peers.For <= w.spurned {
		f.shared, f.alone = false, true
	}
	return f
}

// local is what this gateway holds a request to. Places in flight are divided
// between the gateways. So are rate and gap while they cannot ask each other;
// otherwise these are left to the shared clock.
func (f footing) local(t terms) terms {
	n := f.peers.Count
	if n > 1 && t.places > 0 {
		t.places = max(1, t.places/n)
	}
	if f.alone {
		t.interval, t.gap, t.tolerance = times(t.interval, n), times(t.gap, n), 0
	}
	return t
}

// ready is when the stop's clock is ready for w on this footing.
func (f footing) ready(w *waiter, s *stop, now instant) instant {
	c := s.clock
	switch {
	case f.shared:
		return max(now, c.blockedUntil())
	case !f.alone:
		return max(now, c.ready(s.terms))
	}
	if s.terms.unpaced() {
		return max(now, c.ready(s.terms))
	}
	c.line.crowd = float64(f.peers.Count)
	at := max(now, c.ready(f.local(s.terms)), f.alonesFrom(s.terms, now))
	if len(w.stops) > 1 || f.peers.Count == 1 {
		return at
	}
	return f.deal(s, at, now)
}

// bookedUntil is until when slots may be used that were booked before the shared
// clock went away: one for each gateway.
func (f footing) bookedUntil(t terms, now instant) instant {
	return now - f.peers.For + times(t.cost()+guard(t), f.peers.Count)
}

// alonesFrom is from when gateways on their own deal out turns: when the last of
// those slots is over.
func (f footing) alonesFrom(t terms, now instant) instant {
	return f.bookedUntil(t, now) + t.cost() + guard(t)
}

// guard is how late after its slot a request may still go, so that others can
// rely on the slots being apart; if it wakes later it books another one. It is
// added to what is booked: a twentieth of the time between two requests, but
// no less than timers are off, and 50 ms at most.
func guard(t terms) time.Duration {
	return min(max(t.cost()/20, 2*time.Millisecond), 50*time.Millisecond)
}

// deal gives each gateway that is on its own every Count-th turn of the time
// they have in common, so that also together they keep the gap.
func (f footing) deal(s *stop, at, now instant) instant {
	late, wrong := guard(s.terms), f.peers.Error
	window := max(late-2*wrong, late/4)
	if s.dealt > 0 && at <= now && s.dealt <= now && now <= s.dealt+window {
		return now
	}
	offset := f.peers.Time - now - wrong + phase(s.key)
	s.dealt = dealt(at+offset, s.terms.cost()+late, f.peers.Count, f.peers.Rank) - offset
	return s.dealt
}

// phase moves the turns of each key by another time, the same for all gateways:
// else a gateway would go to all its hosts in the same moment, and be late.
func phase(key string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return time.Duration(h.Sum32()) * time.Microsecond
}

// dealt is the first turn at or after the given time of the gateway with the
// rank, when turns of the given length go round.
func dealt(at, each time.Duration, count, rank int) time.Duration {
	round, phase := times(each, count), times(each, rank)
	turns := (at - phase + round - 1) / round
	return phase + times(round, int(turns))
}

// times is d taken n times.
func times(d time.Duration, n int) time.Duration { return time.Duration(int64(d) * int64(n)) }
