package engine

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/robotstxt"
)

const (
	rulesA = "User-agent: *\nDisallow: /private/\n"
	rulesB = "User-agent: *\nDisallow: /private/\nDisallow: /new/\nSitemap: https://example.com/map.xml\n# \x1b[2J\xff\n"
)

func TestChanges(t *testing.T) {
	t.Parallel()
	p := fetch.Policy{}.Complete()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rules := fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte(rulesA)}
	failed := fetch.Outcome{Cause: fetch.CauseDNS, Detail: "no such host"}
	known := p.Next(fetch.Record{Origin: site(t, "https://example.com")}, rules, start)
	other := rules
	other.Body = []byte(rulesB)
	list := changes(p, p.Next(known, failed, start.Add(time.Hour)), failed, start.Add(7*time.Hour))
	want := map[string]any{
		"since": "2026-01-01T01:00:00Z", "for_s": int64(6 * 3600), "attempts": 2, "cause": "dns", "status": 0,
		"detail": "no such host", "access": "rules",
	}
	if !reflect.DeepEqual(list[0].data, want) {
		t.Errorf("got %v, want %v", list[0].data, want)
	}
	texts := changes(p, known, other, start.Add(time.Hour))
	if a := known.SHA256; texts[0].data["from"] != hex.EncodeToString(a[:]) {
		t.Errorf("the event has %v, want the hash of the known text", texts[0].data)
	}
}

// TestEventSitemapsAreBounded checks that a site's list of sitemaps cannot fill the queue of
// events.
func TestEventSitemapsAreBounded(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("Sitemap: https://example.com/" + strings.Repeat("x", robotstxt.MaxSitemapURL) + "\n")
	for i := range 2 * maxEventSitemaps {
		fmt.Fprintf(&text, "Sitemap: https://example.com/%d\x1b\n", i)
	}
	data := withText(fetch.Record{State: fetch.StateRules, Body: []byte(text.String())}, map[string]any{})
	got, _ := data["sitemaps"].([]string)
	if len(got) != maxEventSitemaps || got[0] != `https://example.com/0\x1b` {
		t.Errorf("the event has %d sitemaps: %q", len(got), got[:min(len(got), 2)])
	}
}

func TestEmitterNil(t *testing.T) {
	t.Parallel()
	var e *emitter
	if e.wanted(eventDenied) {
		t.Error("a nil emitter wants an event")
	}
}

// TestEventsUnasked checks that no data is prepared for events without a subscription.
func TestEventsUnasked(t *testing.T) {
	t.Parallel()
	emitter := func(events string) *emitter {
		t.Helper()
		ctx, err := caddy.ProvisionContext(&caddy.Config{AppsRaw: caddy.ModuleMap{"events": json.RawMessage(events)}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := caddy.NewContext(ctx)
		t.Cleanup(cancel)
		e, err := newEmitter(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !e.wanted(eventDenied) {
			t.Error("an event is not wanted before the start, when subscriptions are unknown")
		}
		if err := e.app.Start(); err != nil {
			t.Fatal(err)
		}
		e.start()
		return e
	}
	if emitter(`{}`).wanted(eventDenied) {
		t.Error("a denial is wanted without a subscription")
	}
	e := emitter(`{"subscriptions": [{"events": ["robots.rules_changed"], "handlers": [{"handler": "nobody"}]}]}`)
	if e.wanted(eventDenied) || !e.wanted(eventRulesChanged) || !e.wanted(eventDenied, eventRulesChanged) {
		t.Error("the wanted events are not the subscribed ones")
	}
}

func init() { caddy.RegisterModule(nobody{}) }

// nobody is an event handler that does nothing.
type nobody struct{}

func (nobody) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "events.handlers.nobody", New: func() caddy.Module { return new(nobody) }}
}

func (nobody) Handle(context.Context, caddy.Event) error { return nil }

// TestEventDocs checks that the page documents each event with all of its data, and nothing else.
func TestEventDocs(t *testing.T) {
	t.Parallel()
	sections := testdocs.Sections(t, "events.md")
	data := map[string]map[string]bool{eventDenied: testdocs.SetOf("method", "url")}
	policy := fetch.Policy{}.Complete()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rules := fetch.Outcome{Kind: fetch.KindRules, Body: []byte(rulesA)}
	other := fetch.Outcome{Kind: fetch.KindRules, Body: []byte(rulesB)}
	known := policy.Next(fetch.Record{Origin: site(t, "https://example.com")}, rules, start)
	gone := policy.Next(known, fetch.Outcome{}, start.Add(30*time.Hour))
	for _, step := range []struct {
		before fetch.Record
		out    fetch.Outcome
		hours  int
	}{{known, other, 1}, {known, fetch.Outcome{}, 30}, {gone, fetch.Outcome{}, 40}} {
		for _, c := range changes(policy, step.before, step.out, start.Add(time.Duration(step.hours)*time.Hour)) {
			data[c.name] = testdocs.SetOf(slices.Collect(maps.Keys(c.data))...)
		}
	}
	events, headings := map[string]bool{}, map[string]bool{}
	const common = "Data of all events below" // what emitter.fetched adds
	testdocs.Same(t, common, testdocs.SetOf("origin", "robots_url", "fetched_as"), testdocs.Named(sections[common]))
	delete(sections, common)
	delete(sections, "Next")
	for heading, section := range sections {
		headings[heading] = true
		testdocs.Same(t, heading+": data", data[heading], testdocs.Named(section))
	}
	for name := range data {
		events[name] = true
	}
	testdocs.Same(t, "event", events, headings)
}

// TestSitemapsChanged checks that the event comes only with a newly fetched text with other
// sitemaps.
func TestSitemapsChanged(t *testing.T) {
	t.Parallel()
	const one, two = "Sitemap: https://example.com/1\n", "Sitemap: https://example.com/2\n"
	p, start := fetch.Policy{}.Complete(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	rules := func(text string) fetch.Outcome {
		return fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte(text)}
	}
	var many strings.Builder
	for i := range 2 * maxEventSitemaps {
		fmt.Fprintf(&many, "Sitemap: https://example.com/%d\n", i+10)
	}
	absent, failed := fetch.Outcome{Kind: fetch.KindAbsent, Status: 404}, fetch.Outcome{Cause: fetch.CauseDNS}
	cut := rules(one + strings.TrimSuffix(two, "\n"))
	cut.Truncated = true
	for name, tt := range map[string]struct {
		steps          []fetch.Outcome
		added, removed int // -1: no event
	}{
		"a new origin":                {[]fetch.Outcome{rules(one)}, -1, -1},
		"the same text":               {[]fetch.Outcome{rules(one), rules(one)}, -1, -1},
		"other rules alone":           {[]fetch.Outcome{rules(one), rules(one + "Disallow: /\n")}, -1, -1},
		"another order, and twice":    {[]fetch.Outcome{rules(one + two), rules(two + one + two)}, -1, -1},
		"one more":                    {[]fetch.Outcome{rules(one), rules(one + two)}, 1, 0},
		"one less":                    {[]fetch.Outcome{rules(one + two), rules(two)}, 0, 1},
		"another":                     {[]fetch.Outcome{rules(one), rules(two)}, 1, 1},
		"behind none":                 {[]fetch.Outcome{absent, rules(one)}, 1, 0},
		"into none":                   {[]fetch.Outcome{rules(one), absent}, -1, -1},
		"an outage":                   {[]fetch.Outcome{rules(one), failed}, -1, -1},
		"the same behind an outage":   {[]fetch.Outcome{rules(one), failed, rules(one)}, -1, -1},
		"another behind an outage":    {[]fetch.Outcome{rules(one), failed, rules(two)}, 1, 1},
		"a last URL that may be less": {[]fetch.Outcome{rules(one), cut}, -1, -1},
		"many":                        {[]fetch.Outcome{rules(one), rules(many.String())}, 2 * maxEventSitemaps, 1},
	} {
		var got map[string]any
		record := fetch.Record{Origin: site(t, "https://example.com")}
		for i, out := range tt.steps {
			at := start.Add(time.Duration(i) * 25 * time.Hour)
			got = nil
			for _, c := range changes(p, record, out, at) {
				if c.name == eventSitemapsChanged {
					got = c.data
				}
			}
			record = p.Next(record, out, at)
		}
		if got == nil && tt.added < 0 {
			continue
		}
		if got["added_total"] != tt.added || got["removed_total"] != tt.removed {
			t.Errorf("%s: event %v, want %d added and %d removed", name, got, tt.added, tt.removed)
			continue
		}
		lists := []int{min(tt.added, maxEventSitemaps), min(tt.removed, maxEventSitemaps)}
		added, _ := got["added"].([]string)
		removed, _ := got["removed"].([]string)
		if !reflect.DeepEqual([]int{len(added), len(removed)}, lists) {
			t.Errorf("%s: %d added and %d removed URLs, want %v", name, len(added), len(removed), lists)
		}
	}
}
