package proxy

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
)

// TestTunnelsPerAgent opens one tunnel more than an agent may have, and again after one has ended.
// Other agents have their own limit.
func TestTunnelsPerAgent(t *testing.T) {
	identifier, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{AllowUnidentified: true})
	if err != nil {
		t.Fatal(err)
	}
	operator, _, err := enforce.NewPolicy(enforce.PolicyConfig{ConnectDefault: enforce.ConnectIntercept}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	site := &Site{tunnels: new(tunnelServer), SitePolicy: &engine.SitePolicy{
		Engine: new(engine.Engine), Identifier: identifier, Operator: operator, Enforcer: &enforce.Enforcer{Policy: operator},
	}}
	ask := func(agent string) enforce.Decision {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodConnect, "example.com:443", nil)
		r.Header.Set("User-Agent", agent)
		x := &exchange{site: site, w: httptest.NewRecorder(), r: r, ctx: r.Context()}
		if err := x.connect(); err != nil {
			t.Fatal(err)
		}
		return x.decision
	}
	const letIn = enforce.ReasonInternal // the result of an accepted tunnel: a recorder has no connection to take over
	open := make([]*engine.InFlight, 16384)
	for i := range open {
		if _, open[i], err = site.Engine.EnterTunnel(t.Context(), origin.Origin{}, "Tester", false); err != nil {
			t.Fatal(err)
		}
		defer open[i].Leave()
	}
	d := ask("Tester/1.0")
	if d.Reason != enforce.ReasonAgentLimit || d.Detail != "16384 tunnels are open" {
		t.Errorf("one tunnel too many: reason %s, detail %q", d.Reason, d.Detail)
	}
	if d := ask("Other/1.0"); d.Reason != letIn {
		t.Errorf("another agent: reason %s, detail %q", d.Reason, d.Detail)
	}
	open[0].Leave()
	for range 2 {
		if d := ask("Tester/1.0"); d.Reason != letIn {
			t.Errorf("after one has ended: reason %s, detail %q", d.Reason, d.Detail)
		}
	}
}
