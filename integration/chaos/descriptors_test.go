//go:build slow

package chaos

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestChaosDescriptors takes the gateway's file descriptors away under load. The gateway must
// refuse all that it cannot judge or send, with a reason that says so, and let nothing pass that rules
// forbid. It must not blame a site: with descriptors again, every decision is right at once.
func TestChaosDescriptors(t *testing.T) {
	rig.NeedsQuiet(t)
	const clients, rounds = 60, 6
	sites := fixedSites(t, testorigin.Start(t, testorigin.Config{}), clients*rounds, 100*time.Millisecond)
	g := rig.New(t, rig.Config{Engine: rig.PaceOff})
	callers := make([]*caller, clients)
	for i := range callers {
		callers[i] = &caller{addr: g.Addr}
		defer callers[i].close()
		sites[0].check(t, callers[i]) // connects
	}
	open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	g.LimitDescriptors(len(open) + clients/4)
	var wg sync.WaitGroup
	for i, c := range callers {
		wg.Go(func() {
			for round := range rounds {
				crawlInNeed(t, c, &sites[i*rounds+round])
			}
		})
	}
	wg.Wait()
	g.LimitDescriptors(4096)
	time.Sleep(6 * time.Second) // the Retry-After that was given
	for i, c := range callers {
		wg.Go(func() {
			for round := range rounds {
				sites[i*rounds+round].check(t, c)
			}
		})
	}
	wg.Wait()
	g.Stop()

	count := make(map[string]int)
	for _, l := range linesOf(g) {
		count[string(l.Robots.Reason)]++
		if l.Robots.Cause == "local" {
			count["for a cause of the machine"]++
		}
	}
	t.Logf("reasons in the log: %v", count)
	if count["exhausted"]+count["for a cause of the machine"] == 0 {
		t.Error("the gateway never ran out of descriptors, so this test shows nothing")
	}
	for _, s := range sites {
		for _, e := range s.site.PageExchanges() {
			if e.Target == privatePage && s.private != http.StatusOK || e.Target == openPage && s.open != http.StatusOK {
				t.Errorf("%s reached %s, which does not permit it", e.Target, s.site.Origin())
			}
		}
	}
}

// crawlInNeed requests both pages of a site. It accepts the right answer, or a refusal for lack of
// descriptors.
func crawlInNeed(t *testing.T, c *caller, s *fixed) {
	t.Helper()
	for page, want := range map[string]int{openPage: s.open, privatePage: s.private} {
		status, head, err := c.get(s.site.URL(page))
		switch reason := head.Get("Crawlgate-Decision"); {
		case err == nil && status == want:
		case err == nil && status == http.StatusForbidden && strings.HasSuffix(reason, "reason=unreachable") && head.Get("Retry-After") != "":
		case err == nil && status == http.StatusBadGateway && strings.HasSuffix(reason, "reason=exhausted") && want == http.StatusOK:
		default:
			t.Errorf("%s: status %d, want %d: error %v, header %v", s.site.URL(page), status, want, err, head)
		}
	}
}
