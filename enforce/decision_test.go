package enforce

import (
	"net/http"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/origin"
)

func TestZeroValuesDeny(t *testing.T) {
	t.Parallel()
	if (Decision{}).Allowed || (Decision{}).Outcome() != "error" {
		t.Error("the zero decision is not an error")
	}
	if (Decision{}).Paced() {
		t.Error("the zero decision is paced")
	}
	if r, _, refused := (Identity{}).Refused(); !refused || r != ReasonUnidentified {
		t.Error("the zero identity is accepted")
	}
	if _, _, refused := (Authentication{}).Refused(); !refused {
		t.Error("the zero tunnel is accepted")
	}
	if _, _, refused := new(Identifier).Inner(Authentication{}, "Bot/1.0").Refused(); !refused {
		t.Error("a request in the zero tunnel is accepted")
	}
	if _, _, refused := new(Identifier).Identify(t.Context(), Sender{UserAgent: "Bot/1.0"}).Refused(); !refused {
		t.Error("the zero identifier accepts a request")
	}
	target := origin.Target{Origin: mustOrigin(t, "http://example.com"), Path: "/"}
	for name, d := range map[string]Decision{
		"enforcer": new(Enforcer).Decide(t.Context(), Request{http.MethodGet, target, crawler(t, "Bot/1.0")}),
		"request":  newEnforcer(siteOf(absent(404), defaults), nil, nil).Decide(t.Context(), Request{}),
		"tunnel":   newEnforcer(siteOf(absent(404), defaults), nil, nil).DecideTunnel(t.Context(), crawler(t, "Bot/1.0"), target.Origin),
		"connect":  newEnforcer(siteOf(absent(404), defaults), nil, nil).DecideIntercept(Authentication{}, target.Origin),
	} {
		if d.Allowed {
			t.Errorf("%s: a zero value permits the request: %+v", name, d)
		}
	}
	if (HostPattern{}).Match(target.Origin) || (HostPattern{}).String() != "" {
		t.Error("the zero pattern matches")
	}
}

func TestRefuseKeepsEvidence(t *testing.T) {
	t.Parallel()
	d := Decision{Allowed: true, Reason: ReasonDisallowed, WouldDeny: true, Mode: ModeReport, Agent: "A", Line: 3}
	got := d.Refuse(ReasonRateLimited, "host", 1500*time.Millisecond)
	if got.Allowed || got.WouldDeny || got.Reason != ReasonRateLimited || got.Agent != "A" || got.Line != 3 ||
		got.RetryAfter != 1500*time.Millisecond || got.Detail != "host" {
		t.Errorf("Refuse returned %+v", got)
	}
	if !d.Allowed {
		t.Error("the receiver was changed")
	}
	for _, r := range []Reason{"", ReasonNoRule, "made_up"} {
		if got := d.Refuse(r, "", -1); got.Allowed || got.Reason != ReasonInternal || got.RetryAfter != 0 {
			t.Errorf("Refuse(%q) = %+v, want an internal error", r, got)
		}
	}
}

func TestOutcome(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		d    Decision
		want string
	}{
		{Decision{Allowed: true, Reason: ReasonNoRule}, "allow"},
		{Decision{Allowed: true, Reason: ReasonDisallowed, WouldDeny: true}, "allow"},
		{Decision{Reason: ReasonDisallowed}, "deny"},
		{Decision{Reason: ReasonCanceled}, "error"},
		{Decision{Allowed: true}.Refuse("dns", "", 0), "error"},
	} {
		if got := tt.d.Outcome(); got != tt.want {
			t.Errorf("Outcome of %s = %s, want %s", tt.d.Reason, got, tt.want)
		}
	}
}
