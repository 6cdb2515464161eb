package adminapi

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
)

// noFetch fetches nothing.
type noFetch struct{}

func (noFetch) Fetch(context.Context, fetch.Key, fetch.Gate) fetch.Outcome { return fetch.Outcome{} }

// TestListHost checks that whatever the store contains, the pages of a host have exactly its
// records, at each port or at a given one, in the order of the whole list.
func TestListHost(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		store := memstore.New(0)
		cache, err := robotscache.New(robotscache.Config{Store: store, Fetcher: noFetch{}})
		if err != nil {
			t.Fatal(err)
		}
		pick := func(from ...string) string { return from[r.IntN(len(from))] }
		for range r.IntN(40) {
			o, err := origin.FromAuthority(pick("ftp", "http", "https"), pick("a.example", "b.example", "a.example.net", "a.exampl", "[2001:db8::1]")+
				pick("", ":8080", ":443", ":80", ":9", ":65535"))
			if err != nil {
				t.Fatal(err)
			}
			record := fetch.Record{Origin: o, Agent: pick("", "", "AcmeBot", "zbot"), State: fetch.StateAbsent, FetchedAt: time.Now(), FreshUntil: time.Now().Add(time.Hour)}
			if err := store.Save(t.Context(), record); err != nil {
				t.Fatal(err)
			}
		}
		all, err := store.List(t.Context(), "", 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range []string{"a.example", "b.example", "[2001:db8::1]", "a.example:8080", "a.example:443", "a.example:80"} {
			list, err := listHost(cache, host)
			if err != nil {
				t.Fatal(err)
			}
			named, _ := origin.FromAuthority("http", host)
			var want, got []string
			for i := range all {
				o := all[i].Origin
				same, _ := origin.FromAuthority(o.Scheme, host)
				if o.Host == named.Host && (same == o || host == named.Host || host == "["+named.Host+"]") {
					want = append(want, all[i].Key().String())
				}
			}
			limit, after := 1+r.IntN(5), ""
			for len(got) <= len(all) {
				page, err := list(t.Context(), after, limit)
				if err != nil {
					t.Fatal(err)
				}
				for i := range page {
					after = page[i].Key().String()
					got = append(got, after)
				}
				if len(page) < limit {
					break
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("round %d, list of %s by %d:\ngot  %q\nwant %q", round, host, limit, got, want)
			}
		}
		if err := cache.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
