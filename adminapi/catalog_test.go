package adminapi_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestCatalogRenews checks that a catalog has the records of the store, and reads them again after
// some seconds.
func TestCatalogRenews(t *testing.T) {
	g := testgateway.New(t, "", "")
	server := testorigin.Start(t, testorigin.Config{})
	site, gone := server.Site(t, testorigin.SiteConfig{}), server.Site(t, testorigin.SiteConfig{})
	gone.SetRobots(testorigin.Respond(testorigin.Response{Status: http.StatusInternalServerError}))
	var c adminapi.Catalog
	renew := func() adminapi.CatalogPage {
		t.Helper()
		if err := c.Renew(t.Context(), t.Context(), engine.Current()); err != nil {
			t.Fatal(err)
		}
		return c.Find(adminapi.CatalogQuery{State: "unreachable", Limit: 10}, time.Now())
	}
	if p := c.Find(adminapi.CatalogQuery{Limit: 10}, time.Now()); !p.ReadAt.IsZero() || p.Found != 0 {
		t.Errorf("catalog before it was read = %+v", p)
	}
	g.Visit(site.URL("/page"), "alpha")
	if p := renew(); p.All != 1 || p.Found != 0 || p.ReadAt.IsZero() {
		t.Errorf("catalog at first = %+v", p)
	}
	g.Visit(gone.URL("/page"), "alpha")
	adminapi.Age(&c, 6*time.Second)
	renew() // it is read in the background
	adminapi.Wait(&c)
	p := renew()
	if p.All != 2 || p.Found != 1 || p.Recent != 1 || p.Origins[0].Origin != gone.Origin().String() || p.Origins[0].State != fetch.StateUnreachable || p.Origins[0].Cause == "" {
		t.Errorf("catalog after a failure = %+v", p)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := new(adminapi.Catalog).Renew(t.Context(), ended, engine.Current()); err == nil {
		t.Error("Renew with an ended context gives no error")
	}
	adminapi.Age(&c, 6*time.Second)
	if err := c.Renew(t.Context(), ended, engine.Current()); err != nil { // the last attempt's error
		t.Error(err)
	}
	adminapi.Wait(&c)
	for range 2 { // it is not tried again at once
		if err := c.Renew(t.Context(), t.Context(), engine.Current()); err == nil {
			t.Error("Renew soon after a failed attempt gives no error")
		}
		adminapi.Wait(&c)
	}
	if p := c.Find(adminapi.CatalogQuery{Limit: 10}, time.Now()); p.All != 2 {
		t.Errorf("catalog after a failed reading = %+v, want the former one", p)
	}
}

// TestCatalogFinds checks that the matching ones of 100,000 records are found fast.
func TestCatalogFinds(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 3, 0, 0, 0, time.UTC)
	var all []adminapi.CatalogOrigin
	for i := range 100_000 {
		o := adminapi.CatalogOrigin{Origin: fmt.Sprintf("https://h%06d.example", i), State: fetch.StateRules, Since: now.Add(-time.Duration(i) * time.Second)}
		if i%20_000 == 7 {
			o.State, o.Cause = fetch.StateUnreachable, "timeout"
		}
		all = append(all, o)
	}
	c := adminapi.CatalogOf(all, now)
	for _, tt := range []struct {
		query         adminapi.CatalogQuery
		found, recent int
		first, last   string
	}{
		{adminapi.CatalogQuery{Limit: 50}, 100_000, 3600, "h000000", "h000049"},
		{adminapi.CatalogQuery{Limit: 50, From: 99_990}, 100_000, 3600, "h099990", "h099999"},
		{adminapi.CatalogQuery{Limit: 50, From: 200_000}, 100_000, 3600, "", ""},
		{adminapi.CatalogQuery{Limit: 50, State: "unreachable"}, 5, 1, "h080007", "h000007"}, // the longest first
		{adminapi.CatalogQuery{Limit: 50, State: "unreachable", Age: time.Hour}, 4, 0, "h080007", "h020007"},
		{adminapi.CatalogQuery{Limit: 2, State: "rules", Text: "h09999"}, 10, 0, "h099990", "h099991"},
		{adminapi.CatalogQuery{Limit: 50, State: "absent"}, 0, 0, "", ""},
	} {
		var p adminapi.CatalogPage
		took := time.Hour
		for range 5 { // repeated, because other work may slow the machine down
			start := time.Now()
			p = c.Find(tt.query, now)
			took = min(took, time.Since(start))
		}
		first, last := "", ""
		if n := len(p.Origins); n > 0 {
			first, last = p.Origins[0].Origin[8:15], p.Origins[n-1].Origin[8:15]
		}
		if p.Found != tt.found || p.Recent != tt.recent || p.All != 100_000 || first != tt.first || last != tt.last {
			t.Errorf("%+v: found %d, %d of them recent, from %s to %s", tt.query, p.Found, p.Recent, first, last)
		}
		if t.Logf("%+v: %v", tt.query, took); took > 200*time.Millisecond {
			t.Errorf("%+v took %v, want at most 200ms", tt.query, took)
		}
	}
}
