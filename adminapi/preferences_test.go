package adminapi_test

import (
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestAdminPreferences checks that the preference lines of a robots.txt are listed for an agent,
// with the ones that decide on a URL: those with the longest path, and any n
// (draft-ietf-aipref-attach-05 section 3.1, draft-ietf-aipref-vocab-07 section 5.1).
func TestAdminPreferences(t *testing.T) {
	g := testgateway.New(t, "agent alpha {\npurpose train-ai tdm\n}\nagent beta", "")
	s := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s.SetRobots(testorigin.OK("User-agent: *\nDisallow: /x\nContent-Usage: train-ai=n\nContent-Usage: /open train-ai=y\nContent-Signal: search=yes\n"))
	const usage, signal = "robots_content_usage", "robots_content_signal"
	var (
		search = adminapi.Preference{Purpose: "search", Value: "y", Source: signal, Line: 5}
		no     = adminapi.Preference{Purpose: "train-ai", Value: "n", Source: usage, Line: 3}
		yes    = adminapi.Preference{Purpose: "train-ai", Value: "y", Source: usage, Line: 4}
		tdm    = adminapi.Preference{Purpose: "tdm", Value: "unknown"}
	)
	for _, tt := range []struct {
		agent, path string
		want        []adminapi.Preference
	}{
		{"alpha", "/page", []adminapi.Preference{search, no, tdm}},
		{"alpha", "/open", []adminapi.Preference{search, yes, tdm}},
		{"beta", "/page", []adminapi.Preference{search, no}},
		{"alpha", "/x", nil},          // must not be fetched
		{"alpha", "/robots.txt", nil}, // not requested
	} {
		query := url.Values{"agent": {tt.agent}, "url": {s.URL(tt.path)}}
		if e := testgateway.Ask[adminapi.Explanation](g, "GET", "/robots/explain?"+query.Encode(), nil); !reflect.DeepEqual(e.Preferences, tt.want) {
			t.Errorf("%s%s: got %+v, want %+v", tt.agent, tt.path, e.Preferences, tt.want)
		}
	}
	scoped := yes
	scoped.Path = "/open"
	path := originQuery("origin", s.Origin().String())
	d := testgateway.Ask[adminapi.OriginDetail](g, "GET", path+"&agent=beta", nil)
	if want := []adminapi.Preference{no, scoped, search}; !reflect.DeepEqual(d.Preferences, want) {
		t.Errorf("of the origin: got %+v, want %+v", d.Preferences, want)
	}
	s.SetRobots(testorigin.OK("User-agent: *\nContent-Usage: /a\u2011b train-ai=n\n"))
	testgateway.Ask[adminapi.Refreshed](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: s.Origin().String()})
	d = testgateway.Ask[adminapi.OriginDetail](g, "GET", path+"&agent=beta", nil)
	if len(d.Preferences) != 1 || d.Preferences[0].Path != `/a\xe2\x80\x91b` {
		t.Errorf("preferences with a sign that looks like a hyphen = %+v", d.Preferences)
	}
	if d := testgateway.Ask[adminapi.OriginDetail](g, "GET", path, nil); d.Preferences != nil {
		t.Errorf("preferences without an agent = %+v, want none", d.Preferences)
	}
	if a := g.Admin("GET", path+"&agent=gamma", nil); a.Status != 400 || !strings.Contains(string(a.Body), "not configured") {
		t.Errorf("preferences of an unknown agent: got status %d, %s, want 400", a.Status, a.Body)
	}
	s.SetRobots(testorigin.OK("User-agent: *\n" + strings.Repeat("Content-Usage: a=n, b=y, c=n\n", 400)))
	testgateway.Ask[adminapi.Refreshed](g, "POST", "/robots/refresh", adminapi.OriginRequest{Origin: s.Origin().String()})
	if d := testgateway.Ask[adminapi.OriginDetail](g, "GET", path+"&agent=beta", nil); len(d.Preferences) != 1000 {
		t.Errorf("got %d of 1,200 preferences, want 1000", len(d.Preferences))
	}
}
