package engine

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// TestNothingIsOpenedAfterCleanup checks that a request of a rejected configuration cannot take the
// store, which would never be returned.
func TestNothingIsOpenedAfterCleanup(t *testing.T) {
	t.Parallel()
	e := new(Engine)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Open(); !errors.Is(err, errEnded) {
		t.Errorf("Open = %v, want errEnded", err)
	}
}

// open returns an open engine with an address guard.
func open(tb testing.TB, c Config) *Engine {
	tb.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: tb.Context()})
	tb.Cleanup(cancel)
	c.Store.Kind = cmp.Or(c.Store.Kind, "none")
	c.Egress.Dialer = &egress.Dialer{Guard: new(guard.Guard)}
	e, err := New(ctx, c)
	if err != nil {
		tb.Fatal(err)
	}
	if err := e.Open(); err != nil {
		tb.Fatal(err)
	}
	return e
}

// TestFirstConfigurationIsCurrent checks that the admin API knows a gateway as soon as it accepts
// requests, possibly before Caddy starts its app. A configuration loaded beside it counts from its
// start on.
func TestFirstConfigurationIsCurrent(t *testing.T) {
	opened := func() *Engine { return open(t, Config{}) }
	end := func(e *Engine) {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	first := opened()
	if Current() != first {
		t.Error("the only configuration is not current")
	}
	refused := opened()
	if Current() != first {
		t.Error("a configuration is current before its start")
	}
	end(refused)
	next := opened()
	next.enter()
	if Current() != next {
		t.Error("a configuration is not current after its start")
	}
	end(first)
	end(next)
	if Current() != nil {
		t.Error("a configuration is current after its end")
	}
}

// siteOf answers 403 to every fetch except from rules.example, and keeps the User-Agent of the last
// one.
type siteOf struct{ userAgent string }

func (s *siteOf) RoundTrip(r *http.Request) (*http.Response, error) {
	s.userAgent = r.UserAgent()
	if r.URL.Hostname() == "rules.example" {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("Disallow: /")), Request: r}, nil
	}
	return &http.Response{StatusCode: http.StatusForbidden, Body: http.NoBody, Request: r}, nil
}

// TestRejectedReload checks that a configuration that ends without a start does not change the
// settings of objects that it shares with the running one. A started one changes them, and its end restores
// them.
func TestRejectedReload(t *testing.T) {
	var site siteOf
	store := Store{Kind: "file", Path: filepath.Join(t.TempDir(), "robots.db")}
	running := Config{Store: store, Fetch: fetch.Config{Transport: &site, UserAgent: "running"}}
	asked := 0
	lookup := func(e *Engine) *robotscache.Entry {
		t.Helper()
		asked++
		entry, _, err := e.Lookup(t.Context(), origin.Origin{Scheme: "http", Host: fmt.Sprintf("%d.example", asked), Port: 80}, robotscache.Asker{})
		if err != nil {
			t.Fatal(err)
		}
		return entry
	}
	for _, tt := range []struct {
		name    string
		change  func(*Config)
		changed func(*Engine) bool
	}{
		{
			"store", func(c *Config) { c.Cache.Policy.ForbiddenDisallow = true },
			func(e *Engine) bool { return lookup(e).View(time.Now()).Access == fetch.AccessDeny },
		},
		{
			"clocks", func(c *Config) { c.Clocks.Backoff.Off = true },
			func(e *Engine) bool {
				e.Pacer().RecordFailure("www.example", 0)
				_, blocked, err := e.Unblock("www.example")
				return !blocked && err == nil
			},
		},
		{
			"retention", func(c *Config) { c.Store.Retain = caddy.Duration(1000 * 24 * time.Hour) },
			func(e *Engine) bool {
				o := origin.Origin{Scheme: "http", Host: "rules.example", Port: 80}
				if _, _, err := e.Lookup(t.Context(), o, robotscache.Asker{}); err != nil {
					t.Fatal(err)
				}
				history, err := e.Cache().History(t.Context(), fetch.Key{Origin: o})
				if err != nil || len(history) != 1 {
					t.Fatalf("history %+v, %v", history, err)
				}
				return time.Until(history[0].KeptUntil) > 1000*24*time.Hour
			},
		},
		{
			"fetcher", func(c *Config) { c.Fetch.UserAgent = "changed" },
			func(e *Engine) bool { lookup(e); return site.userAgent == "changed" },
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := open(t, running)
			other := running
			tt.change(&other)
			holds := func(when string, changed bool) {
				t.Helper()
				if tt.changed(e) != changed {
					t.Errorf("%s: changed %v, want %v", when, !changed, changed)
				}
			}
			closing := func(e *Engine) {
				t.Helper()
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			}
			rejected := open(t, other)
			holds("beside a configuration that is not started", false)
			closing(rejected)
			holds("after it was rejected", false)
			next := open(t, other)
			next.enter()
			holds("after the start of another", true)
			closing(next)
			holds("after its end", false)
			closing(e)
		})
	}
}

// BenchmarkServe measures what each request asks of the engine: whether the store is open, the
// record, and the current configuration. With -cpu 1,2 it shows that requests do not wait for each
// other.
func BenchmarkServe(b *testing.B) {
	var site siteOf
	e := open(b, Config{Fetch: fetch.Config{Transport: &site}})
	defer func() { _ = e.Close() }()
	o := origin.Origin{Scheme: "http", Host: "www.example", Port: 80}
	for source := robotscache.SourceNone; source != robotscache.SourceHot; { // the hot tier takes it in the background
		_, s, err := e.Lookup(b.Context(), o, robotscache.Asker{})
		if err != nil {
			b.Fatal(err)
		}
		source = s
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if e.Open() != nil || Current() != e {
				b.Error("not the current engine")
			}
			if _, source, err := e.Lookup(b.Context(), o, robotscache.Asker{}); err != nil || source != robotscache.SourceHot {
				b.Error(source, err)
			}
		}
	})
}
