package engine

import (
	"crypto/rand"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/enforce"
)

// TestRecorder checks the record of an hour and its bounds.
func TestRecorder(t *testing.T) {
	t.Parallel()
	r, now := new(recorder), time.Date(2026, 11, 25, 10, 0, 30, 0, time.UTC)
	add := func(at time.Time, block string, early bool, q RecentRefusal) {
		q.At, q.Block, q.Method = at, block, "GET"
		r.add(q, early, false, false)
	}
	add(now, OtherAgent, true, RecentRefusal{})
	for i := range recentRefusals + 5 {
		add(now.Add(time.Minute), "alpha", false, RecentRefusal{
			Agent: strconv.Itoa(i % (recentKinds + 5)), Origin: strconv.Itoa(i), Reason: "disallowed", Line: i,
		})
	}
	add(now.Add(time.Minute+time.Second), "alpha", false, RecentRefusal{Agent: "0", Origin: "new", Reason: "disallowed", Line: 9})
	h := r.lastHour(now.Add(3 * time.Minute))
	if len(h.Refusals) != recentRefusals || h.Refusals[0].Line != 9 || len(h.Passed) != 1 {
		t.Errorf("%d refusals, the newest %+v; %d passed", len(h.Refusals), h.Refusals[0], len(h.Passed))
	}
	if n := len(h.Minutes); n != 4 || h.Minutes[0].Requests != 1 || h.Minutes[1].Refused != recentRefusals+6 || h.Minutes[3].Requests != 0 {
		t.Errorf("%d minutes, want 4: %+v", n, h.Minutes)
	}
	total := 0
	for _, n := range h.Kinds {
		total += n
	}
	if len(h.Kinds) != recentKinds+1 || total != recentRefusals+6 || h.TopKinds()[0] != (RefusalKind{"other", "other", false}) {
		t.Errorf("%d kinds of %d refusals, the first is %v", len(h.Kinds), total, h.TopKinds()[0])
	}
	agents := map[string]AgentCount{OtherAgent: {1, 0, 1}, "alpha": {recentRefusals + 6, recentRefusals + 6, 0}}
	if !maps.Equal(h.Agents, agents) {
		t.Errorf("agents %v, want %v", h.Agents, agents)
	}
	for _, later := range []time.Time{now.Add(2 * time.Hour), now.Add(-time.Hour)} { // the second one for a clock that was set back
		h := r.lastHour(later)
		if len(h.Kinds) != 0 || len(h.Agents) != 0 {
			t.Errorf("at %v: kinds %+v, agents %+v, want none", later, h.Kinds, h.Agents)
		}
		for _, m := range h.Minutes {
			if m.Requests != 0 || later.Sub(m.Start) > time.Hour {
				t.Errorf("at %v: a minute has %+v", later, m)
			}
		}
	}
}

// TestRecordRecent checks that nothing is recorded before the first call of LastHour, and that
// recorded texts are short and printable.
func TestRecordRecent(t *testing.T) {
	target := func() string { return "http://user:secret@a.example/\u202e<script>" + strings.Repeat("x", 1<<20) }
	d := &enforce.LogRecord{Decision: enforce.OutcomeDeny, Reason: enforce.ReasonDisallowed, Agent: "bot\x1b[2J", Origin: rand.Text()}
	before := len(LastHour().Refusals) // from an earlier run of the test
	RecordRecent(d, "GET", OtherAgent, false, target)
	if h := LastHour(); len(h.Refusals) != before {
		t.Errorf("recorded before LastHour was called: %+v", h.Refusals)
	}
	stop := Record(new(caddyhttp.Server))
	defer stop()
	RecordRecent(d, "GET", OtherAgent, false, target)
	h := LastHour()
	if len(h.Refusals) != before+1 {
		t.Fatalf("%d refusals, want one more than %d", len(h.Refusals), before)
	}
	got := h.Refusals[0]
	if len(got.URL) > recentURL || strings.Contains(got.URL, "secret") || strings.ContainsAny(got.URL+got.Agent, "\u202e\x1b") {
		t.Errorf("the recorded texts are %+v", got)
	}
}

// TestTunnelsAreNoRequests checks that a CONNECT counts as a tunnel, opened or refused, and not as
// a request.
func TestTunnelsAreNoRequests(t *testing.T) {
	t.Parallel()
	r, now := new(recorder), time.Date(2026, 11, 25, 10, 0, 30, 0, time.UTC)
	refusal := RecentRefusal{At: now, Block: "alpha", Agent: "a", Reason: "unreachable"}
	tunnel, refused := RecentRefusal{At: now, Method: "CONNECT"}, refusal
	refused.Method = "CONNECT"
	r.add(tunnel, false, false, false)
	r.add(refused, false, false, false)
	r.add(RecentRefusal{At: now, Block: OtherAgent}, true, true, true)
	r.add(RecentRefusal{At: now, Block: OtherAgent}, false, true, false)
	r.add(refusal, false, true, true)
	r.add(refusal, false, false, false)
	h := r.lastHour(now)
	got := h.Minutes[len(h.Minutes)-1]
	if got.Requests != 4 || got.Refused != 2 || got.Tunnels != 2 || got.Held != 1 || got.Failed != 1 {
		t.Errorf("the minute has %+v", got)
	}
	if want := []RefusalKind{{"unreachable", "a", false}, {"unreachable", "a", true}}; !slices.Equal(h.TopKinds(), want) || h.Kinds[want[0]] != 2 {
		t.Errorf("the kinds are %+v, want %v", h.Kinds, want)
	}
}

// TestRefusalsOfAKind checks that refusals of one agent at one origin for one reason share an entry
// with a count, until an hour passes without one. The oldest entries are dropped first.
func TestRefusalsOfAKind(t *testing.T) {
	t.Parallel()
	r, now := new(recorder), time.Date(2026, 11, 25, 10, 0, 0, 0, time.UTC)
	refuse := func(at time.Time, origin, url string) {
		r.add(RecentRefusal{At: at, Method: "GET", Agent: "acmebot", Origin: origin, Reason: "disallowed", URL: url}, false, false, false)
	}
	refuse(now, "https://a.example", "1")
	refuse(now.Add(50*time.Minute), "https://b.example", "2")
	refuse(now.Add(59*time.Minute), "https://a.example", "3")
	h := r.lastHour(now.Add(61 * time.Minute))
	if len(h.Refusals) != 2 || h.Refusals[0].URL != "3" || h.Refusals[0].Count != 2 || !h.Refusals[0].First.Equal(now) || h.Refusals[1].Count != 1 {
		t.Errorf("the refusals are %+v", h.Refusals)
	}
	refuse(now.Add(3*time.Hour), "https://a.example", "4")
	if h := r.lastHour(now.Add(3 * time.Hour)); h.Full || len(h.Refusals) != 1 || h.Refusals[0].Count != 1 || !h.Refusals[0].First.Equal(h.Refusals[0].At) {
		t.Errorf("after three hours, the refusals are %+v", h.Refusals)
	}
	for i := range 2 * recentRefusals {
		refuse(now.Add(3*time.Hour+time.Duration(i)*time.Millisecond), strconv.Itoa(i), "")
	}
	h = r.lastHour(now.Add(3*time.Hour + time.Minute))
	old := slices.IndexFunc(h.Refusals, func(q RecentRefusal) bool { return q.Origin == "0" })
	if !h.Full || len(h.Refusals) != recentRefusals || h.Refusals[0].Origin != strconv.Itoa(2*recentRefusals-1) || old >= 0 {
		t.Errorf("%d refusals, the newest of %s; the first one is at %d", len(h.Refusals), h.Refusals[0].Origin, old)
	}
}

// TestTrend checks that the last minutes are compared with the same number an hour ago, and that a
// run begins after a pause.
func TestTrend(t *testing.T) {
	t.Parallel()
	r, start := new(recorder), time.Date(2026, 11, 25, 10, 0, 30, 0, time.UTC)
	minute := func(n int) time.Time { return start.Add(time.Duration(n) * time.Minute) }
	refuse := func(n, times int) {
		for range times {
			r.add(RecentRefusal{At: minute(n), Method: "GET", Agent: "a", Reason: "disallowed"}, false, false, false)
		}
	}
	refused := func(m Minute) int { return m.RefusedFor("disallowed", false) }
	refuse(2, 3)
	if got := r.lastHour(minute(3)).Trend(refused); got != (Trend{Now: 3, Since: minute(2).Truncate(time.Minute)}) {
		t.Errorf("the first trend is %+v", got)
	}
	refuse(60, 4) // longer than a pause
	refuse(69, 5)
	refuse(71, 1)
	if got, want := r.lastHour(minute(71)).Trend(refused), (Trend{6, 3, minute(60).Truncate(time.Minute), true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := r.lastHour(minute(90)).Trend(refused); got.Now != 0 || !got.Since.IsZero() {
		t.Errorf("after a pause, the trend is %+v", got)
	}
}

// BenchmarkRecordRecent measures the cost for a permitted request.
func BenchmarkRecordRecent(b *testing.B) {
	d := &enforce.LogRecord{Decision: enforce.OutcomeAllow}
	for name, on := range map[string]bool{"off": false, "on": true} {
		b.Run(name, func(b *testing.B) {
			if on {
				defer Record(new(caddyhttp.Server))()
			}
			b.ReportAllocs()
			for b.Loop() {
				RecordRecent(d, "GET", "alpha", false, nil)
			}
		})
	}
}
