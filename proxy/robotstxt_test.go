package proxy

import (
	"context"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// known answers each lookup with one entry.
type known struct{ entry *robotscache.Entry }

func (k known) Lookup(context.Context, origin.Origin, robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	return k.entry, robotscache.SourceStore, nil
}

// TestAgeOfRobotsTxt checks the Age of a robots.txt for a crawler (RFC 9111 section 5.1), which
// counts from the fetch. A record without that time, which only another program writes, must not
// have an Age of centuries.
func TestAgeOfRobotsTxt(t *testing.T) {
	t.Parallel()
	target, err := origin.NewTarget(&url.URL{Scheme: "http", Host: "a.example", Path: "/robots.txt"})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		state   fetch.State
		fetched time.Time
		age     string
	}{
		{fetch.StateUnreachable, time.Now().Add(-90 * time.Second), "90"},
		{fetch.StateUnreachable, time.Now().Add(time.Hour), "0"}, // by a clock that was set back
		{fetch.StateUnreachable, time.Time{}, "0"},
		{fetch.StateAbsent, time.Time{}, "0"},
		{fetch.StateUnknown, time.Time{}, "0"},
	} {
		entry := robotscache.NewEntry(fetch.Record{Origin: target.Origin, State: tt.state, Cause: fetch.CauseDNS, FetchedAt: tt.fetched}, robotscache.Interpretation{})
		w := httptest.NewRecorder()
		x := &exchange{
			site:   &Site{SitePolicy: &engine.SitePolicy{Enforcer: &enforce.Enforcer{Rules: known{entry}}}},
			target: target,
			w:      w, r: httptest.NewRequestWithContext(t.Context(), "GET", "http://a.example/robots.txt", nil), ctx: t.Context(),
		}
		if err := x.serveRobotsTxt(); err != nil {
			t.Fatal(err)
		}
		if age := w.Header().Get("Age"); age != tt.age || x.decision.Source != robotscache.SourceStore || !x.decision.FetchedAt.Equal(tt.fetched) {
			t.Errorf("%s of %s: status %d, Age %s, want %s", tt.state, tt.fetched, w.Code, age, tt.age)
		}
	}
}
