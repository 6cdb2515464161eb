package engine

import (
	"hash/maphash"
	"net/http"
	"sync/atomic"
	"time"
)

// OtherAgent stands for all senders that no agent block names.
const OtherAgent = "other"

// earlyUnit is how exactly times are kept: with 32 bits, for 13 years.
const earlyUnit = 100 * time.Millisecond

// promises remembers which requests were told to come back later, and when. It has room for 8,192
// in 64 KiB; a further one takes the place of another, which is then not missed. Each place has 32
// bits of a hash and the time, so it is read and written without a lock.
type promises struct {
	start  time.Time
	seed   maphash.Seed
	last   atomic.Int64 // the latest of the times: after it nobody can be early
	places [8192]atomic.Uint64
}

var promised = promises{start: time.Now(), seed: maphash.MakeSeed()}

// CameEarly reports whether the agent was told at its last try of the request to come back later.
func CameEarly(agent string, r *http.Request) bool { return promised.early(agent, r, time.Now()) }

// ComeBack notes that the agent was told to come back with the request at the given time.
func ComeBack(agent string, r *http.Request, at time.Time) { promised.note(agent, r, at) }

func (p *promises) early(agent string, r *http.Request, now time.Time) bool {
	t := p.units(now)
	if t >= p.last.Load() {
		return false
	}
	hash := p.hash(agent, r)
	kept := p.places[hash%uint64(len(p.places))].Load()
	return kept>>32 == hash>>32 && t < int64(kept&0xffffffff)
}

func (p *promises) note(agent string, r *http.Request, at time.Time) {
	t, hash := p.units(at), p.hash(agent, r)
	p.places[hash%uint64(len(p.places))].Store(hash>>32<<32 | uint64(uint32(t)))
	for last := p.last.Load(); last < t && !p.last.CompareAndSwap(last, t); {
		last = p.last.Load()
	}
}

func (p *promises) units(at time.Time) int64 { return int64(at.Sub(p.start) / earlyUnit) }

func (p *promises) hash(agent string, r *http.Request) uint64 {
	var h maphash.Hash
	h.SetSeed(p.seed)
	for _, s := range [...]string{agent, r.Method, r.URL.Scheme, r.URL.Host, r.URL.Path, r.URL.RawQuery} {
		_, _ = h.WriteString(s) // it takes everything
		_ = h.WriteByte(0)
	}
	return h.Sum64()
}
