package pace

import "time"

// An instant is the time since the Pacer's epoch, which lies years before its
// start: the zero instant is long ago, whatever is added to it.
type instant = time.Duration

// epochAge is how far before a Pacer's start its epoch lies: longer than any
// interval or delay ([longest]), so that a clock never used is always ready.
const epochAge = 2 * longest

// meter is the state of one clock: GCRA and the gap beside it. The zero value
// is a clock never used. It is pure: state and time in, state or time out.
//
// GCRA (ITU-T I.371; also redis_rate, throttled, boulder): tat is the
// theoretical arrival time of the next request if all came evenly. A request
// conforms when it comes no earlier than tat less the tolerance; it then moves
// tat on by its interval. One timestamp holds both rate and burst, and the time
// that is missing is the exact wait.
type meter struct {
	tat  instant
	last instant       // when the last request went
	gap  time.Duration // the gap which that request demands after itself
}

// ready is the instant from which a request under t conforms. It may lie in
// the past.
func (m meter) ready(t terms) instant {
	return max(m.tat-t.tolerance, m.last+max(m.gap, t.gap))
}

// take is the state after a request under t went at the given instant, which
// the caller has found to be ready.
func (m meter) take(t terms, at instant) meter {
	return meter{tat: max(m.tat, at) + t.interval, last: at, gap: t.gap}
}

// after is when a request under t could go once others went before it: those
// others need rates (their intervals added up) and gaps (their delays) after
// this state. It is exact when all on the clock have the same terms, else a
// close bound from below.
func (m meter) after(rates, gaps time.Duration, t terms) instant {
	return max(m.tat+rates-t.tolerance, m.last+max(m.gap, t.gap)+gaps)
}

// spent is the state with no burst left at the given instant: the next request
// under t may go then, and the one after it an interval later.
func (m meter) spent(t terms, at instant) meter {
	m.tat = max(m.tat, at+t.tolerance)
	return m
}

// quiet reports whether the state says no more than the zero state does, for
// requests whose delay is at most keep.
func (m meter) quiet(now instant, keep time.Duration) bool {
	return m.tat <= now && m.last+max(m.gap, keep) <= now
}
