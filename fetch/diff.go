package fetch

import "time"

// UnreachableAlarm is how long an origin's robots.txt is unreachable before it is worth an
// alarm: longer than a failed deployment, and long before anybody misses the pages.
const UnreachableAlarm = 6 * time.Hour

// Diff compares the record of an origin before and after one retrieval, for reports of
// changes. A first retrieval changes nothing.
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

// StateChanged reports whether the state is another one.
func (d *Diff) StateChanged() bool {
	return d.Before.State != StateUnknown && d.Before.State != d.After.State
}

// RulesChanged reports whether there are rules, and their text differs from the last one known.
func (d *Diff) RulesChanged() bool {
	old, had := d.Before.Text()
	return had && d.After.State == StateRules && old.SHA256 != d.After.SHA256
}

// Alarmed reports whether the run of failures has just become as long as [UnreachableAlarm].
// It does so once for each run.
func (d *Diff) Alarmed() bool {
	sameRun := d.Before.UnreachableSince.Equal(d.After.UnreachableSince)
	return d.After.alarming() && (!sameRun || !d.Before.alarming())
}

// alarming reports whether the run of failures was long enough at its latest one.
func (r *Record) alarming() bool {
	return r.Failing() && r.LastFailure.At.Sub(r.UnreachableSince) >= UnreachableAlarm
}
