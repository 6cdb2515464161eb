package pace

import "time"

// Backoff is the policy of the second clock of a key: how long a site that
// answered 429 or 503 is left alone.
type Backoff struct {
	// Off ignores such answers altogether.
	Off bool
	// First is the pause after an answer without a usable Retry-After; each
	// further one in a row doubles it up to Max, which also bounds what a site's
	// Retry-After may ask for. Defaults: 60 s and 24 h.
	First, Max time.Duration
	// Forgive is how long after the end of a block a key must stay quiet for the
	// doubling to start again at First. Default: 30 min.
	Forgive time.Duration
	// Jitter is the largest part by which a pause of ours (never the site's own
	// Retry-After) is lengthened at random, so that gateways do not come back
	// together. Default: 0.1.
	Jitter float64
}

func (b Backoff) withDefaults() Backoff {
	if b.First <= 0 {
		b.First = time.Minute
	}
	if b.Max <= 0 {
		b.Max = 24 * time.Hour
	}
	b.First, b.Max = clip(b.First), clip(b.Max)
	if b.Forgive <= 0 {
		b.Forgive = 30 * time.Minute
	}
	if b.Jitter <= 0 {
		b.Jitter = 0.1
	}
	return b
}

// pause is the nth pause in a row, n from 1.
func (b Backoff) pause(n int) time.Duration {
	d := b.First
	for ; n > 1 && d < b.Max; n-- {
		d *= 2
	}
	return min(d, b.Max)
}

// block is the second clock's state: pure, as meter is. The zero value blocks
// nothing and remembers nothing.
type block struct {
	until   instant
	strikes int  // pauses of ours in a row
	fresh   bool // no request went since it was set
}

// struck is the state after a 429 or 503 at the given instant. retryAfter is
// what the site asked for, zero or less when it gave nothing usable. jitter is
// drawn from [0,1).
//
// Answers that come while the block is in force belong to requests that were
// already on their way when it began: they may move its end by a Retry-After of
// their own, but do not double it, else eight requests in flight would make
// 60 s into two hours.
func (b block) struck(p Backoff, now instant, retryAfter time.Duration, jitter float64) block {
	if now-b.until >= p.Forgive {
		b.strikes = 0
	}
	if retryAfter > 0 {
		b.until, b.fresh = max(b.until, now+min(retryAfter, p.Max)), true
		return b
	}
	if now < b.until {
		return b
	}
	b.strikes++
	d := p.pause(b.strikes)
	d += time.Duration(float64(d) * p.Jitter * jitter)
	b.until, b.fresh = now+min(d, p.Max), true
	return b
}

// forgotten reports whether the state says no more than the zero state does.
func (b block) forgotten(p Backoff, now instant) bool {
	return now-b.until >= p.Forgive || (b.strikes == 0 && now >= b.until)
}
