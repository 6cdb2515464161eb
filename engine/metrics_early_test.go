package engine

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"sync"
	"testing"
	"time"
)

func newPromises() *promises { return &promises{seed: maphash.MakeSeed()} }

func asked(t *testing.T, method, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestCameEarly checks that a client that waits as long as Retry-After says is never early, and
// that a different request is not early either.
func TestCameEarly(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 11, 26, 10, 0, 0, 50_000_000, time.UTC)
	p := newPromises()
	page := asked(t, "GET", "http://example.com/a?b")
	if p.early("bot", page, start) {
		t.Error("the first request is early")
	}
	p.note("bot", page, start.Add(10*time.Second+30*time.Millisecond))
	for _, tt := range []struct {
		agent, method, url string
		after              time.Duration
		want               bool
	}{
		{"bot", "GET", "http://example.com/a?b", 0, true},
		{"bot", "GET", "http://example.com/a?b", 9900 * time.Millisecond, true},
		{"bot", "GET", "http://example.com/a?b", 10*time.Second + 30*time.Millisecond, false},
		{"bot", "GET", "http://example.com/a?b", time.Hour, false},
		{"other", "GET", "http://example.com/a?b", 0, false},
		{"bot", "HEAD", "http://example.com/a?b", 0, false},
		{"bot", "GET", "https://example.com/a?b", 0, false},
		{"bot", "GET", "http://example.com/a?c", 0, false},
		{"bot", "GET", "http://example.com/a", 0, false},
		{"bot", "GET", "http://example.com/ab", 0, false},
	} {
		if got := p.early(tt.agent, asked(t, tt.method, tt.url), start.Add(tt.after)); got != tt.want {
			t.Errorf("%s %s %s after %s: early = %t, want %t", tt.agent, tt.method, tt.url, tt.after, got, tt.want)
		}
	}
	p.note("bot", page, start.Add(13*365*24*time.Hour))
	if late := start.Add(12 * 365 * 24 * time.Hour); !p.early("bot", page, late) {
		t.Error("early = false after years, want true")
	}
}

// TestPromisesAreBounded checks that refusals beyond the bound are forgotten, but never taken for
// others.
func TestPromisesAreBounded(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := newPromises()
	page := func(i int) *http.Request { return asked(t, "GET", fmt.Sprintf("http://example.com/%d", i)) }
	var all sync.WaitGroup
	for part := range 4 {
		all.Go(func() {
			for i := part; i < 40_000; i += 4 {
				p.note("bot", page(i), now.Add(time.Minute))
			}
		})
	}
	all.Wait()
	seen := 0
	for i := range 80_000 {
		early := p.early("bot", page(i), now)
		if early && i >= 40_000 {
			t.Fatalf("request %d is early, but never came before", i)
		}
		seen += count(early)
	}
	if seen < len(p.places)/2 || seen > len(p.places) {
		t.Errorf("%d refusals are remembered in %d places", seen, len(p.places))
	}
}

// BenchmarkCameEarly measures a request without and with clients that must wait.
func BenchmarkCameEarly(b *testing.B) {
	r, err := http.NewRequestWithContext(b.Context(), "GET", "http://www.example.com/a/page/of/usual/length.html?q=1", http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	now := time.Now()
	quiet, busy := newPromises(), newPromises()
	busy.note("bot", r, now.Add(time.Hour))
	for name, p := range map[string]*promises{"quiet": quiet, "busy": busy} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				p.early("bot", r, now)
			}
		})
	}
}
