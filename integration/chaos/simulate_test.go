//go:build slow

package chaos

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// checkSimulation simulates the log of a gateway under chaos. With the Caddyfile that was in force,
// each line must have the enforced decision; with other Caddyfiles, the decision that the oracle
// computes for them.
func (f *fleet) checkSimulation(g *rig.Gateway, c timing, visits []visit) {
	t := g.T
	t.Helper()
	lines := linesByVisit(g)
	maps.DeleteFunc(lines, func(_ string, r *enforce.LogRecord) bool { return r.Schema == 0 }) // the gateway's own pages
	r := rig.Simulate(t, "--store", g.Store(), "--config", filepath.Join(g.Dir, "Caddyfile"), g.AccessLog())
	t.Logf("simulated: %+v", r.Totals)
	shown := 0
	for n, l := range r.Lines {
		if l.Type != "totals" && shown < 20 {
			shown++
			t.Errorf("line %d, %s: %s %s: %s -> %s; logged as %+v", n, l.URL, l.Type, l.Cause, rig.Decided(l.Old), rig.Decided(l.New), lines[l.URL])
		}
	}
	if s := r.Totals; r.Status != 0 || s.Lines != int64(len(lines)) || s.Same != s.Lines || len(lines) != len(visits) ||
		s.AsRecorded > s.Lines/5 {
		t.Errorf("status %d, totals %+v for %d lines about %d visits", r.Status, s, len(lines), len(visits))
	}

	strict, short, other := c, c, c
	strict.mode, short.unreachableFor, other.mode = "strict", 3*time.Second, map[string]string{"spec": "stale", "stale": "spec"}[c.mode]
	for name, as := range map[string]timing{"strict": strict, "another mode": other, "unreachable_for 3s": short} {
		config := g.Config
		config.Engine = as.engine("")
		f.simulateAs(t, name, g, config, as, visits, lines)
	}
}

// simulateAs simulates a log under another configuration, and lets the oracle judge the result.
func (f *fleet) simulateAs(
	t *testing.T, name string, g *rig.Gateway, config rig.Config, as timing, visits []visit, lines map[string]*enforce.LogRecord,
) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "Caddyfile")
	if err := os.WriteFile(file, []byte(g.Caddyfile(config)), 0o600); err != nil {
		t.Fatal(err)
	}
	r := rig.Simulate(t, "--store", g.Store(), "--config", file, g.AccessLog())
	byURL := make(map[string]rig.SimulatedLine)
	for _, l := range r.Lines {
		byURL[l.URL] = l
	}
	starved := f.starvedIn(visits, lines)
	chronicles := make([]chronicle, len(f.sites))
	for i, site := range f.sites {
		chronicles[i] = chronicleOf(site, as, nil)
		chronicles[i].noteStarved(starved, as)
	}
	wrong, exactly := 0, 0
	for i := range visits {
		v := visits[i]
		line := lines[f.url(&v)]
		l, listed := byURL[f.url(&v)]
		if line == nil || line.Reason == enforce.ReasonPending || l.Type == "not_computed" {
			continue
		}
		got := *line
		if listed {
			got = l.New
		}
		v.status = 200
		if got.Decision == enforce.OutcomeDeny {
			v.status = 403
		}
		fault, exact := chronicles[v.site].judge(&v, nil, as)
		if exact {
			exactly++
		}
		if fault != "" {
			if wrong++; wrong <= 10 {
				t.Logf("%s: %s: it comes to %s from %s by %s %s: %s", name, f.url(&v), rig.Decided(got), rig.Decided(*line), line.State, line.Cause, fault)
			}
		}
	}
	t.Logf("%s: %d wrong, %d had only one right decision; %+v", name, wrong, exactly, r.Totals)
	// If an age permits two decisions, the line's may be wrong under another configuration.
	if int64(wrong) > r.Totals.AsRecorded || len(visits) < 100*wrong || r.Totals.Different == 0 || r.Totals.Same == 0 || r.Totals.Errors != 0 {
		t.Errorf("%s: %d of %d visits have a wrong decision; totals %+v", name, wrong, len(visits), r.Totals)
	}
}
