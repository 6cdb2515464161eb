package fetch

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

// Next returns the record that follows r when an attempt came to out at now. It is a pure function:
// equal arguments give equal records. For an origin that has no record yet, r is Record{Origin: o}.
//
//   - A good answer (rules or absent) replaces everything: it ends the run of
//     failures and withdraws the last good copy. It holds for the answer's
//     max-age between MinTTL and TTL, for MinTTL with no-cache or no-store, and
//     for TTL if it does not say.
//   - A failure starts a run or continues it. A good answer inside its TTL still
//     counts; once that has ended the record is unreachable.
//   - A soft 404 is a failure if there is a text: no 5xx replaces rules that are known, of whatever
//     age.
//   - An attempt that was canceled, that failed on our own side or that our guard
//     refused (see [Outcome.Refused]) changes nothing.
//
// Pauses between attempts double from RetryMin to RetryMax with a jitter that follows from the
// origin, the run and the attempt. Retry-After, up to a day, makes a pause longer, never shorter.
func (p Policy) Next(r Record, out Outcome, now time.Time) Record {
	// UTC drops the monotonic reading, which stands still while a machine sleeps and does not survive
	// a restart. Records age by the wall clock.
	now = now.UTC()
	if _, known := r.Text(); known && out.Kind == KindAbsent && out.Cause == CauseSoft404 {
		out = Outcome{Cause: CauseStatus, Detail: "says not found, but had rules", Status: out.Status, Hops: out.Hops, Retried: out.Retried}
	}
	switch out.Kind {
	case KindRules, KindAbsent:
		return p.afterAnswer(r.Key(), out, now)
	default:
		if out.Cause == CauseCanceled || out.Ours() || out.Refused() {
			return r
		}
		return p.afterFailure(r, out, now)
	}
}

// Provisional returns the record to use after an attempt that failed on our side ([Outcome.Ours]).
// It is r with one more failure at now, and with another attempt soon, because such attempts do not
// reach the site. It must not be stored, because the site did not cause that failure.
func (p Policy) Provisional(r Record, out Outcome, now time.Time) Record {
	now = now.UTC()
	r = p.afterFailure(r, out, now)
	r.NextAttempt = now.Add(localPause)
	return r
}

func (p Policy) afterAnswer(k Key, out Outcome, now time.Time) Record {
	n := Record{
		Origin:     k.Origin,
		Agent:      k.Agent,
		State:      StateAbsent,
		Cause:      out.Cause,
		Detail:     out.Detail,
		Status:     out.Status,
		Hops:       out.Hops,
		FetchedAt:  now,
		FreshUntil: now.Add(p.lifetime(out)),
	}
	if out.Kind == KindRules {
		n.State = StateRules
		n.Body, n.SHA256, n.Truncated = out.Body, sha256.Sum256(out.Body), out.Truncated
	}
	return n
}

// lifetime returns the TTL of a good answer.
func (p Policy) lifetime(out Outcome) time.Duration {
	p = p.Complete()
	switch {
	case out.NoCache:
		return p.MinTTL
	case out.HasMaxAge:
		return min(max(out.MaxAge, p.MinTTL), p.TTL)
	default:
		return p.TTL
	}
}

func (p Policy) afterFailure(r Record, out Outcome, now time.Time) Record {
	// A run that begins in the future, or before the epoch, was dated by a wrong clock. To start it
	// again is safe: it only delays what the end of the run permits. Without a run, the time is zero.
	if r.UnreachableSince.After(now) || r.UnreachableSince.Before(epoch) {
		r.UnreachableSince, r.Attempts = now, 0
	}
	r.Attempts = min(max(r.Attempts, 0), math.MaxInt32-2) + 1
	r.NextAttempt = now.Add(max(p.pause(r.Origin, r.UnreachableSince, r.Attempts), min(out.RetryAfter, maxRetryAfter)))
	if out.Retried {
		r.Attempts++
	}
	r.LastFailure = Failure{At: now, Cause: out.Cause, Detail: out.Detail, Status: out.Status, Hops: out.Hops}
	if p.usable(&r, now) {
		return r
	}
	return unreachable(r, r.LastFailure)
}

// pause returns the time between a failure of a run and the next attempt. It varies within
// pauseRange, so that origins that failed together are not retried together. The same failure
// always gives the same pause, on every gateway that shares the record.
func (p Policy) pause(o origin.Origin, since time.Time, attempt int) time.Duration {
	low, high := p.pauseRange(attempt)
	seed := append([]byte(o.String()), '\n')
	seed = binary.BigEndian.AppendUint64(seed, uint64(since.UnixNano()))
	seed = binary.BigEndian.AppendUint64(seed, uint64(attempt))
	sum := sha256.Sum256(seed)
	return low + time.Duration(binary.BigEndian.Uint64(sum[:8])%uint64(high-low+1))
}

// pauseRange is RetryMin doubled with each failure after the first, and up to half as much again;
// never outside RetryMin and RetryMax.
func (p Policy) pauseRange(attempt int) (low, high time.Duration) {
	p = p.Complete()
	least, most := p.RetryMin, p.RetryMax
	low = least
	for i := 1; i < attempt && low < most; i++ {
		low *= 2
	}
	high = low + low/2
	if high > most {
		high = most
		low = min(low, max(least, high/4*3))
	}
	return low, high
}

// UnreachableAlarm is how long an origin's robots.txt must be unreachable to be worth an alarm:
// longer than a failed deployment, and well before anybody misses the pages.
const UnreachableAlarm = 6 * time.Hour

// Diff compares the record of an origin before and after one retrieval, for reports of changes. A
// first retrieval changes nothing.
type Diff struct {
	// Before is the record as it stood when the outcome came: see [Policy.Settle].
	Before Record
	// After is the record that follows.
	After Record
}

// Diff returns what an outcome at the time now changes in a record.
func (p Policy) Diff(before Record, out Outcome, now time.Time) Diff {
	return Diff{Before: p.Settle(before, now), After: p.Next(before, out, now)}
}

// StateChanged reports whether the state has changed.
func (d *Diff) StateChanged() bool {
	return d.Before.State != StateUnknown && d.Before.State != d.After.State
}

// RulesChanged reports whether there are rules, and their text differs from the last one known.
func (d *Diff) RulesChanged() bool {
	old, had := d.Before.Text()
	return had && d.After.State == StateRules && old.SHA256 != d.After.SHA256
}

// Alarmed reports whether the run of failures has just reached [UnreachableAlarm]. It is true once
// per run.
func (d *Diff) Alarmed() bool {
	sameRun := d.Before.UnreachableSince.Equal(d.After.UnreachableSince)
	return d.After.alarming() && (!sameRun || !d.Before.alarming())
}

// alarming reports whether the run of failures was long enough at its latest one.
func (r *Record) alarming() bool {
	return r.Failing() && r.LastFailure.At.Sub(r.UnreachableSince) >= UnreachableAlarm
}
