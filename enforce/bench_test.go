package enforce

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// Run: go test -bench . -benchmem -count 10 ./enforce | benchstat -
//
// BenchmarkDecide measures a decision on rules in memory, for each kind of policy.
// BenchmarkIdentify measures the identification of one request among 1, 10 or 200 agents, by each
// kind of condition; with 0 agents, by the product token alone.

func BenchmarkDecide(b *testing.B) {
	const page = "/shop/item?id=12345&lang=en"
	stops := new(Stops)
	for i := range 100 {
		if err := stops.Set(Stop{Scope: StopHost, Value: fmt.Sprintf("*.h%d.example", i)}); err != nil {
			b.Fatal(err)
		}
	}
	deny := make([]string, 1000)
	for i := range deny {
		deny[i] = fmt.Sprintf("*.d%d.example", i)
	}
	hosts := append([]string{"*.example.com"}, deny...)
	policy := mustPolicy(b, PolicyConfig{
		Deny: deny, HostModes: []HostMode{{[]string{"*.corp.example"}, ModeOff}},
		Exceptions: []Exception{{Hosts: []string{"*.partner.example"}, Reason: "x"}},
	})
	identify := func(a Agent) Identity {
		return mustIdentifier(b, IdentifierConfig{Agents: []Agent{a}}).
			Identify(b.Context(), Sender{UserAgent: "AcmeBot/1.0 (+https://acme.example/bot)"})
	}
	id := identify(Agent{Name: "AcmeBot"})
	patterns := identify(Agent{Name: "acme", UserAgents: []string{"*(+https://acme.example/*)", "*acme crawler*", "AcmeBot/1.* (*)"}})
	for _, bm := range []struct {
		name   string
		path   string
		record fetch.Record
		policy *Policy
		stops  *Stops
		id     Identity
		want   Reason
	}{
		{"allowed/bare", page, rules(robots), nil, nil, id, ReasonNoRule},
		{"allowed/patterns", page, rules(robots), nil, nil, patterns, ReasonNoRule},
		{"allowed/boundaries", page, rules(robots), nil, nil, identify(Agent{Name: "AcmeBot", Boundaries: Boundaries{
			Hosts: hosts, HostsFile: "not read", Ports: [][2]uint16{{443, 443}}, Methods: []string{"GET", "HEAD"}, Windows: []string{"00:00-12:00", "12:00-00:00"},
			Expires: "2099-01-01",
		}}), ReasonNoRule},
		{"allowed/policy", page, rules(robots), policy, stops, id, ReasonNoRule},
		{"allowed/both forms", "/a/.." + page, rules(robots), policy, stops, id, ReasonNoRule},
		{"disallowed", page, rules("User-agent: *\nDisallow: /shop/\n"), policy, stops, id, ReasonDisallowed},
		{"absent", page, absent(404), policy, stops, id, ReasonAbsent},
	} {
		b.Run(bm.name, func(b *testing.B) {
			e := newEnforcer(siteOf(bm.record, defaults), bm.policy, bm.stops)
			target := origin.Target{Origin: mustOrigin(b, "https://www.example.com"), Path: bm.path}
			b.ReportAllocs()
			for b.Loop() {
				if d := e.Decide(b.Context(), Request{http.MethodGet, target, bm.id}); d.Reason != bm.want {
					b.Fatal(d.Reason)
				}
			}
		})
	}
}

func BenchmarkRecord(b *testing.B) {
	d := fullDecision(b)
	b.ReportAllocs()
	for b.Loop() {
		if d.Record().Line != 12 {
			b.Fatal("wrong record")
		}
	}
}

func BenchmarkRender(b *testing.B) {
	d, asked := sample(b, ReasonDisallowed)
	for _, form := range []string{"txt", "json", "html"} {
		asked.Accept = forms[form]
		b.Run(form, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if Render(d, asked).Status != 403 {
					b.Fatal("wrong status")
				}
			}
		})
	}
}

func BenchmarkIdentify(b *testing.B) {
	kinds := []struct {
		name     string
		agent    func(i int) Agent
		evidence func(n int) Sender
	}{
		{
			"user_agent",
			func(i int) Agent { return Agent{Name: fmt.Sprintf("agent%d", i)} },
			func(n int) Sender {
				return Sender{UserAgent: fmt.Sprintf("Agent%d/1.0 (+https://acme.example/bot)", n-1)}
			},
		},
		{
			"compatible",
			func(i int) Agent { return Agent{Name: fmt.Sprintf("agent%d", i)} },
			func(n int) Sender {
				return Sender{UserAgent: fmt.Sprintf("Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; Agent%d/2.1; +https://acme.example/bot) Chrome/1.2.3.4 Safari/537.36", n-1)}
			},
		},
		{
			"pattern",
			func(i int) Agent {
				return Agent{Name: fmt.Sprintf("agent%d", i), UserAgents: []string{fmt.Sprintf("Crawler number %d of *", i)}}
			},
			func(n int) Sender { return Sender{UserAgent: fmt.Sprintf("Crawler number %d of Acme", n-1)} },
		},
		{
			"source",
			func(i int) Agent {
				return Agent{Name: fmt.Sprintf("agent%d", i), From: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i), 0, 0}), 16)}}
			},
			func(n int) Sender {
				return Sender{UserAgent: browser, Source: netip.AddrFrom4([4]byte{10, byte(n - 1), 0, 1})}
			},
		},
		{
			"credential",
			func(i int) Agent {
				return Agent{Name: fmt.Sprintf("agent%d", i), Credentials: []string{fmt.Sprint("u", i)}}
			},
			func(n int) Sender {
				user := fmt.Sprint("u", n-1)
				return Sender{UserAgent: browser, ProxyAuthorization: basic(user, "pw-"+user)}
			},
		},
	}
	b.Run("token/agents=0", func(b *testing.B) {
		id := mustIdentifier(b, IdentifierConfig{})
		e := Sender{UserAgent: "AcmeBot/1.0 (+https://acme.example/bot)"}
		b.ReportAllocs()
		for b.Loop() {
			if id.Identify(b.Context(), e).Agent != "AcmeBot" {
				b.Fatal("wrong agent")
			}
		}
	})
	for _, kind := range kinds {
		for _, n := range []int{1, 10, 200} {
			b.Run(fmt.Sprintf("%s/agents=%d", kind.name, n), func(b *testing.B) {
				agents := make([]Agent, n)
				for i := range agents {
					agents[i] = kind.agent(i)
				}
				id := mustIdentifier(b, IdentifierConfig{Agents: agents})
				e := kind.evidence(n)
				b.ReportAllocs()
				for b.Loop() {
					if got := id.Identify(b.Context(), e); got.Agent != agents[n-1].Name {
						b.Fatalf("got %+v", got)
					}
				}
			})
		}
	}
}

// BenchmarkSignals measures everything that a request does with preferences and directives: the
// decision, the fields of the answer, and the record for the log. The cost of signals is the
// difference to "off".
func BenchmarkSignals(b *testing.B) {
	const said = "User-agent: *\nContent-Usage: train-ai=n\nContent-Signal: search=yes, ai-input=yes, ai-train=no\nDisallow: /private/\n"
	id := mustIdentifier(b, IdentifierConfig{Agents: []Agent{{Name: "AcmeBot", Purposes: []string{"ai-input"}}}}).
		Identify(b.Context(), Sender{UserAgent: "AcmeBot/1.0 (+https://acme.example/bot)"})
	plain := http.Header{"Content-Type": {"text/html"}, "Etag": {`"1"`}, "Date": {"Sat, 21 Nov 2026 12:00:00 GMT"}}
	fields := maps.Clone(plain)
	fields["X-Robots-Tag"], fields["Content-Usage"] = []string{"noarchive"}, []string{"train-ai=n"}
	robotsTag := maps.Clone(plain)
	robotsTag["X-Robots-Tag"] = []string{"noindex, nofollow"}
	on := Signals{RobotsTxt: true, Headers: true}
	for _, bm := range []struct {
		name   string
		robots string
		header http.Header
		reads  Signals
	}{
		{"off", said, fields, Signals{}},
		{"nothing said", robots, plain, on},
		{"robots.txt", said, plain, on},
		{"X-Robots-Tag", robots, robotsTag, on},
		{"two fields", robots, fields, on},
		{"robots.txt and two fields", said, fields, on},
	} {
		b.Run(bm.name, func(b *testing.B) {
			e := newEnforcer(siteOf(rules(bm.robots), defaults), nil, nil)
			e.Reads = bm.reads
			target := origin.Target{Origin: mustOrigin(b, "https://www.example.com"), Path: "/shop/item?id=12345&lang=en"}
			b.ReportAllocs()
			for b.Loop() {
				d := e.Decide(b.Context(), Request{http.MethodGet, target, id})
				d.ReadAnswer(http.StatusOK, bm.header)
				if r := d.Record(); r.Decision != OutcomeAllow {
					b.Fatal(r.Reason)
				}
			}
		})
	}
}

// BenchmarkReadPage measures the reading of a page of 48 KiB with a head of 4 KiB, for each coding.
func BenchmarkReadPage(b *testing.B) {
	const tag = `<meta name="robots" content="noindex, max-image-preview:large">`
	for _, bm := range []struct{ name, coding, page string }{
		{"plain", "", htmlPage(tag)},
		{"gzip", "gzip", htmlPage(tag)},
		{"br", "br", htmlPage(tag)},
		{"zstd", "zstd", htmlPage(tag)},
		{"no name", "", htmlPage("")},
		{"no name/gzip", "gzip", htmlPage("")},
	} {
		b.Run(bm.name, func(b *testing.B) {
			p := Page{Head: encoded(b, bm.coding, bm.page), Whole: true, Type: "text/html; charset=utf-8", Sent: true}
			if bm.coding != "" {
				p.Coding = []string{bm.coding}
			}
			p.Head = p.Head[:min(len(p.Head), 64<<10)]
			found := strings.Count(bm.page, tag)
			before := Decision{Allowed: true, Tokens: []string{"AcmeBot"}, preferMode: PreferencesLog}
			before.reads = Signals{RobotsTxt: true, Headers: true, HTML: HTMLLog}
			b.ReportAllocs()
			for b.Loop() {
				d := before
				if d.ReadPage(p); d.SignalsCut || len(d.SignalFields) != found {
					b.Fatal(d.SignalFields, d.SignalsCut)
				}
			}
		})
	}
}

// htmlPage returns a usual page with a tag near the end of its head.
func htmlPage(tag string) string {
	var s strings.Builder
	s.WriteString("<!DOCTYPE html>\n<html lang=en><head><meta charset=utf-8><title>A page &amp; its title</title>\n")
	for i := 0; s.Len() < 4000; i++ {
		fmt.Fprintf(&s, "<meta property=\"og:image:%d\" content=\"https://example.com/i/%d.jpg?a=1&amp;b=2\">\n", i, i*i)
		fmt.Fprintf(&s, "<link rel=stylesheet href=\"https://example.com/plugins/p%d/style.min.css?ver=6.%d\">\n", i*7, i)
		fmt.Fprintf(&s, "<script>window.layer = window.layer || []; layer.push('G-%d');</script>\n", i*i*i)
	}
	s.WriteString(tag + "</head><body class=page>\n")
	for i := uint32(1); s.Len() < 48<<10; i = i*1664525 + 1013904223 {
		fmt.Fprintf(&s, "<li class=\"item item-%d\"><a href=\"/products/%x\"><span>Product %d</span></a> some words</li>\n",
			i>>24, i, i>>18)
	}
	return s.String()
}

func encoded(tb testing.TB, coding, text string) []byte {
	tb.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch coding {
	case "gzip":
		w = gzip.NewWriter(&out)
	case "br":
		w = brotli.NewWriterLevel(&out, 5)
	case "zstd":
		w, _ = zstd.NewWriter(&out)
	default:
		return []byte(text)
	}
	if _, err := io.WriteString(w, text); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}
