//go:build slow

package robots

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestShowSitemapsAndFlags checks that show and the API have the sitemaps, and that they report an
// HTML page or a 202, which are probably not a robots.txt. The parsed rules still decide (RFC 9309
// section 2.2.4).
func TestShowSitemapsAndFlags(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := func(b testorigin.Behaviour) *testorigin.Site {
		s := server.Site(t, testorigin.SiteConfig{})
		s.SetRobots(b)
		return s
	}
	const page = "<!DOCTYPE html>\n<html><body>\nUser-agent: *\nDisallow: /private\n</body></html>\n"
	good := site(testorigin.OK("Sitemap: https://example.com/one.xml\n" + rig.Rules + "Sitemap: https://example.com/two.xml\n"))
	html := site(testorigin.OK(page))
	accepted := site(testorigin.Respond(testorigin.Response{Status: http.StatusAccepted, Body: []byte(rig.Rules)}))
	g := rig.New(t, rig.Config{})
	for _, tt := range []struct {
		site     *testorigin.Site
		sitemaps []string
		flags    []string
		shown    []string
	}{
		{good, []string{"https://example.com/one.xml", "https://example.com/two.xml"}, nil, []string{"sitemap", "https://example.com/one.xml", "https://example.com/two.xml"}},
		{html, nil, []string{"html"}, []string{"the text is an HTML page"}},
		{accepted, nil, []string{"status_202"}, []string{"the answer was 202 (Accepted)"}},
	} {
		if a := g.MustFetch("AcmeBot/1.0", tt.site.URL(rig.PrivatePage)); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "(line ") {
			t.Errorf("%s: status %d, want 403: %s", tt.site.Origin(), a.Status, a.Body)
		}
		var d struct {
			Record struct {
				Sitemaps []struct {
					URL string `json:"url"`
				} `json:"sitemaps"`
				Flags []string `json:"flags"`
			} `json:"record"`
		}
		a := g.Admin("/robots/origin?origin=" + tt.site.Origin().String())
		err := json.Unmarshal([]byte(a.Body), &d)
		var sitemaps []string
		for _, s := range d.Record.Sitemaps {
			sitemaps = append(sitemaps, s.URL)
		}
		if err != nil || !slices.Equal(sitemaps, tt.sitemaps) || !slices.Equal(d.Record.Flags, tt.flags) {
			t.Errorf("the API: error %v, %+v, want %q and %q", err, d, tt.sitemaps, tt.flags)
		}
		out, err := g.Robots("show", tt.site.Origin().String())
		for _, want := range tt.shown {
			if err != nil || !strings.Contains(out, want) {
				t.Errorf("show: error %v, output %s; want %q", err, out, want)
			}
		}
	}
	file := filepath.Join(rig.TempDir(t), "robots.txt")
	if err := os.WriteFile(file, []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, _ := rig.RunBinary(t, "robots", "lint", file); !strings.Contains(out, ":1: html: ") {
		t.Errorf("lint of an HTML page: %s", out)
	}
	if out, _ := rig.RunBinary(t, "robots", "lint", "--allow-private", "127.0.0.0/8", accepted.URL("/robots.txt")); !strings.Contains(out, ":1: status-202: ") {
		t.Errorf("lint of an answer with 202: %s", out)
	}
}

// TestOriginsShowTheOutage checks that the list has the time since when an origin is unreachable,
// and the time of the next fetch.
func TestOriginsShowTheOutage(t *testing.T) {
	t.Parallel()
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.Status(503))
	g := rig.New(t, rig.Config{})
	g.MustFetch("AcmeBot/1.0", site.URL(rig.OpenPage))
	out, err := g.Robots("origins")
	lines := strings.Split(out, "\n")
	if err != nil || len(lines) < 2 || !strings.Contains(lines[0], "UNREACHABLE SINCE") || !strings.Contains(lines[0], "NEXT ATTEMPT") {
		t.Fatalf("error %v, output %s", err, out)
	}
	if since := strings.Index(lines[0], "UNREACHABLE SINCE"); strings.Count(lines[1][since:], "T") != 2 {
		t.Errorf("want two times from column %d on: %s", since, out)
	}
}

// TestShowHost checks that for a host without a scheme the command shows what the gateway knows,
// without a guess.
func TestShowHost(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	one := server.Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{Egress: "trust_ca " + rig.CAFile(t, server)})
	g.MustFetch("AcmeBot/1.0", one.URL(rig.OpenPage))

	out, err := g.Robots("show", one.Origin().Host)
	if err != nil || !strings.Contains(out, one.Origin().RobotsURL()) {
		t.Errorf("the only origin of a host: error %v, output %s", err, out)
	}
	if out, err := g.Robots("show", "127.9.9.9"); err == nil || !strings.Contains(out, "nothing is known about 127.9.9.9") {
		t.Errorf("an unknown host: error %v, output %s", err, out)
	}
	// Sites of testorigin have different hosts, so the second origin is a redirect's target at
	// another port.
	other := strings.Replace(one.Origin().String(), strconv.Itoa(int(one.Origin().Port)), "1024", 1)
	g.MustFetch("AcmeBot/1.0", other+rig.OpenPage)
	g.MustFetch("AcmeBot/1.0", "http://"+one.Origin().Host+".example.onion"+rig.OpenPage)
	out, err = g.Robots("show", one.Origin().Host)
	if err == nil || !strings.Contains(out, one.Origin().String()) || !strings.Contains(out, other) || strings.Contains(out, "onion") ||
		!strings.Contains(out, "say which one is meant") {
		t.Errorf("two origins of a host: error %v, output %s", err, out)
	}
	if out, err := g.Robots("show", one.Origin().HostPort()); err != nil || !strings.Contains(out, one.Origin().RobotsURL()) {
		t.Errorf("a host with a port: error %v, output %s", err, out)
	}
	var page struct {
		Origins []struct {
			Origin string `json:"origin"`
		} `json:"origins"`
	}
	a := g.Admin("/robots/origins?host=" + one.Origin().Host)
	if err := json.Unmarshal([]byte(a.Body), &page); err != nil || len(page.Origins) != 2 || page.Origins[0].Origin != other {
		t.Errorf("the API: status %d, %s", a.Status, a.Body)
	}
}

// TestClocksBlockedAreBlocked checks that a clock whose block has ended is not listed as blocked,
// although its strikes still count.
func TestClocksBlockedAreBlocked(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	site := func(status int, retryAfter string) *testorigin.Site {
		s := server.Site(t, testorigin.SiteConfig{})
		s.SetPages(testorigin.Respond(testorigin.Response{Status: status, Header: http.Header{"Retry-After": {retryAfter}}}))
		return s
	}
	long, over, free := site(429, "1000"), site(503, "never"), server.Site(t, testorigin.SiteConfig{})
	g := rig.New(t, rig.Config{Engine: "pace {\nbackoff 1s 1h\n}"})
	for _, s := range []*testorigin.Site{long, over, free} {
		g.MustFetch("AcmeBot/1.0", s.URL(rig.OpenPage))
	}
	var out string
	rig.Eventually(t, "the end of a block", func() bool {
		out, _ = g.Robots("clocks", "--state", "blocked")
		return strings.Contains(out, "1 clocks blocked")
	})
	if !strings.Contains(out, long.Origin().Host+" ") || strings.Contains(out, over.Origin().Host+" ") || strings.Contains(out, free.Origin().Host+" ") {
		t.Errorf("the blocked clocks are %s", out)
	}
	if out, _ := g.Robots("clocks"); !strings.Contains(out, "over") {
		t.Errorf("the list of all clocks lacks the ended block: %s", out)
	}
}
