package fetch

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// restart stores a record and reads it back, like another process.
func restart(tb interface{ Fatalf(string, ...any) }, r Record) Record {
	bodies := map[[32]byte][]byte{}
	if text, ok := r.Text(); ok {
		bodies[text.SHA256] = text.Body
	}
	data, err := json.Marshal(r)
	if err != nil {
		tb.Fatalf("storing: %v", err)
	}
	var n Record
	if err := json.Unmarshal(data, &n); err != nil {
		tb.Fatalf("loading: %v", err)
	}
	if text, ok := n.Text(); ok {
		if err := n.SetBody(bodies[text.SHA256]); err != nil {
			tb.Fatalf("loading: %v", err)
		}
	}
	return n
}

// TestExt_Outage31Days simulates an outage of 31 days minute by minute, with a restart every day,
// and its end: in each mode, with and without a copy, and with and without requests that make early
// refreshes fail.
func TestExt_Outage31Days(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for name, before := range map[string]Outcome{"with a copy": good, "without a file": gone, "never seen": {}} {
			t.Run(fmt.Sprintf("%s/%s", mode, name), func(t *testing.T) {
				t.Parallel()
				liveOutage(t, Policy{Mode: mode}, before)
			})
		}
	}
}

func liveOutage(t *testing.T, p Policy, before Outcome) {
	t.Helper()
	r := Record{Origin: site}
	if before.Kind != KindUnreachable {
		r = p.Next(r, before, t0)
	}
	var firstFailure time.Time
	attempts := 0
	now := t0
	for minutes := range 32 * 24 * 60 {
		now = t0.Add(time.Duration(minutes) * minute)
		if minutes%(24*60) == 24*60-1 {
			r = restart(t, r)
		}
		if p.RefreshDue(r, now) {
			r = p.Next(r, broken, now)
			attempts++
			if firstFailure.IsZero() {
				firstFailure = now
			}
		}
		if want := outageAccess(p.Mode, before, now, firstFailure); p.Access(r, now) != want {
			t.Fatalf("after %s: %s, want %s", now.Sub(t0), p.Access(r, now), want)
		}
		if !p.Fresh(r, now) {
			t.Fatalf("after %s: the record is not fresh", now.Sub(t0))
		}
	}
	// There are seven attempts in the first two hours, then one in 45 to 60 minutes.
	if least, most := 30*24, 32*24*60/45+8; attempts < least || attempts > most {
		t.Errorf("%d attempts, want %d to %d", attempts, least, most)
	}
	if !r.UnreachableSince.Equal(firstFailure) || r.Attempts != attempts {
		t.Errorf("run of %d since %s, want %d since %s", r.Attempts, r.UnreachableSince, attempts, firstFailure)
	}
	r = p.Next(restart(t, r), good, now)
	if got := p.Access(r, now); got != AccessRules || r.Attempts != 0 {
		t.Errorf("after the end: %s, %d attempts", got, r.Attempts)
	}
}

// outageAccess computes the part "While unreachable" of docs/status-table.md again, from the times
// alone.
func outageAccess(mode UnreachableMode, before Outcome, now, firstFailure time.Time) Access {
	if before.Kind == KindRules && now.Before(t0.Add(day)) {
		return AccessRules
	}
	if before.Kind == KindAbsent && now.Before(t0.Add(day)) {
		return AccessAllow
	}
	down := now.Sub(firstFailure)
	hasCopy := before.Kind == KindRules
	switch {
	case mode == ModeStrict:
		return AccessDeny
	case hasCopy && (down >= 30*day || mode == ModeStale || mode == ModeGoogle && down >= 12*hour):
		return AccessLastGood
	case !hasCopy && down >= 30*day:
		return AccessAllow
	default:
		return AccessDeny
	}
}

// drawOutcome returns any outcome that Fetch can return.
func drawOutcome(t *rapid.T) Outcome {
	out := Outcome{Status: rapid.IntRange(0, 599).Draw(t, "status")}
	out.Kind = rapid.SampledFrom([]Kind{KindUnreachable, KindUnreachable, KindRules, KindAbsent}).Draw(t, "kind")
	switch out.Kind {
	case KindRules:
		out.Body = []byte(rapid.SampledFrom([]string{"", rules, "Disallow:"}).Draw(t, "body"))
		out.Truncated = rapid.Bool().Draw(t, "truncated")
	case KindAbsent:
		out.Cause = rapid.SampledFrom([]Cause{CauseStatus, CauseRedirects, CauseSoft404}).Draw(t, "cause")
	default:
		out.Cause = rapid.SampledFrom(allCauses()).Draw(t, "cause")
		out.RetryAfter = time.Duration(rapid.Int64Range(0, int64(2*day)).Draw(t, "retry after"))
	}
	if rapid.Bool().Draw(t, "has max-age") {
		out.HasMaxAge, out.MaxAge = true, time.Duration(rapid.Int64Range(0, int64(3*day)).Draw(t, "max-age"))
	}
	out.NoCache = rapid.IntRange(0, 9).Draw(t, "no-cache") == 0
	if rapid.Bool().Draw(t, "redirected") {
		out.Hops = []string{"http://b.example/"}
	}
	return out
}

func drawPolicy(t *rapid.T) Policy {
	draw := func(name string, most time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(-1, int64(most)).Draw(t, name))
	}
	return Policy{
		Mode:              rapid.SampledFrom(modes).Draw(t, "mode"),
		UnreachableFor:    draw("unreachable_for", 60*day),
		TTL:               draw("ttl", 2*day),
		MinTTL:            draw("min_ttl", 2*day),
		RetryMin:          draw("retry min", 2*hour),
		RetryMax:          draw("retry max", 2*day),
		ForbiddenDisallow: rapid.Bool().Draw(t, "forbidden disallow"),
	}
}

// TestNextProperties checks random histories under random policies, with restarts and with a clock
// that may be set back or forward.
func TestNextProperties(t *testing.T) {
	t.Parallel()
	for _, monotonic := range []bool{true, false} {
		t.Run(fmt.Sprintf("monotonic %v", monotonic), func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) { anyLife(t, monotonic) })
		})
	}
}

func anyLife(t *rapid.T, monotonic bool) {
	p := drawPolicy(t)
	n := p.Complete()
	r, now := Record{Origin: site}, t0
	m := model{}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		least := int64(0)
		if !monotonic {
			least = -int64(3 * day)
		}
		now = now.Add(time.Duration(rapid.Int64Range(least, int64(3*day)).Draw(t, "passed")))
		switch rapid.IntRange(0, 5).Draw(t, "step") {
		case 0:
			r = restart(t, r)
		case 1:
			if settled := p.Settle(r, now); p.Access(settled, now) != p.Access(r, now) || p.Fresh(settled, now) != p.Fresh(r, now) {
				t.Fatalf("settling changes what %+v permits", r)
			}
		default:
			out := drawOutcome(t)
			next := p.Next(r, out, now)
			if again := p.Next(r, out, now); !reflect.DeepEqual(again, next) {
				t.Fatalf("Next is not a function of its arguments")
			}
			m.step(t, n, r, next, out, now)
			r = next
		}
		m.check(t, n, r, now, monotonic)
	}
}

// model is what the record should contain.
type model struct {
	failures int
	since    time.Time // first failure of the run
}

// step checks one transition.
func (m *model) step(t *rapid.T, p Policy, r, next Record, out Outcome, now time.Time) {
	if _, known := r.Text(); known && out.Kind == KindAbsent && out.Cause == CauseSoft404 {
		out = Outcome{Cause: CauseStatus, Status: out.Status} // a 5xx does not replace rules
	}
	switch {
	case out.Kind != KindUnreachable:
		*m = model{}
		ttl := next.FreshUntil.Sub(now)
		if ttl < p.MinTTL || ttl > p.TTL || ttl > day {
			t.Fatalf("TTL of %s outside %s to %s", ttl, p.MinTTL, p.TTL)
		}
		if next.Attempts != 0 || next.Failing() || next.LastGood != nil || !next.NextAttempt.IsZero() {
			t.Fatalf("a good answer left %+v", next)
		}
		if !p.Fresh(next, now) {
			t.Fatal("a good answer is not fresh")
		}
	case out.Cause == CauseCanceled, out.Ours(), out.Refused():
		if !reflect.DeepEqual(next, r) {
			t.Fatalf("an attempt with cause %q changed the record", out.Cause)
		}
		m.provisional(t, p, r, out, now)
	default:
		if m.failures == 0 || m.since.After(now) {
			*m = model{since: now}
		}
		m.failures++
		pause := next.NextAttempt.Sub(now)
		if pause < p.RetryMin || pause > day || (out.RetryAfter <= p.RetryMin && pause > p.RetryMax) {
			t.Fatalf("pause of %s outside %s to %s", pause, p.RetryMin, p.RetryMax)
		}
		if next.LastFailure.Cause != out.Cause || next.LastFailure.Status != out.Status {
			t.Fatalf("failure is %+v", next.LastFailure)
		}
		// A good answer in force stays in force, whatever fails.
		if p.usable(&r, now) && (p.Access(next, now) != p.Access(r, now) || next.State != r.State || !next.FreshUntil.Equal(r.FreshUntil)) {
			t.Fatal("a failed refresh degraded a good answer")
		}
		if !p.usable(&r, now) && next.State != StateUnreachable {
			t.Fatalf("a failure outside the TTL left state %s", next.State)
		}
	}
}

// provisional checks that the record for a local failure permits no more than the earlier record
// with its failures so far, and that it soon expires.
func (m *model) provisional(t *rapid.T, p Policy, r Record, out Outcome, now time.Time) {
	got := p.Provisional(r, out, now)
	if !p.Fresh(got, now) || p.Fresh(got, now.Add(2*localPause)) && !p.usable(&got, now.Add(2*localPause)) {
		t.Fatal("the record for a local failure is not fresh, or is fresh for too long")
	}
	want := p.Access(r, now)
	if m.failures == 0 && !p.usable(&r, now) && p.Mode == ModeStale && r.hasText() {
		want = AccessLastGood // like after any first failure
	}
	if access := p.Access(got, now); access != want {
		t.Fatalf("access %s after a local failure, want %s", access, want)
	}
}

// check checks the invariants.
func (m *model) check(t *rapid.T, p Policy, r Record, now time.Time, monotonic bool) {
	if r.Failing() != (m.failures > 0) || r.Attempts != m.failures || !r.UnreachableSince.Equal(m.since) {
		t.Fatalf("run of %d since %s, want %d since %s", r.Attempts, r.UnreachableSince, m.failures, m.since)
	}
	good := p.usable(&r, now)
	if good && (now.Sub(r.FetchedAt) >= day || r.FetchedAt.Sub(now) > maxSkew) {
		t.Fatalf("an answer is in force %s after its date", now.Sub(r.FetchedAt))
	}
	if monotonic && !r.FetchedAt.IsZero() && r.FetchedAt.After(now) {
		t.Fatal("the record has a date in the future")
	}
	hasText := r.hasText()
	switch access := p.Access(r, now); {
	case access == AccessDeny:
	case access == AccessRules && good && r.State == StateRules:
	case access == AccessAllow && good && r.State == StateAbsent:
	case !good && m.failures > 0 && p.Mode != ModeStrict && access == AccessLastGood && hasText:
		if age := now.Sub(m.since); p.Mode == ModeSpec && age < p.UnreachableFor || p.Mode == ModeGoogle && age < min(p.UnreachableFor, 12*hour) {
			t.Fatalf("%s: last good copy after %s", p.Mode, age)
		}
	case !good && m.failures > 0 && p.Mode != ModeStrict && access == AccessAllow && !hasText:
		if age := now.Sub(m.since); age < p.UnreachableFor {
			t.Fatalf("%s: everything permitted after %s", p.Mode, age)
		}
	default:
		t.Fatalf("%s in state %s, good %v, %d failures", access, r.State, good, m.failures)
	}
	if !p.Fresh(r, now) && !p.RefreshDue(r, now) {
		t.Fatal("an attempt is necessary but not due")
	}
}
