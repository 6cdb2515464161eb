package integration

import (
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestOwnerAndContact: refusals, log and audit tell who answers for a crawler.
func TestOwnerAndContact(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rules))
	g := startGateway(t, gatewayConfig{Site: "agent newsbot {\nowner \"team news\"\ncontact news@acme.example\n}\nagent otherbot"})
	refused := site.URL(privatePage)
	text := g.mustFetch("newsbot/1.0", refused)
	if !strings.Contains(text.body, "\nowner:       team news\ncontact:     news@acme.example\n") {
		t.Errorf("text: %s", text.body)
	}
	w := g.dial()
	problem, err := w.ask(http.MethodGet, "GET "+refused+" HTTP/1.1\r\nHost: "+hostOf(refused)+
		"\r\nUser-Agent: newsbot/1.0\r\nAccept: application/json\r\n\r\n")
	if err != nil || !strings.Contains(problem.body, `"owner": "team news"`) || !strings.Contains(problem.body, `"contact": "news@acme.example"`) {
		t.Errorf("JSON: %v %s", err, problem.body)
	}
	if other := g.mustFetch("otherbot/1.0", refused); strings.Contains(other.body, "owner") || strings.Contains(other.body, "contact:") {
		t.Errorf("an agent without: %s", other.body)
	}
	g.stop()
	lines := g.readLogs()
	if len(lines) != 3 || lines[0].Robots.Owner != "team news" || lines[0].Robots.Contact != "news@acme.example" {
		t.Errorf("log: %+v", lines)
	}
	if strings.Contains(lines[2].raw, `"owner"`) || strings.Contains(lines[2].raw, `"contact"`) {
		t.Errorf("log of an agent without: %s", lines[2].raw)
	}
	agents := audit(t, "--store", g.store(), g.accessLog()).totals.Agents
	if len(agents) != 2 || agents[0].Owner != "team news" || agents[0].Contact != "news@acme.example" || agents[1].Owner+agents[1].Contact != "" {
		t.Errorf("audit: %+v", agents)
	}
}
