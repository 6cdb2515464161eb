package redisclock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestFleetsOnOneServerShareNothing checks that each fleet has its own blocks, slots and number of
// gateways, by its database or its prefix. Redis delivers a message to the subscribers of all
// databases.
func TestFleetsOnOneServerShareNothing(t *testing.T) {
	t.Parallel()
	for name, fleets := range map[string]struct {
		staging, production link.Config
		databases           [2]string
	}{
		"databases":           {databases: [2]string{"/0", "/1"}},
		"high databases":      {databases: [2]string{"/1", "/11"}},
		"prefixes":            {staging: link.Config{Prefix: "staging"}, production: link.Config{Prefix: "production"}},
		"no prefix and one":   {production: link.Config{Prefix: "production"}},
		"prefix and database": {staging: link.Config{Prefix: "acme"}, production: link.Config{Prefix: "acme"}, databases: [2]string{"/2", "/3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			s.Remember(12, "staging", "production", "acme")
			open := func(c link.Config, database string) *Clock {
				c.URL = s.URL() + database
				return openClock(t, c)
			}
			staging := open(fleets.staging, fleets.databases[0])
			production := open(fleets.production, fleets.databases[1])
			other := open(fleets.production, fleets.databases[1])
			for _, k := range []*Clock{staging, other} {
				k.Watch(func(string, time.Duration, int) {}, func() {})
			}
			told := make(chan string, 8)
			production.Watch(func(key string, _ time.Duration, _ int) { told <- key }, func() {})
			redistest.Eventually(t, "all three listen", func() bool {
				channels := strings.Fields(s.Say("PUBSUB CHANNELS *"))
				channels = slices.DeleteFunc(channels, func(c string) bool { return !strings.Contains(c, "blocks") })
				return subscribers(s, channels) == 3
			})
			reserve(t, staging, demand("site", time.Hour))
			for _, block := range []struct {
				by  *Clock
				key string
			}{{staging, "site"}, {other, "last"}} {
				if err := block.by.Block(block.key, time.Hour, 1); err != nil {
					t.Fatal(err)
				}
			}
			if got := <-told; got != "last" {
				t.Errorf("production was told of the block of %q by staging", got)
			}
			if r, err := production.Reserve(t.Context(), []pace.Demand{demand("site", time.Hour)}, 0); err != nil || r.Outcome != pace.Reserved {
				t.Errorf("production: Reserve = %+v, %v; want a slot at once", r, err)
			}
			if n := staging.Peers().Count; n != 1 {
				t.Errorf("staging counts %d gateways, want 1", n)
			}
		})
	}
}

// subscribers returns the number of subscribers of all channels.
func subscribers(s *redistest.Server, channels []string) (n int) {
	for line := range strings.SplitSeq(s.Say("PUBSUB NUMSUB "+strings.Join(channels, " ")), "\r\n") {
		if count, ok := strings.CutPrefix(line, ":"); ok {
			n += int(count[0] - '0')
		}
	}
	return n
}
