//go:build slow

package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// chaosTime returns how long a chaos test lasts. CRAWLGATE_CHAOS makes it longer.
func chaosTime(t *testing.T, usual time.Duration) time.Duration {
	t.Helper()
	text := os.Getenv("CRAWLGATE_CHAOS")
	if text == "" {
		return usual
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CRAWLGATE_CHAOS: %v", err)
	}
	return d
}

// chaosSeed returns the seed of the events. CRAWLGATE_CHAOS_SEED sets another one.
func chaosSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("CRAWLGATE_CHAOS_SEED")
	if text == "" {
		return 4
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("CRAWLGATE_CHAOS_SEED: %v", err)
	}
	return seed
}

const chaosSites, chaosClients = 500, 32

// TestChaos lets 500 origins change between all misbehaviours while 32 clients crawl them. It
// judges every answer by the origins' own records.
func TestChaos(t *testing.T) { testChaos(t, "spec", 15*time.Second) }

// TestChaosStale is TestChaos in another mode, in which the last good copy decides when an origin
// becomes unreachable.
func TestChaosStale(t *testing.T) { testChaos(t, "stale", 10*time.Second) }

func testChaos(t *testing.T, mode string, usual time.Duration) {
	t.Helper()
	rig.LoadsMachine(t)
	c := timing{mode: mode, ttl: 4 * time.Second, retry: [2]time.Duration{time.Second, 4 * time.Second}, timeout: 2 * time.Second, unreachableFor: 9 * time.Second, grace: time.Second}
	seed := chaosSeed(t)
	script := rand.New(rand.NewPCG(seed, 0))
	f := newFleet(t, chaosSites)
	f.begin(script)
	g := rig.New(t, rig.Config{Engine: c.engine(""), Egress: "trust_ca " + rig.CAFile(t, f.server)})

	ctx, cancel := context.WithTimeout(t.Context(), chaosTime(t, usual))
	defer cancel()
	var taken footprint
	var side sync.WaitGroup
	side.Go(func() { f.change(ctx, script, 3*time.Second) })
	side.Go(func() { taken = watchFootprint(ctx, g, 500*time.Millisecond) })
	visits := f.crawl(ctx, g.Addr, chaosClients, seed, 30*time.Millisecond)
	side.Wait()
	g.Stop()

	judge(t, f, c, visits, linesByVisit(g), nil, nil)
	taken.check(t)
	f.checkSimulation(g, c, visits)
}

// judge lets the oracle check every visit, every page that reached an origin, and every fetch of
// robots.txt. A visit may break off when a gateway dies or a reload closes its listener.
func judge(
	t *testing.T, f *fleet, c timing, visits []visit, lines map[string]*enforce.LogRecord, deaths []death, reloads []span,
) {
	t.Helper()
	chronicles := make([]chronicle, len(f.sites))
	fetches, failed := 0, 0
	starved := f.starvedIn(visits, lines)
	for i, site := range f.sites {
		if site.Dropped() > 0 {
			t.Fatalf("%s: the record of the site is incomplete", site.Origin())
		}
		chronicles[i] = chronicleOf(site, c, deaths)
		chronicles[i].noteStarved(starved, c)
		for _, fault := range append(chronicles[i].fetchFaults(c), chronicles[i].variant.fetchFaults(c)...) {
			t.Errorf("%s: %s", site.Origin(), fault)
		}
		for _, a := range chronicles[i].attempts {
			fetches++
			if a.class == classFailed {
				failed++
			}
		}
	}
	count := make(map[string]int)
	sent := make(map[string]bool) // what may have reached an origin
	for i := range visits {
		v := &visits[i]
		url := f.url(v)
		if v.status == 0 && (overlaps(v, deaths) || v.within(reloads)) {
			count["broken off by a death or a reload"]++
			sent[url] = true
			continue
		}
		line := lines[url]
		if line == nil && v.status != 0 && len(deaths) == 0 {
			t.Errorf("%s: no line in the access log", url)
		}
		fault, exact := chronicles[v.site].judge(v, line, c)
		if fault != "" {
			t.Errorf("%s from %s to %s: %s; the visits before: %q", url, stamp(v.from), stamp(v.to), fault, f.before(visits, v, lines))
		}
		sent[url] = v.status != 403
		count[outcomeOf(v, line)]++
		if exact {
			count["with but one right verdict"]++
		}
	}
	for _, site := range f.sites {
		for _, e := range site.PageExchanges() {
			if strings.HasPrefix(e.Path, "/p") && !sent[site.URL(e.Target)] {
				t.Errorf("%s reached the origin, although it was refused or never requested", site.URL(e.Target))
			}
		}
	}
	t.Logf("%d visits: %v; %d fetches of robots.txt, %d of them failed; starved %d times", len(visits), count, fetches, failed, len(starved))
}

// before describes the last visits to the site before v, and their answers.
func (f *fleet) before(visits []visit, v *visit, lines map[string]*enforce.LogRecord) []string {
	var all []string
	for i := range visits {
		other := &visits[i]
		if line := lines[f.url(other)]; line != nil && other.site == v.site && other.from.Before(v.from) {
			all = append(all, fmt.Sprintf("%s to %s: %s, %s by %s: %s", stamp(other.from), stamp(other.to), line.Reason, line.State, line.Source, line.Detail))
		}
	}
	slices.Sort(all)
	return all[max(0, len(all)-8):]
}

func stamp(t time.Time) string { return t.Format("05.000") }

func outcomeOf(v *visit, line *enforce.LogRecord) string {
	switch {
	case v.pending || line != nil && line.Reason == enforce.ReasonPending:
		return "pending"
	case v.status == 403:
		return "refused"
	default:
		return "let through"
	}
}

func overlaps(v *visit, deaths []death) bool {
	return slices.ContainsFunc(deaths, func(d death) bool { return v.within([]span{d.span}) })
}

func (v *visit) within(times []span) bool {
	return slices.ContainsFunc(times, func(s span) bool { return !v.from.After(s.to) && !v.to.Before(s.from) })
}

// logLine is the part of an access-log line that these tests look at.
type logLine struct {
	Request struct{ URI string }
	Robots  enforce.LogRecord
}

// linesOf reads the access log. It leaves out a line that the end of the process cut.
func linesOf(g *rig.Gateway) (lines []logLine) {
	g.T.Helper()
	content, err := os.ReadFile(g.AccessLog())
	if err != nil {
		g.T.Fatal(err)
	}
	for text := range bytes.Lines(content) {
		var l logLine
		if json.Unmarshal(text, &l) == nil && l.Request.URI != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

// linesByVisit returns the lines of the access log by URL.
func linesByVisit(g *rig.Gateway) map[string]*enforce.LogRecord {
	g.T.Helper()
	lines := make(map[string]*enforce.LogRecord)
	for _, l := range linesOf(g) {
		lines[l.Request.URI] = &l.Robots
	}
	return lines
}

// residentSet returns the memory that a process has now, in bytes.
func residentSet(pid int) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("process %d has no VmRSS", pid)
}
