package audit

import (
	"net/http"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
)

// TestVisitTime checks that a refusal by visit_time is computed from the text and the time of the
// line. A request that passed at another hour is not a finding, since agents may ignore the field.
// Other boundaries are taken from the line.
func TestVisitTime(t *testing.T) {
	t.Parallel()
	now := time.Now().UTC() // like the cache
	opens := now.Add(2 * time.Hour).Truncate(time.Minute)
	hours := opens.Format("1504-") + opens.Add(time.Hour).Format("1504")
	text := "User-agent: *\nVisit-time: " + hours + "\nDisallow: /private/\n\nUser-agent: Free\nVisit-time: " + hours + "\nAllow: /\n"
	const page = "http://site.example/page"
	store := memory{}
	store.keep(text)
	identity := func(name, visit string, mode enforce.Mode) enforce.Identity {
		id := crawler(t, name)
		id.Config = &enforce.Agent{Mode: mode, Preferences: enforce.PreferencesLog, Boundaries: enforce.Boundaries{VisitTime: visit}}
		return id
	}
	policy, _, err := enforce.NewPolicy(enforce.PolicyConfig{ConnectDefault: enforce.ConnectTunnel}, now)
	if err != nil {
		t.Fatal(err)
	}
	e := &enforce.Enforcer{
		Rules: rulesOf(t, sites{"site.example": goodText(text)}, fetch.Policy{}.Complete()), Policy: policy,
	}
	decide := func(id enforce.Identity, path string) object {
		url := "http://site.example" + path
		d := e.Decide(t.Context(), enforce.Request{Method: http.MethodGet, Target: target(t, url), Identity: id})
		return lineOf(t, d.Record(), "GET", url, now)
	}
	refused := decide(identity("AcmeBot", "keep", ""), "/page")
	tunnel := e.DecideTunnel(t.Context(), identity("Free", "keep", ""), target(t, "https://site.example/").Origin)
	window := enforce.Decision{Agent: "AcmeBot", Origin: target(t, page).Origin, PathVisible: true}.Refuse(enforce.ReasonWindow, "its hours are 22:00-06:00", time.Hour)
	late := e.Decide(t.Context(), enforce.Request{Method: http.MethodGet, Target: target(t, page), Identity: identity("AcmeBot", "ignore", "")})
	late = late.Refuse(enforce.ReasonWindow, "its hours are 22:00-06:00", time.Hour)
	late.Wait = 24 * time.Second
	for _, tt := range []struct {
		name string
		line object
		want Kind
	}{
		{"refused", refused, ""},
		{"spared", decide(identity("AcmeBot", "keep", enforce.ModeReport), "/page"), ""},
		{"a tunnel", lineOf(t, tunnel.Record(), "CONNECT", "site.example:443", now), ""},
		{"ignored", decide(identity("AcmeBot", "ignore", ""), "/page"), ""},
		{"disallowed", decide(identity("AcmeBot", "keep", ""), "/private/x"), ""},
		{"a window", lineOf(t, window.Record(), "GET", page, now), ""},
		{"refused within the hours", refused.at(opens.Add(time.Second)), KindVerdict},
		{"another line", refused.with("line", 1), KindEvidence},
		{"other hours", refused.with("rule", "2300-0600"), KindEvidence},
		{"no line", refused.with("line", nil), KindImpossible},
		{"no text", refused.with("sha256", nil), KindImpossible},
		{"it passed", refused.with("decision", "allow"), KindImpossible},
		{"refused by a rule instead", refused.with("reason", "disallowed"), KindVerdict},
		{"what a rule refuses", decide(identity("AcmeBot", "keep", ""), "/private/x").with("reason", "visit_time").with("rule", hours).with("line", 2), KindVerdict},
		{"a window that closed late", lineOf(t, late.Record(), "GET", page, now), ""},
		{"a window that closed late, and it was sent", lineOf(t, late.Record(), "GET", page, now).with("sent_at", float64(now.Unix())), KindImpossible},
		{"a window, with another text", refused.with("reason", "window"), KindEvidence},
		{"a host that was denied late", lineOf(t, late.Record(), "GET", page, now).with("reason", "operator_deny"), ""},
		{"a port that was taken away late", lineOf(t, late.Record(), "GET", page, now).with("reason", "agent_port"), ""},
		{"a window that passed", lineOf(t, window.Record(), "GET", page, now).with("decision", "allow"), KindImpossible},
	} {
		r := auditLogs(t, Config{Texts: store}, logOf(t, tt.line))
		if tt.want == "" && (len(r.findings)+len(r.faults) > 0 || len(r.totals.NotProvable) > 0) || tt.want != "" && r.totals.Findings[tt.want] != 1 {
			t.Errorf("%s: %q, want %q: %+v", tt.name, r.brief(), tt.want, r.findings)
		}
	}
	if r := auditLogs(t, Config{Texts: store}, logOf(t, refused.with("decided_at", nil))); len(r.findings) > 0 || len(r.totals.NotProvable) != 1 {
		t.Errorf("a line without its time: findings %+v, not provable %v", r.findings, r.totals.NotProvable)
	}
	if got := refused["robots"].(object)["reason"]; got != string(enforce.ReasonVisitTime) || tunnel.Reason != enforce.ReasonVisitTime {
		t.Errorf("the lines have the reasons %v and %s, want visit_time", got, tunnel.Reason)
	}
}
