package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestOriginPage checks that the page of an origin shows each change of its text, and the signals
// for an agent.
func TestOriginPage(t *testing.T) {
	r := newRig(t, "", "")
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	var texts []string
	for _, rule := range []string{"Disallow: /first", "Disallow: /second", "Content-Usage: train-ai=n\nDisallow: /third"} {
		texts = append(texts, "User-agent: *\n"+rule+"\n")
		site.SetRobots(testorigin.OK(texts[len(texts)-1]))
		if _, err := adminapi.Refresh(t.Context(), engine.Current(), adminapi.OriginRequest{Origin: site.Origin().String()}); err != nil {
			t.Fatal(err)
		}
	}
	page := "/origin?origin=" + url.QueryEscape(site.Origin().String())
	for _, tt := range []struct {
		name, query string
		want, not   []string
	}{
		{"newest change", "", []string{"-Disallow: /second", "&#43;Disallow: /third", "<dd>rules</dd>", testgateway.Hash(texts[1]) + "#change"}, []string{
			"/first\n", testgateway.Hash(texts[0]) + "#change", "train-ai</td>", "None for this agent",
		}},
		{"older change", "&to=" + testgateway.Hash(texts[1]), []string{"-Disallow: /first", "&#43;Disallow: /second"}, nil},
		{"signals", "&agent=alpha", []string{"<td>train-ai</td><td>n</td>", `value="alpha"`}, nil},
		{"unknown agent", "&agent=no+token", []string{"no token", `class="failed"`}, []string{"train-ai</td>"}},
		{"unknown text", "&to=abc", []string{"History"}, []string{`id="change"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := r.ask("GET", page+tt.query, nil, nil)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("got status %d, want 200: %s", resp.StatusCode, body)
			}
			for _, want := range tt.want {
				if !strings.Contains(body, want) {
					t.Errorf("the page lacks %q:\n%s", want, body)
				}
			}
			for _, not := range tt.not {
				if strings.Contains(body, not) {
					t.Errorf("the page must not have %q:\n%s", not, body)
				}
			}
		})
	}
}

// TestShownURL checks that the page shows the refused URL, with its query.
func TestShownURL(t *testing.T) {
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n"))
	want, r := site.URL("/private/page?id=7"), newRig(t, "", "")
	if status := r.Visit(want, "alpha"); status != http.StatusForbidden {
		t.Fatalf("got status %d, want 403", status)
	}
	if _, body := r.ask("GET", "/", nil, nil); !strings.Contains(body, ">GET "+want+"</a></td>") {
		t.Errorf("the page lacks %q:\n%s", want, body)
	}
}
