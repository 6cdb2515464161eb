//go:build slow

package fleet

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// allowFleet is two gateways, and an agent that requests a page that the site's robots.txt
// disallows.
type allowFleet struct {
	orderFleet

	page, host string
}

func startAllowFleet(t *testing.T) *allowFleet {
	t.Helper()
	f := &allowFleet{orderFleet: orderFleet{t: t, redis: redistest.Start(t)}}
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK(rig.Rules))
	f.page, f.host = site.URL(rig.PrivatePage), site.Origin().Authority()
	for i := range 2 {
		f.gateways = append(f.gateways, rig.New(t, f.config(i, "")))
	}
	for _, g := range f.gateways {
		rig.Eventually(t, "each knows the other", func() bool {
			list := decodeAnswer[adminapi.Gateways](t, g.Admin("/robots/gateways").Body)
			return list.Up && len(list.Gateways) == 2
		})
	}
	return f
}

func (f *allowFleet) config(i int, more string) rig.Config {
	return rig.Config{Engine: rig.FleetEngine(fmt.Sprint("gw", i), f.redis.URL(), 2) + "\n" + more, Site: "agent AcmeBot"}
}

// decided requests the page at each gateway and checks the reason of the answer.
func (f *allowFleet) decided(when string, want ...enforce.Reason) {
	f.t.Helper()
	for i, g := range f.gateways {
		a := g.MustFetch("AcmeBot/1.0", f.page)
		if got := a.Header.Get("Crawlgate-Decision"); !strings.Contains(got+";", "reason="+string(want[i%len(want)])+";") {
			f.t.Errorf("%s, gw%d: status %d, decision %q, want the reason %s", when, i, a.Status, got, want[i%len(want)])
		}
	}
}

// TestAllow grants, stops and lifts exceptions at one gateway, and requests the page at both.
func TestAllow(t *testing.T) {
	t.Parallel()
	f := startAllowFleet(t)
	give := func(i int) {
		t.Helper()
		f.run(i, 0, "2 of 2 gateways\n", "allow", f.host, "--agent", "AcmeBot", "--path", "/private", "--until", time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
			"--by", "dora", "--ticket", "OPS-4711", "--reason", "the owner permits it")
	}
	name := "AcmeBot@" + f.host + " /private"
	f.decided("before", enforce.ReasonDisallowed)
	f.run(0, 2, "an exception at run time lasts 30 days at most, until 20", "allow", f.host, "--agent", "AcmeBot", "--until", "2099-12-31", "--by", "dora", "--ticket", "OPS-4711")
	f.run(1, 2, `no agent "AcmeBto" is configured: near it is AcmeBot`, "allow", f.host, "--agent", "AcmeBto", "--until", time.Now().Add(time.Hour).UTC().Format(time.RFC3339), "--by", "dora", "--ticket", "OPS-4711")
	give(0)
	f.decided("given", enforce.ReasonException)
	for i := range f.gateways {
		f.run(i, 0, name, "deny")
		f.run(i, 0, "OPS-4711", "deny")
	}
	f.run(1, 0, ", by dora, ticket OPS-4711, until 20", "check", "--agent", "AcmeBot", f.page)
	f.run(1, 0, "2 of 2 gateways", "deny", "host", f.host)
	f.decided("stopped later", enforce.ReasonKillSwitch)
	f.run(0, 0, "lifted by root: "+"allow "+name+", by dora", "undeny", "allow", name)
	give(1)
	f.decided("stopped before", enforce.ReasonKillSwitch)
	f.run(0, 0, "2 of 2 gateways", "undeny", "host", f.host)
	f.decided("the stop is lifted", enforce.ReasonException)

	f.gateways[1].Kill()
	if err := f.gateways[1].Start(f.gateways[1].Config); err != nil {
		t.Fatal(err)
	}
	f.decided("after a crash", enforce.ReasonException)
	if err := f.gateways[1].Reload(f.config(1, "allow_for off")); err != nil {
		t.Fatal(err)
	}
	f.decided("off at one", enforce.ReasonException, enforce.ReasonDisallowed)
	f.run(1, 0, "nothing is stopped", "deny")
	f.run(1, 2, "its option allow_for is off", "allow", f.host, "--agent", "AcmeBot", "--until", "2099-12-31", "--by", "dora", "--ticket", "OPS-4711")
	if err := f.gateways[1].Reload(f.config(1, "")); err != nil {
		t.Fatal(err)
	}
	f.decided("on again", enforce.ReasonException)
	f.run(1, 0, "2 of 2 gateways", "undeny", "allow", name)
	f.decided("lifted", enforce.ReasonDisallowed)
	f.run(0, 0, "nothing is stopped", "deny")
	if journal := f.gateways[0].Admin("/robots/deny").Body; strings.Contains(journal, "allow") {
		t.Errorf("a lifted exception is still listed: %s", journal)
	}

	log := f.gateways[1].AccessLog()
	f.run(1, 0, "0 findings", "audit", log)
	out, err := rig.RunBinary(t, "robots", "report", log)
	if err != nil || strings.Count(out, ", by dora, ticket OPS-4711, until 20") != 2 {
		t.Errorf("error %v, want both exceptions in %s", err, out)
	}
	f.run(1, 0, ", by dora, ticket OPS-4711, until 20", "why", log, "--url", f.page, "--limit", "9")

	give(0)
	file := filepath.Join(filepath.Dir(f.gateways[1].Store()), "stops.json") // a folder in its place stands for a full disk
	if err := errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "x"), 0o700)); err != nil {
		t.Fatal(err)
	}
	f.run(1, 2, "the exception has ended, but a restart may bring it back", "undeny", "allow", name)
	f.decided("lifted on a full disk", enforce.ReasonDisallowed)
	if err := os.RemoveAll(file); err != nil {
		t.Fatal(err)
	}
}

// TestAllowEnds grants an exception at one gateway. The other gateway uses it within a second, and
// it ends at both on time without another order: each decision is right for its time.
func TestAllowEnds(t *testing.T) {
	rig.NeedsQuiet(t)
	f := startAllowFleet(t)
	f.decided("before", enforce.ReasonDisallowed)
	began := time.Now()
	until := began.Add(4 * time.Second).UTC().Truncate(time.Millisecond)
	order := fmt.Sprintf(`{"host":%q,"agent":"acmebot","until":%q,"by":"dora","ticket":"OPS-4711"}`, f.host, until.Format(time.RFC3339Nano))
	given := decodeAnswer[adminapi.OrderGiven](t, askAdmin(f.gateways[0], http.MethodPost, "/robots/allow", order))
	f.decided("given", enforce.ReasonException)
	if took := time.Since(began); took >= time.Second {
		t.Errorf("the exception was in force at both gateways after %v, want less than 1s", took)
	}
	for i, g := range f.gateways {
		rig.Eventually(t, fmt.Sprintf("gw%d: the exception ends", i), func() bool { return g.MustFetch("AcmeBot/1.0", f.page).Status == http.StatusForbidden })
		f.run(i, 0, "nothing is stopped", "deny")
	}
	f.decided("after its end", enforce.ReasonDisallowed)
	for i, g := range f.gateways {
		last := enforce.ReasonDisallowed
		for n, line := range g.Logs(4) {
			r := line.Robots
			during := r.DecidedAt.Time().After(given.Order.At) && r.DecidedAt.Time().Before(until) && n > 0
			if want := map[bool]enforce.Reason{true: enforce.ReasonException, false: enforce.ReasonDisallowed}[during]; r.Reason != want {
				t.Errorf("gw%d: decided at %v, with the end at %v: got %s, want %s", i, r.DecidedAt.Time(), until, r.Reason, want)
			}
			if r.Reason == enforce.ReasonException && (r.ExceptionOrder != given.Order.ID || r.ExceptionBy != "dora" || r.ExceptionTicket != "OPS-4711" || !r.ExceptionUntil.Time().Equal(until)) {
				t.Errorf("gw%d: the line has a wrong exception: %s", i, line.Raw)
			}
			last = r.Reason
		}
		if last != enforce.ReasonDisallowed {
			t.Errorf("gw%d: the last line has the reason %s, want disallowed", i, last)
		}
	}
}
