package engine

import (
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// TestMayFetch checks that the TDM file is a page like others for the product token of the
// gateway's User-Agent (RFC 9309 section 2.2.1). If the rules are unknown, it is not fetched
// (section 2.3.1.4).
func TestMayFetch(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	const agent = "acmegate/1.0 (+https://acme.example/)"
	record := func(out fetch.Outcome) fetch.Record { return fetch.Policy{}.Next(fetch.Record{}, out, now) }
	text := func(s string) fetch.Record { return record(fetch.Outcome{Kind: fetch.KindRules, Body: []byte(s)}) }
	for name, tt := range map[string]struct {
		record    fetch.Record
		userAgent string
		want      bool
	}{
		"no rule":                     {text(""), agent, true},
		"its group":                   {text("User-agent: acmegate\nDisallow: /.well-known/\n"), agent, false},
		"another group":               {text("User-agent: other\nDisallow: /\n"), agent, true},
		"the group of all":            {text("User-agent: *\nDisallow: /\n"), agent, false},
		"allowed in its group":        {text("User-agent: *\nDisallow: /\n\nUser-agent: acmegate\nAllow: /\n"), agent, true},
		"the group of all, no token":  {text("User-agent: *\nDisallow: /\n"), "", false},
		"absent":                      {record(fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: 404}), agent, true},
		"unreachable":                 {record(fetch.Outcome{Cause: fetch.CauseTimeout}), agent, false},
		"nothing known of the origin": {fetch.Record{}, agent, false},
	} {
		entry := robotscache.NewEntry(tt.record, robotscache.Interpretation{})
		if got := mayFetch(entry.View(now), tt.userAgent); got != tt.want {
			t.Errorf("%s: mayFetch = %t, want %t", name, got, tt.want)
		}
	}
}
