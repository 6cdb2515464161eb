//go:build slow

package fleet

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestFleetsOnOneRedisShareNothing runs staging and production on one Redis server, in two
// databases or with two prefixes. Production still crawls a site that has blocked staging, or that
// an order of staging stops, and each fetches robots.txt for itself.
func TestFleetsOnOneRedisShareNothing(t *testing.T) {
	t.Parallel()
	three := "store redis %[1]s\npace {\nrate 50/s\nshared redis %[1]s\n}\nfleet redis"
	one := "redis %s {\nprefix %s\n}\npace {\nrate 50/s\n}"
	for name, engines := range map[string]func(url string) (staging, production string){
		"databases": func(url string) (string, string) {
			return fmt.Sprintf(three, url+"/0"), fmt.Sprintf(three, url+"/1")
		},
		"prefixes": func(url string) (string, string) {
			return fmt.Sprintf(one, url, "staging"), fmt.Sprintf(one, url, "production")
		},
		"prefixes with a line for each part": func(url string) (string, string) {
			three := "redis %[1]s {\nprefix %[2]s\n}\n" + three
			return fmt.Sprintf(three, url, "staging"), fmt.Sprintf(three, url, "production")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			redis := redistest.Start(t)
			first, other := engines(redis.URL())
			var gateways []*rig.Gateway // two of staging, and production
			for i, engine := range []string{first, first, other} {
				g := rig.New(t, rig.Config{Engine: fmt.Sprintf("gateway gw%d\n%s", i, engine)})
				rig.Eventually(t, "its clocks to be shared", func() bool { return g.Metric("crawlgate_shared_clock_up") == 1 })
				gateways = append(gateways, g)
			}
			staging, production := gateways[0], gateways[2]
			rig.Eventually(t, "the gateways of staging to meet", func() bool {
				return len(decodeAnswer[adminapi.Gateways](t, staging.Admin("/robots/gateways").Body).Gateways) == 2
			})
			rig.Eventually(t, "the gateways to listen", func() bool { return blockListeners(redis) == 3 })
			if list := decodeAnswer[adminapi.Gateways](t, production.Admin("/robots/gateways").Body); len(list.Gateways) != 1 {
				t.Errorf("production lists %+v", list.Gateways)
			}

			site.SetPages(rig.Overloaded(http.StatusTooManyRequests, "120"))
			if status := staging.MustFetch("AcmeBot/1.0", site.URL("/a")).Status; status != http.StatusTooManyRequests {
				t.Fatalf("staging: status %d, want the 429 of the site", status)
			}
			site.SetPages(testorigin.OK("page"))
			rig.Eventually(t, "staging's other gateway to know of the block", func() bool {
				return strings.Contains(gateways[1].Admin("/robots/clocks").Body, "blocked_until")
			})
			if clocks := production.Admin("/robots/clocks").Body; strings.Contains(clocks, "blocked_until") {
				t.Errorf("production has staging's block: %s", clocks)
			}
			if out, err := staging.Robots("deny", "host", "127.0.0.1"); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for i, want := range []int{http.StatusForbidden, http.StatusForbidden, http.StatusOK} {
				if status := gateways[i].MustFetch("AcmeBot/1.0", site.URL("/b")).Status; status != want {
					t.Errorf("gw%d: status %d, want %d", i, status, want)
				}
			}
			if n := len(site.RobotsExchanges()); n != 2 {
				t.Errorf("%d fetches of robots.txt, want one by each fleet", n)
			}
		})
	}
}

// blockListeners counts the gateways that listen for the blocks of their fleet.
func blockListeners(redis *redistest.Server) (n int) {
	var channels []string
	for word := range strings.FieldsSeq(redis.Say("PUBSUB CHANNELS *blocks*")) {
		if strings.Contains(word, "blocks") {
			channels = append(channels, word)
		}
	}
	for word := range strings.FieldsSeq(redis.Say("PUBSUB NUMSUB " + strings.Join(channels, " "))) {
		if count, isNumber := strings.CutPrefix(word, ":"); isNumber {
			subscribers, _ := strconv.Atoi(count) // 0 for anything but a number
			n += subscribers
		}
	}
	return n
}
