package fetch

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// The pure functions are on the path of every proxied request.

func BenchmarkAccess(b *testing.B) {
	for name, r := range map[string]Record{
		"rules":       after(Policy{}, 0*hour, good),
		"unreachable": after(Policy{}, 0*hour, good, day, broken),
	} {
		b.Run(name, func(b *testing.B) {
			p, now := Policy{}.Complete(), t0.Add(25*hour)
			b.ReportAllocs()
			for b.Loop() {
				if p.Access(r, now) == AccessAllow {
					b.Fatal("allowed")
				}
				p.Fresh(r, now)
				p.RefreshDue(r, now)
			}
		})
	}
}

func BenchmarkNext(b *testing.B) {
	for name, out := range map[string]Outcome{
		"rules 1 KiB":   {Kind: KindRules, Body: make([]byte, 1<<10)},
		"rules 500 KiB": {Kind: KindRules, Body: make([]byte, MinSize)},
		"unreachable":   broken,
	} {
		b.Run(name, func(b *testing.B) {
			p, r := Policy{}.Complete(), after(Policy{}, 0*hour, good)
			b.ReportAllocs()
			for b.Loop() {
				p.Next(r, out, t0.Add(25*hour))
			}
		})
	}
}

func BenchmarkRecordJSON(b *testing.B) {
	r := after(Policy{}, 0*hour, good, 30*hour, broken)
	data, err := json.Marshal(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("marshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := json.Marshal(r); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unmarshal", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var n Record
			if err := json.Unmarshal(data, &n); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkFetch measures a fetch without the network.
func BenchmarkFetch(b *testing.B) {
	text := []byte(strings.Repeat("User-agent: *\nDisallow: /private/\n", 40))
	for _, coding := range []string{"identity", "gzip", "br", "zstd"} {
		b.Run(coding, func(b *testing.B) {
			body := text
			if coding != "identity" {
				body = encode(b, coding, text)
			}
			h := http.Header{"Content-Encoding": {coding}}
			f := New(Config{Timeout: time.Minute, Transport: roundTripper(func(req *http.Request) (*http.Response, error) {
				return &http.Response{
					StatusCode: 200, Header: h, ContentLength: int64(len(body)),
					Body: io.NopCloser(strings.NewReader(string(body))), Request: req,
				}, nil
			})})
			o := mustOrigin(b, "http://a.example")
			b.ReportAllocs()
			for b.Loop() {
				if out := f.Fetch(b.Context(), Key{Origin: o}, nil); len(out.Body) != len(text) {
					b.Fatalf("%+v", out)
				}
			}
		})
	}
}
