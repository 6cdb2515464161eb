package engine

import (
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
	r.add(now, "GET", OtherAgent, true, nil)
	for i := range recentRefusals + 5 {
		r.add(now.Add(time.Minute), "GET", "alpha", false, &RecentRefusal{At: now.Add(time.Minute), Agent: strconv.Itoa(i % (recentKinds + 5)), Reason: "disallowed", Line: i})
	}
	h := r.lastHour(now.Add(3 * time.Minute))
	if len(h.Refusals) != recentRefusals || h.Refusals[0].Line != recentRefusals+4 {
		t.Errorf("%d refusals, the newest %+v", len(h.Refusals), h.Refusals[0])
	}
	if n := len(h.Minutes); n != 4 || h.Minutes[0].Requests != 1 || h.Minutes[1].Refused != recentRefusals+5 || h.Minutes[3].Requests != 0 {
		t.Errorf("%d minutes: %+v", n, h.Minutes)
	}
	total := 0
	for _, n := range h.Kinds {
		total += n
	}
	if len(h.Kinds) != recentKinds+1 || total != recentRefusals+5 || h.TopKinds()[0] != (RefusalKind{"other", "other", false}) {
		t.Errorf("%d kinds of %d refusals, the first %v", len(h.Kinds), total, h.TopKinds()[0])
	}
	agents := map[string]AgentCount{OtherAgent: {1, 1}, "alpha": {recentRefusals + 5, 0}}
	if !maps.Equal(h.Agents, agents) || !slices.Equal(h.TopAgents(), []string{OtherAgent, "alpha"}) {
		t.Errorf("agents %v, want %v, and first the one that comes too early", h.Agents, agents)
	}
	for _, later := range []time.Time{now.Add(2 * time.Hour), now.Add(-time.Hour)} { // the clock is set back
		h := r.lastHour(later)
		if len(h.Kinds) != 0 || len(h.Agents) != 0 {
			t.Errorf("at %v: %+v, %+v", later, h.Kinds, h.Agents)
		}
		for _, m := range h.Minutes {
			if m.Requests != 0 || later.Sub(m.Start) > time.Hour {
				t.Errorf("at %v: %+v", later, m)
			}
		}
	}
}

// TestRecordRecent: nothing is recorded unless somebody wants it, and recorded texts are cut and
// printable.
func TestRecordRecent(t *testing.T) {
	target := func() string { return "http://user:secret@a.example/\u202e<script>" + strings.Repeat("x", 1<<20) }
	d := &enforce.LogRecord{Decision: enforce.OutcomeDeny, Reason: enforce.ReasonDisallowed, Agent: "bot\x1b[2J"}
	before := len(LastHour().Refusals) // of an earlier run of the test
	RecordRecent(d, "GET", OtherAgent, false, target)
	if h := LastHour(); len(h.Refusals) != before {
		t.Errorf("unasked: %+v", h.Refusals)
	}
	stop := Record(new(caddyhttp.Server))
	defer stop()
	RecordRecent(d, "GET", OtherAgent, false, target)
	h := LastHour()
	if len(h.Refusals) != before+1 {
		t.Fatalf("%d refusals, and %d before", len(h.Refusals), before)
	}
	got := h.Refusals[0]
	if len(got.URL) > recentURL || strings.Contains(got.URL, "secret") || strings.ContainsAny(got.URL+got.Agent, "\u202e\x1b") {
		t.Errorf("%+v", got)
	}
}

// TestTunnelsAreNoRequests: a CONNECT counts as a tunnel, opened or refused, and as no request.
func TestTunnelsAreNoRequests(t *testing.T) {
	t.Parallel()
	r, now := new(recorder), time.Date(2026, 11, 25, 10, 0, 30, 0, time.UTC)
	refusal := &RecentRefusal{At: now, Agent: "a", Reason: "unreachable"}
	r.add(now, "CONNECT", "alpha", false, nil)
	r.add(now, "CONNECT", "alpha", false, refusal)
	r.add(now, "GET", OtherAgent, true, nil)
	r.add(now, "GET", "alpha", false, refusal)
	r.add(now, "GET", "alpha", false, refusal)
	h := r.lastHour(now)
	got := h.Minutes[len(h.Minutes)-1]
	if got.Requests != 3 || got.Refused != 2 || got.Tunnels != 2 {
		t.Errorf("%+v", got)
	}
	if want := []RefusalKind{{"unreachable", "a", false}, {"unreachable", "a", true}}; !slices.Equal(h.TopKinds(), want) || h.Kinds[want[0]] != 2 {
		t.Errorf("%+v", h.Kinds)
	}
}

// BenchmarkRecordRecent is the cost of an allowed request.
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
