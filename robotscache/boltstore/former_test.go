package boltstore_test

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

// noSite is a [robotscache.Fetcher] that fails and records whether it was called.
type noSite struct{ asked atomic.Bool }

func (s *noSite) Fetch(context.Context, fetch.Key, fetch.Gate) fetch.Outcome {
	s.asked.Store(true)
	return fetch.Outcome{Cause: fetch.CauseConnect}
}

// TestOpen_FirstRelease checks that rules that release 0.1.0 fetched are used without a fetch while
// they are fresh, and a year later if the site is gone.
func TestOpen_FirstRelease(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../testdata/upgrade-0.1.0/file/caddy/crawlgate/robots.db")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "robots.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC))) // they were fetched the day before
		sites := new(noSite)
		c, err := robotscache.New(robotscache.Config{
			Store: open(t, boltstore.Config{Path: path, Retention: robotscache.Retention{For: 1000 * day}}), Fetcher: sites,
			Policy: fetch.Policy{Mode: fetch.ModeStale},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		o, err := origin.Parse("http://fresh.example")
		if err != nil {
			t.Fatal(err)
		}
		for _, fetches := range []bool{false, true} {
			e, _, err := c.Lookup(t.Context(), o, robotscache.Asker{})
			if err != nil {
				t.Fatal(err)
			}
			v := e.View(time.Now())
			if v.Rules == nil || v.Rules.Match([]string{"somebot"}, "/private/page").Line != 2 || sites.asked.Load() != fetches {
				t.Errorf("%s: fetched %t, want %t; %+v", time.Now(), sites.asked.Load(), fetches, v)
			}
			time.Sleep(365 * day)
		}
	})
}
