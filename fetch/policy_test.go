package fetch

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

const (
	minute = time.Minute
	hour   = time.Hour
	day    = 24 * time.Hour
)

var (
	t0     = time.Date(2026, time.May, 4, 12, 0, 0, 0, time.UTC)
	site   = origin.Origin{Scheme: "https", Host: "a.example", Port: 443}
	modes  = []UnreachableMode{ModeSpec, ModeStale, ModeGoogle, ModeStrict}
	good   = Outcome{Kind: KindRules, Status: 200, Body: []byte(rules)}
	gone   = Outcome{Kind: KindAbsent, Cause: CauseStatus, Status: 404}
	broken = Outcome{Kind: KindUnreachable, Cause: CauseStatus, Status: 500}
)

// after returns a new record after outcomes, each at its time after t0.
func after(p Policy, steps ...any) Record {
	r := Record{Origin: site}
	for i := 0; i < len(steps); i += 2 {
		r = p.Next(r, steps[i+1].(Outcome), t0.Add(steps[i].(time.Duration)))
	}
	return r
}

func TestZeroValuesDeny(t *testing.T) {
	t.Parallel()
	for _, p := range []Policy{{}, Policy{}.Complete()} {
		for _, r := range []Record{{}, {Origin: site}, {State: 99, FetchedAt: t0, FreshUntil: t0.Add(day)}} {
			if got := p.Access(r, t0); got != AccessDeny {
				t.Errorf("Access(%+v) = %s, want deny", r, got)
			}
			if p.Fresh(r, t0) || !p.RefreshDue(r, t0) {
				t.Errorf("%+v is fresh, or needs no refresh", r)
			}
		}
		if got := p.Access(p.Next(Record{Origin: site}, Outcome{}, t0), t0); got != AccessDeny {
			t.Errorf("the zero Outcome permits %s, want deny", got)
		}
		if got := p.Access(p.Next(Record{Origin: site}, Outcome{Kind: 99, Body: []byte(rules)}, t0), t0); got != AccessDeny {
			t.Errorf("an unknown Kind permits %s, want deny", got)
		}
	}
	if (Record{}).State != StateUnknown || Access(99).String() != "deny" || State(99).String() != "unknown" || UnreachableMode(99).String() != "strict" {
		t.Error("an undeclared value is not the safe one")
	}
	if got := (Policy{Mode: 99}).Access(after(Policy{}, 0*hour, broken), t0.Add(400*day)); got != AccessDeny {
		t.Errorf("an unknown mode permits %s, want deny", got)
	}
}

// TestExt_UnreachableModes checks the modes of docs/status-table.md: by the age of the run and the
// presence of a copy.
func TestExt_UnreachableModes(t *testing.T) {
	t.Parallel()
	const d, g, a = AccessDeny, AccessLastGood, AccessAllow
	tests := []struct {
		age                         time.Duration
		hasCopy                     bool
		spec, stale, google, strict Access
	}{
		{0, true, d, g, d, d},
		{12*hour - 1, true, d, g, d, d},
		{12 * hour, true, d, g, g, d},
		{30*day - 1, true, d, g, g, d},
		{30 * day, true, g, g, g, d},
		{3650 * day, true, g, g, g, d},
		{0, false, d, d, d, d},
		{12 * hour, false, d, d, d, d},
		{30*day - 1, false, d, d, d, d},
		{30 * day, false, a, a, a, d},
		{3650 * day, false, a, a, a, d},
	}
	for _, tt := range tests {
		for _, mode := range modes {
			want := map[UnreachableMode]Access{ModeSpec: tt.spec, ModeStale: tt.stale, ModeGoogle: tt.google, ModeStrict: tt.strict}[mode]
			p := Policy{Mode: mode}
			starts := map[string]Record{"new origin": {Origin: site}, "origin without a file": after(p, -day, gone)}
			if tt.hasCopy {
				starts = map[string]Record{"origin with a file": after(p, -day, good)}
			}
			for name, r := range starts {
				r = p.Next(r, broken, t0)
				if got := p.Access(r, t0.Add(tt.age)); got != want {
					t.Errorf("%s, %s, unreachable for %s: %s, want %s", mode, name, tt.age, got, want)
				}
			}
		}
	}
}

// TestExt_UnreachableFor checks that a configured limit shorter than google's ends it.
func TestExt_UnreachableFor(t *testing.T) {
	t.Parallel()
	p := Policy{Mode: ModeGoogle, UnreachableFor: hour}
	r := after(p, -day, good, 0*hour, broken)
	if got := p.Access(r, t0.Add(hour-1)); got != AccessDeny {
		t.Errorf("before the limit: access %s, want deny", got)
	}
	if got := p.Access(r, t0.Add(hour)); got != AccessLastGood {
		t.Errorf("after the limit: access %s, want last good", got)
	}
}

// TestExt_FailedRefresh checks that a good answer stays in force during its TTL, and becomes
// unreachable at its end.
func TestExt_FailedRefresh(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, start := range []Outcome{good, gone} {
			p := Policy{Mode: mode}
			r := after(p, 0*hour, start)
			inForce, state := p.Access(r, t0), r.State
			for i := range 10 {
				r = p.Next(r, broken, t0.Add(20*hour+time.Duration(i)*minute))
			}
			if r.State != state || !r.FreshUntil.Equal(t0.Add(day)) || r.Attempts != 10 || !r.UnreachableSince.Equal(t0.Add(20*hour)) {
				t.Fatalf("%s after failed refreshes: %+v", mode, r)
			}
			if got := p.Access(r, t0.Add(day-1)); got != inForce || !p.Fresh(r, t0.Add(day-1)) {
				t.Errorf("%s, last moment of the TTL: %s", mode, got)
			}

			end := t0.Add(day)
			want := AccessDeny
			if mode == ModeStale && start.Kind == KindRules {
				want = AccessLastGood
			}
			settled := p.Settle(r, end)
			if got := p.Access(r, end); got != want {
				t.Errorf("%s, TTL ended: %s, want %s", mode, got, want)
			}
			if settled.State != StateUnreachable || settled.Cause != CauseStatus || settled.Status != 500 || settled.Attempts != 10 {
				t.Errorf("%s settled as %+v", mode, settled)
			}
			if got := p.Access(settled, end); got != want {
				t.Errorf("%s, settled: %s, want %s", mode, got, want)
			}
			// The run counts from its first failure, not from the end of the TTL.
			if got := p.Access(r, t0.Add(20*hour+30*day)); mode != ModeStrict && got == AccessDeny {
				t.Errorf("%s, 30 days after the first failure: %s", mode, got)
			}
			if next := p.Next(r, broken, end); !reflect.DeepEqual(next, p.Next(settled, broken, end)) {
				t.Errorf("%s: Next does not settle", mode)
			}
		}
	}
}

// TestExt_ExpiredUntried checks that an answer permits nothing after its TTL, with or without
// failures.
func TestExt_ExpiredUntried(t *testing.T) {
	t.Parallel()
	for _, mode := range modes {
		for _, start := range []Outcome{good, gone} {
			p := Policy{Mode: mode}
			r := after(p, 0*hour, start)
			if got := p.Access(r, t0.Add(day)); got != AccessDeny || p.Fresh(r, t0.Add(day)) {
				t.Errorf("%s: %s", mode, got)
			}
		}
	}
}

// TestExt_GoodAnswerResets checks that a good answer ends the run and replaces everything before
// it.
func TestExt_GoodAnswerResets(t *testing.T) {
	t.Parallel()
	p := Policy{}
	for _, end := range []Outcome{good, gone} {
		r := after(p, 0*hour, Outcome{Kind: KindRules, Body: []byte("old")}, day, broken, 2*day, broken, 3*day, end)
		if fresh := after(p, 3*day, end); !reflect.DeepEqual(r, fresh) {
			t.Errorf("after a run: %+v\nwant %+v", r, fresh)
		}
	}
	// Absent removes the copy, so a later run has none.
	r := after(p, 0*hour, good, day, gone, 2*day, broken)
	if got := p.Access(r, t0.Add(32*day)); r.LastGood != nil || got != AccessAllow {
		t.Errorf("copy %v, %s", r.LastGood, got)
	}
}

func TestExt_OneBody(t *testing.T) {
	t.Parallel()
	p := Policy{}
	r := after(p, 0*hour, good, day, broken)
	if r.Body != nil || r.LastGood == nil || string(r.LastGood.Body) != rules || !r.LastGood.FetchedAt.Equal(t0) {
		t.Errorf("the record is %+v, want the rules as its last good copy", r)
	}
	again := p.Next(r, broken, t0.Add(2*day))
	if text, ok := again.Text(); !ok || string(text.Body) != rules || text.SHA256 != sha256.Sum256([]byte(rules)) {
		t.Errorf("copy after the second failure is %+v", text)
	}
	if _, ok := after(p, 0*hour, gone).Text(); ok {
		t.Error("an absent file has a text")
	}
}

// TestExt_LostBody checks that rules without their text are not an empty file.
func TestExt_LostBody(t *testing.T) {
	t.Parallel()
	p := Policy{Mode: ModeStale}
	r := after(p, 0*hour, good)
	r.Body = nil
	if got := p.Access(r, t0); got != AccessDeny {
		t.Errorf("rules without their text: %s", got)
	}
	r = after(p, 0*hour, good, day, broken)
	r.LastGood.Body = nil
	if got := p.Access(r, t0.Add(day)); got != AccessDeny {
		t.Errorf("copy without its text: %s", got)
	}
	for _, body := range [][]byte{nil, {}} {
		r = after(p, 0*hour, Outcome{Kind: KindRules, Body: body})
		if got := p.Access(r, t0); got != AccessRules {
			t.Errorf("empty file: %s", got)
		}
	}
}

func TestExt_ForbiddenDisallow(t *testing.T) {
	t.Parallel()
	for status := 400; status <= 499; status++ {
		for _, disallow := range []bool{false, true} {
			p := Policy{ForbiddenDisallow: disallow}
			r := after(p, 0*hour, Outcome{Kind: KindAbsent, Cause: CauseStatus, Status: status})
			want := AccessAllow
			if disallow && (status == 401 || status == 403) {
				want = AccessDeny
			}
			if got := p.Access(r, t0); got != want || r.State != StateAbsent || !p.Fresh(r, t0) {
				t.Errorf("status %d, disallow %v: %s, want %s", status, disallow, got, want)
			}
		}
	}
}

func TestRFC9309_2_4_Lifetime(t *testing.T) {
	t.Parallel()
	aged := func(maxAge time.Duration) Outcome { return Outcome{Kind: KindAbsent, MaxAge: maxAge, HasMaxAge: true} }
	tests := []struct {
		name   string
		policy Policy
		out    Outcome
		want   time.Duration
	}{
		{"default", Policy{}, gone, day},
		{"max-age", Policy{}, aged(hour), hour},
		{"max-age 0", Policy{}, aged(0), 5 * minute},
		{"max-age below the floor", Policy{}, aged(minute), 5 * minute},
		{"max-age above the ceiling", Policy{}, aged(48 * hour), day},
		{"max-age not given", Policy{}, Outcome{Kind: KindAbsent, MaxAge: hour}, day},
		{"negative", Policy{}, aged(-hour), 5 * minute},
		{"no-cache", Policy{}, Outcome{Kind: KindRules, NoCache: true}, 5 * minute},
		{"no-cache and max-age", Policy{}, Outcome{Kind: KindRules, NoCache: true, MaxAge: hour, HasMaxAge: true}, 5 * minute},
		{"ttl configured", Policy{TTL: hour}, gone, hour},
		{"ttl configured, max-age longer", Policy{TTL: hour}, aged(2 * hour), hour},
		{"ttl above 24 h", Policy{TTL: 48 * hour}, gone, day},
		{"floor configured", Policy{MinTTL: hour}, aged(minute), hour},
		{"floor above ttl", Policy{TTL: minute, MinTTL: hour}, gone, minute},
	}
	for _, tt := range tests {
		r := after(tt.policy, 0*hour, tt.out)
		if got := r.FreshUntil.Sub(t0); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		if !tt.policy.Fresh(r, t0.Add(tt.want-1)) || tt.policy.Fresh(r, t0.Add(tt.want)) {
			t.Errorf("%s: not fresh exactly until its end", tt.name)
		}
		if tt.policy.RefreshDue(r, t0.Add(tt.want*4/5-1)) || !tt.policy.RefreshDue(r, t0.Add(tt.want*4/5)) {
			t.Errorf("%s: refresh is not due exactly from 80 %% on", tt.name)
		}
	}
	t.Run("ttl lowered later", func(t *testing.T) {
		t.Parallel()
		r := after(Policy{}, 0*hour, gone)
		if p := (Policy{TTL: hour}); p.Fresh(r, t0.Add(hour)) || p.Access(r, t0.Add(hour)) != AccessDeny {
			t.Error("an old record outlives the new ttl")
		}
	})
}

// TestExt_Pauses checks that pauses double from 1 min to 1 h with jitter, the same for the same
// failure, and that Retry-After only makes them longer, up to a day.
func TestExt_Pauses(t *testing.T) {
	t.Parallel()
	p := Policy{}.Complete()
	bounds := []struct{ low, high time.Duration }{
		{minute, 90 * time.Second},
		{2 * minute, 3 * minute},
		{4 * minute, 6 * minute},
		{8 * minute, 12 * minute},
		{16 * minute, 24 * minute},
		{32 * minute, 48 * minute},
		{45 * minute, hour},
		{45 * minute, hour},
	}
	for i, b := range bounds {
		var least, most time.Duration = hour * 99, 0
		for n := range 1000 {
			o := origin.Origin{Scheme: "https", Host: fmt.Sprintf("h%d.example", n), Port: 443}
			got := p.pause(o, t0, i+1)
			if got < b.low || got > b.high || got != p.pause(o, t0, i+1) {
				t.Fatalf("failure %d of %s: %s, want %s to %s", i+1, o, got, b.low, b.high)
			}
			least, most = min(least, got), max(most, got)
		}
		if spread := b.high - b.low; most-least < spread*9/10 {
			t.Errorf("failure %d: 1,000 origins are spread from %s to %s only", i+1, least, most)
		}
	}
	for name, tt := range map[string]struct {
		policy    Policy
		after     time.Duration
		low, high time.Duration
	}{
		"shorter Retry-After":       {Policy{}, time.Second, minute, 90 * time.Second},
		"longer Retry-After":        {Policy{}, 3 * hour, 3 * hour, 3 * hour},
		"endless Retry-After":       {Policy{}, 1000 * day, day, day},
		"negative Retry-After":      {Policy{}, -hour, minute, 90 * time.Second},
		"same first and last pause": {Policy{RetryMin: hour, RetryMax: hour}, 0, hour, hour},
		"contradictory pauses":      {Policy{RetryMin: 2 * hour, RetryMax: hour}, 0, 2 * hour, 2 * hour},
		"pauses beyond a day":       {Policy{RetryMin: 100 * day, RetryMax: 200 * day}, 0, day, day},
		"tiny pauses":               {Policy{RetryMin: 1, RetryMax: 1}, 0, 1, 1},
	} {
		r := after(tt.policy, 0*hour, Outcome{Cause: CauseStatus, RetryAfter: tt.after})
		if got := r.NextAttempt.Sub(t0); got < tt.low || got > tt.high {
			t.Errorf("%s: %s, want %s to %s", name, got, tt.low, tt.high)
		}
	}
}

// TestExt_FreshWhileUnreachable checks that the record is fresh until the next attempt is due, and
// for as long again while that attempt runs in the background.
func TestExt_FreshWhileUnreachable(t *testing.T) {
	t.Parallel()
	p := Policy{RetryMin: 10 * minute, RetryMax: 10 * minute}
	r := after(p, 0*hour, broken)
	for at, want := range map[time.Duration]struct{ fresh, due bool }{
		0:             {true, false},
		10*minute - 1: {true, false},
		10 * minute:   {true, true},
		20*minute - 1: {true, true},
		20 * minute:   {false, true},
		day:           {false, true},
		-minute:       {true, false},
		-hour:         {true, true}, // the clock was set back: see below
		-2*minute - 1: {true, true},
	} {
		now := t0.Add(at)
		if at < -maxSkew {
			want.fresh = false
		}
		if p.Fresh(r, now) != want.fresh || p.RefreshDue(r, now) != want.due {
			t.Errorf("at %s: fresh is %v, due is %v", at, p.Fresh(r, now), p.RefreshDue(r, now))
		}
	}
	r = after(p, 0*hour, Outcome{Cause: CauseStatus, RetryAfter: day})
	if !p.Fresh(r, t0.Add(day+10*minute-1)) || p.Fresh(r, t0.Add(day+10*minute)) {
		t.Error("Retry-After of a day: the grace is not RetryMax")
	}
}

func TestExt_CanceledChangesNothing(t *testing.T) {
	t.Parallel()
	p := Policy{}
	for _, r := range []Record{{Origin: site}, after(p, 0*hour, good), after(p, 0*hour, good, day, broken)} {
		if next := p.Next(r, Outcome{Cause: CauseCanceled}, t0.Add(2*day)); !reflect.DeepEqual(next, r) {
			t.Errorf("a canceled fetch changed %+v to %+v", r, next)
		}
	}
}

// TestExt_WrongClocks checks that no wrong clock makes a record permit more.
func TestExt_WrongClocks(t *testing.T) {
	t.Parallel()
	p := Policy{}
	t.Run("good answer from the future", func(t *testing.T) {
		t.Parallel()
		r := after(p, 0*hour, good)
		if got := p.Access(r, t0.Add(-maxSkew)); got != AccessRules {
			t.Errorf("gateways whose clocks differ by %s: access %s, want rules", maxSkew, got)
		}
		early := t0.Add(-maxSkew - 1)
		if got := p.Access(r, early); got != AccessDeny || p.Fresh(r, early) || !p.RefreshDue(r, early) {
			t.Errorf("a clock set back: access %s, want deny", got)
		}
		if r = p.Next(r, broken, early); r.State != StateUnreachable || r.LastGood == nil {
			t.Errorf("clock set back, then a failure: %+v", r)
		}
	})
	t.Run("end of the TTL far away", func(t *testing.T) {
		t.Parallel()
		r := after(p, 0*hour, good)
		r.FreshUntil = t0.Add(1000 * day)
		if got := p.Access(r, t0.Add(day)); got != AccessDeny || p.Fresh(r, t0.Add(day)) {
			t.Errorf("access %s, want deny", got)
		}
	})
	t.Run("run from the future", func(t *testing.T) {
		t.Parallel()
		r := after(p, 365*day, broken)
		if got := p.Access(r, t0); got != AccessDeny || p.Fresh(r, t0) || !p.RefreshDue(r, t0) {
			t.Errorf("access %s, want deny", got)
		}
		r = p.Next(r, broken, t0)
		if !r.UnreachableSince.Equal(t0) || r.Attempts != 1 || p.Access(r, t0.Add(30*day-1)) != AccessDeny || p.Access(r, t0.Add(30*day)) != AccessAllow {
			t.Errorf("run after the clock was set back: %+v", r)
		}
	})
	t.Run("run from before there were clocks", func(t *testing.T) {
		t.Parallel()
		r := p.Next(Record{Origin: site}, broken, time.Unix(100, 0))
		for _, mode := range modes {
			if got := (Policy{Mode: mode}).Access(r, t0); got != AccessDeny {
				t.Errorf("%s: %s", mode, got)
			}
		}
		if r = p.Next(r, broken, t0); !r.UnreachableSince.Equal(t0) || r.Attempts != 1 {
			t.Errorf("run after the clock was set: %+v", r)
		}
	})
	t.Run("next attempt far away", func(t *testing.T) {
		t.Parallel()
		r := after(p, 0*hour, broken)
		r.NextAttempt = t0.Add(1000 * day)
		if !p.RefreshDue(r, t0.Add(hour)) {
			t.Error("no attempt is due after an hour")
		}
	})
	t.Run("monotonic reading", func(t *testing.T) {
		t.Parallel()
		now := time.Now()
		r := p.Next(Record{Origin: site}, good, now)
		if r.FetchedAt != now.Round(0).UTC() {
			t.Errorf("the record has the time %v with a monotonic reading", r.FetchedAt)
		}
	})
}

func TestPolicyStrings(t *testing.T) {
	t.Parallel()
	got := fmt.Sprintln(ModeSpec, ModeStale, ModeGoogle, ModeStrict, AccessDeny, AccessRules, AccessLastGood, AccessAllow,
		StateUnknown, StateRules, StateAbsent, StateUnreachable, KindUnreachable, KindRules, KindAbsent)
	want := "spec stale google strict deny rules last_good allow unknown rules absent unreachable unreachable rules absent\n"
	if got != want {
		t.Errorf("strings are %s", got)
	}
	seen := map[Cause]bool{"": true}
	for _, cause := range allCauses() {
		if seen[cause] {
			t.Errorf("the cause %q occurs twice", cause)
		}
		seen[cause] = true
	}
}

// TestExt_RobotsStatus checks that a crawler that reads robots.txt through the gateway, and follows
// docs/status-table.md, has the same access.
func TestExt_RobotsStatus(t *testing.T) {
	t.Parallel()
	for access, want := range map[Access]Kind{
		AccessDeny: KindUnreachable, AccessRules: KindRules, AccessLastGood: KindRules,
		AccessAllow: KindAbsent, AccessAllow + 1: KindUnreachable,
	} {
		if got, _ := fetchScript(t, Config{}, map[string]string{"*": answer(access.RobotsStatus(), "")}); got.Kind != want {
			t.Errorf("%v: RobotsStatus %d leads to another outcome", access, access.RobotsStatus())
		}
	}
}

// TestExt_RefreshAt checks that the early refresh is due at 80 % of the lifetime.
func TestExt_RefreshAt(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		24 * time.Hour: 19*time.Hour + 12*time.Minute, 5 * time.Minute: 4 * time.Minute,
		48 * time.Hour: 19*time.Hour + 12*time.Minute, // limited to a day
	} {
		r := Record{State: StateAbsent, FetchedAt: t0, FreshUntil: t0.Add(ttl)}
		at := Policy{}.RefreshAt(r)
		if at.Sub(t0) != want || !(Policy{}).RefreshDue(r, at) || (Policy{}).RefreshDue(r, at.Add(-time.Millisecond)) {
			t.Errorf("a lifetime of %v: refresh due after %v, want %v, like RefreshDue", ttl, at.Sub(t0), want)
		}
	}
	failed := Record{State: StateUnreachable, UnreachableSince: t0, NextAttempt: t0.Add(time.Minute)}
	if at := (Policy{}).RefreshAt(failed); !at.Equal(failed.NextAttempt) {
		t.Errorf("after a failure, RefreshAt = %v, want the next attempt", at)
	}
}

// TestMaxUse checks that no policy uses a record for longer after its latest attempt, so that
// stores can count from its save.
func TestMaxUse(t *testing.T) {
	t.Parallel()
	const long = 1000 * 24 * time.Hour
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	answer := Outcome{Kind: KindRules, Status: 200, Body: []byte("Disallow: /\n"), MaxAge: long, HasMaxAge: true}
	failure := Outcome{Cause: CauseStatus, Status: 503, RetryAfter: long}
	for mode := ModeSpec; mode <= ModeStrict; mode++ {
		p := Policy{Mode: mode, TTL: long, MinTTL: long, RetryMin: long, RetryMax: long}
		good := p.Next(Record{Origin: site}, answer, start)
		used := false
		for attempt, r := range map[time.Time]Record{
			start:                     good,
			start.Add(time.Hour):      p.Next(good, failure, start.Add(time.Hour)),
			start.Add(48 * time.Hour): p.Next(good, failure, start.Add(48*time.Hour)),
		} {
			used = used || p.Fresh(r, attempt.Add(MaxUse-time.Second))
			for _, after := range []time.Duration{0, time.Hour, long} {
				if p.Fresh(r, attempt.Add(MaxUse+after)) {
					t.Errorf("%v: a record of %s is used %v after %v: %+v", mode, attempt, after, MaxUse, r)
				}
			}
		}
		if !used {
			t.Errorf("%v: no record is used for as long as %v", mode, MaxUse)
		}
	}
}
