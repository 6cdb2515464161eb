package engine

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// TestSitemapsOf: what is shown of a Sitemap line, with its scope (RFC 9309 section 2.3: scheme,
// host and port).
func TestSitemapsOf(t *testing.T) {
	t.Parallel()
	text := "Sitemap: https://example.com/a.xml\nSitemap: HTTPS://EXAMPLE.COM:443/\x1b[2J\u202eb\u00e9\n" +
		"Sitemap: http://example.com/c\nSitemap: https://u:p@example.com/d\nSitemap: https://example.com\x01/e\n"
	want := []struct {
		shown, target string
		line          int
		inScope       bool
	}{
		{"https://example.com/a.xml", "https://example.com/a.xml", 1, true},
		{`HTTPS://EXAMPLE.COM:443/\x1b[2J\xe2\x80\xaebé`, "", 2, false}, // net/url refuses the control byte
		{"http://example.com/c", "http://example.com/c", 3, false},
		{"https://u:p@example.com/d", "", 4, false},
		{`https://example.com\x01/e`, "", 5, false},
	}
	got := SitemapsOf(site(t, "https://example.com"), robotstxt.Parse([]byte(text)))
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i, w := range want {
		s := got[i]
		if s.URL != w.shown || s.target.String() != w.target || s.Line != w.line || s.InScope != w.inScope || s.Access != "" {
			t.Errorf("got %+v, want %+v", s, w)
		}
	}
}

// TestSitemapsChanged: the event comes with a newly fetched text that names others, and only then.
func TestSitemapsChanged(t *testing.T) {
	t.Parallel()
	const one, two = "Sitemap: https://example.com/1\n", "Sitemap: https://example.com/2\n"
	p, start := fetch.DefaultPolicy(), time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
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
			t.Errorf("%s: %v, want %d and %d", name, got, tt.added, tt.removed)
			continue
		}
		lists := []int{min(tt.added, maxEventSitemaps), min(tt.removed, maxEventSitemaps)}
		added, _ := got["added"].([]string)
		removed, _ := got["removed"].([]string)
		if !reflect.DeepEqual([]int{len(added), len(removed)}, lists) {
			t.Errorf("%s: lists of %d and %d, want %v", name, len(added), len(removed), lists)
		}
	}
}
