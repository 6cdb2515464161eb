package preferences_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/directives"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

const benchTarget = "/articles/2026/11/some-title-of-a-page?page=2"

func manyLines() string {
	var b strings.Builder
	b.WriteString("User-agent: *\nAllow: /\n")
	for i := range 5000 {
		fmt.Fprintf(&b, "Content-Usage: /articles/%d/ train-ai=n\n", i)
	}
	return b.String()
}

// BenchmarkRobots checks that a group without preference lines costs at most 300 ns and no
// allocation.
func BenchmarkRobots(b *testing.B) {
	for name, file := range map[string]string{
		"none":         "User-agent: *\nDisallow: /private/\n",
		"other-group":  "User-agent: *\nDisallow: /private/\nUser-agent: b\nContent-Usage: train-ai=n\nContent-Signal: ai-train=no\nAllow: /\n",
		"other-path":   "User-agent: *\nDisallow: /private/\nContent-Usage: /x/ train-ai=n\n",
		"usage":        "User-agent: *\nAllow: /\nContent-Usage: train-ai=n\n",
		"cloudflare":   cloudflareManaged,
		"5000-lines":   manyLines(),
		"content-both": "User-agent: *\nAllow: /\nContent-Usage: train-ai=n, search=y\nContent-Signal: search=yes, ai-train=no, ai-input=no, use=reference\nLicense: https://a.example/l.xml\n",
	} {
		b.Run(name, func(b *testing.B) {
			rs := robotstxt.Parse([]byte(file))
			agent := robotstxt.Agent{Tokens: []string{"ExampleBot"}}
			b.ReportAllocs()
			for b.Loop() {
				var groups [4]robotstxt.Group
				preferences.Robots(rs, preferences.AppendGroups(groups[:0], rs, agent, nil), benchTarget)
			}
		})
	}
}

func BenchmarkFields(b *testing.B) {
	for name, h := range map[string]http.Header{
		"none": {"Content-Type": {"text/html"}, "Cache-Control": {"max-age=60"}, "X-Robots-Tag": {"noindex"}},
		"both": {"Content-Usage": {"train-ai=n"}, "Content-Signal": {"search=yes, ai-train=no"}},
		"tdm":  {"Tdm-Reservation": {"1"}, "Tdm-Policy": {"https://a.example/p.json"}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				preferences.Fields(h, 0)
			}
		})
	}
}

func BenchmarkDictionary(b *testing.B) {
	s := robots(cloudflareManaged, "/", "ExampleBot")
	b.ReportAllocs()
	for b.Loop() {
		preferences.Dictionary(s, []directives.Directive{{Name: "noindex"}})
	}
}

// TestNothingSaidCostsNothing checks that for most sites, which have no signals, nothing is
// allocated.
func TestNothingSaidCostsNothing(t *testing.T) {
	rs := robotstxt.Parse([]byte("User-agent: *\nDisallow: /x\nUser-agent: b\nContent-Usage: train-ai=n\nAllow: /\n"))
	agent := robotstxt.Agent{Tokens: []string{"a"}}
	h := http.Header{"Content-Type": {"text/html"}}
	if n := testing.AllocsPerRun(100, func() {
		var groups [4]robotstxt.Group
		preferences.Robots(rs, preferences.AppendGroups(groups[:0], rs, agent, nil), benchTarget)
		preferences.Fields(h, 0)
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
