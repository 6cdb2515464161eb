package crawlgate

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

func init() {
	caddy.RegisterModule(new(catcher))
}

// catcher is an event handler that stores its events.
type catcher struct{}

// caught has the events of all catchers. If hold is set, they wait until it is closed.
var caught struct {
	mu     sync.Mutex
	events []caddy.Event
	hold   chan struct{}
}

func (*catcher) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.catcher", New: func() caddy.Module { return new(catcher) }}
}

func (*catcher) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}

func (*catcher) Handle(ctx context.Context, e caddy.Event) error {
	caught.mu.Lock()
	caught.events = append(caught.events, e)
	hold := caught.hold
	caught.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return ctx.Err()
}

var _ caddyevents.Handler = (*catcher)(nil)

// catch returns the next n events that it has not returned yet.
func catch(t *testing.T, n int) (list []caddy.Event) {
	t.Helper()
	testgateway.Until(t, "events", func() bool {
		caught.mu.Lock()
		defer caught.mu.Unlock()
		return len(caught.events) >= n
	})
	caught.mu.Lock()
	defer caught.mu.Unlock()
	list = slices.Clone(caught.events[:n])
	caught.events = caught.events[n:]
	return list
}

const catchAll = "events {\non robots.denied catcher\non robots.state_changed catcher\non robots.rules_changed catcher\non robots.unreachable catcher\n}"

// TestEvents checks the events for the changes of a site.
func TestEvents(t *testing.T) {
	g := testgateway.New(t, "", catchAll)
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	o := s.Origin().String()
	s.SetRobots(testorigin.OK(testgateway.RulesA))
	g.Visit(s.URL("/page"), "alpha")
	if got := g.Visit(s.URL("/private/x?secret=1"), "alpha"); got != http.StatusForbidden {
		t.Fatalf("got status %d for a disallowed page, want 403", got)
	}
	denied := catch(t, 1)[0] // a new site and an allowed request cause no event
	if denied.Name() != "robots.denied" || denied.Origin().CaddyModule().ID != "robots" {
		t.Errorf("got event %s from %v, want robots.denied from robots", denied.Name(), denied.Origin())
	}
	for field, want := range map[string]any{
		"decision": "deny", "reason": "disallowed", "agent": "alpha", "origin": o, "rule": "/private/", "line": int64(2),
		"method": http.MethodGet, "url": s.URL("/private/x"), "sha256": testgateway.Hash(testgateway.RulesA),
	} {
		if got := denied.Data[field]; !reflect.DeepEqual(got, want) {
			t.Errorf("denied: %s is %v, want %v", field, got, want)
		}
	}

	s.SetRobots(testorigin.OK(testgateway.RulesB))
	testgateway.Ask[adminapi.OriginDetail](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: o})
	if e := catch(t, 1)[0]; e.Name() != "robots.rules_changed" || e.Data["origin"] != o || e.Data["from"] != testgateway.Hash(testgateway.RulesA) || e.Data["to"] != testgateway.Hash(testgateway.RulesB) {
		t.Errorf("got event %s %v, want robots.rules_changed from RulesA to RulesB", e.Name(), e.Data)
	}
	testgateway.Ask[adminapi.OriginDetail](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: o}) // no change, no event
	s.SetRobots(testorigin.Status(http.StatusGone))
	testgateway.Ask[adminapi.OriginDetail](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: o})
	want := map[string]any{
		"origin": o, "robots_url": o + "/robots.txt", "from": "rules", "to": "absent", "cause": "status", "status": 410, "detail": "",
		"sitemaps": []string{}, "flags": []string{},
	}
	if e := catch(t, 1)[0]; e.Name() != "robots.state_changed" || !reflect.DeepEqual(e.Data, want) {
		t.Errorf("got event %s %v, want robots.state_changed", e.Name(), e.Data)
	}

	// A reload does not change that.
	g.Load("unknown deny", catchAll)
	s.SetRobots(testorigin.Respond(testorigin.Response{
		Status: http.StatusAccepted, Body: []byte("<!doctype html>\n" + testgateway.RulesA + "Sitemap: https://example.com/map.xml\n"),
	}))
	testgateway.Ask[adminapi.OriginDetail](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: o})
	if e := catch(t, 1)[0]; e.Data["from"] != "absent" || e.Data["to"] != "rules" ||
		!reflect.DeepEqual(e.Data["sitemaps"], []string{"https://example.com/map.xml"}) || !reflect.DeepEqual(e.Data["flags"], []string{engine.FlagHTML, engine.Flag202}) {
		t.Errorf("got event %s %v, want a change from absent to rules", e.Name(), e.Data)
	}
}

// TestEventsNeverBlock checks that a handler which hangs delays no request, and that events beyond
// the queue are dropped and counted.
func TestEventsNeverBlock(t *testing.T) {
	g := testgateway.New(t, "deny denied.example", catchAll)
	hold := make(chan struct{})
	caught.mu.Lock()
	caught.hold = hold
	caught.mu.Unlock()
	defer func() {
		caught.mu.Lock()
		caught.hold = nil
		caught.mu.Unlock()
		close(hold)
	}()
	before := dropped(t, g)
	g.Visit("http://denied.example/", "alpha")
	catch(t, 1) // the handler hangs in this one
	client := g.Crawler()
	for range 1024 + 10 {
		resp, err := client.Get("http://denied.example/")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	if n := dropped(t, g) - before; n != 10 {
		t.Errorf("%v were dropped, want 10", n)
	}
	g.Stop() // does not wait for the handler
}

// dropped returns the number of events that were dropped.
func dropped(t *testing.T, g *testgateway.Gateway) (n int) {
	t.Helper()
	_, after, found := strings.Cut(string(g.Admin("GET", "/metrics", nil).Body), `crawlgate_dropped_total{what="event"} `)
	if _, err := fmt.Sscan(after, &n); found && err != nil {
		t.Fatal(err)
	}
	return n
}
