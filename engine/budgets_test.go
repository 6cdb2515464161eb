package engine

import (
	"fmt"
	"sync"
	"testing"

	"go.uber.org/zap/zaptest"

	"github.com/crawlgate/crawlgate/budget"
)

func fileOf(t *testing.T, folder string) *budgetFile {
	t.Helper()
	f := &budgetFile{folder: folder, logger: zaptest.NewLogger(t)}
	if err := budgetsFile.read(folder, &f.totals); err != nil {
		t.Fatal(err)
	}
	if err := budgetHostsFile.read(folder, &f.hosts); err != nil {
		t.Fatal(err)
	}
	return f
}

// TestBudgetFile checks that drawn slices count as used after a crash, and returned ones do not.
func TestBudgetFile(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	draw := func(f *budgetFile, a budget.Ask) int64 {
		a.Agent, a.Limit = "a", 10
		answer, err := f.Draw(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		return answer.Granted
	}
	f := fileOf(t, folder)
	if n := draw(f, budget.Ask{Day: "2026-11-27", Name: budget.Requests, Want: 6}); n != 6 {
		t.Errorf("Draw granted %d, want 6", n)
	}
	f = fileOf(t, folder) // like after kill -9
	if n := draw(f, budget.Ask{Day: "2026-11-27", Name: budget.Requests, Want: 6}); n != 4 {
		t.Errorf("Draw granted %d after a crash, want the rest, 4", n)
	}
	draw(f, budget.Ask{Day: "2026-11-27", Name: budget.Requests, Settle: -3})
	draw(f, budget.Ask{Day: "2026-11-27", Name: "host h", Want: 9})
	if err := f.writeHosts(); err != nil {
		t.Fatal(err)
	}
	f = fileOf(t, folder)
	if n := draw(f, budget.Ask{Day: "2026-11-27", Name: budget.Requests, Want: 9}); n != 3 {
		t.Errorf("Draw granted %d, want the 3 that were returned", n)
	}
	if n := draw(f, budget.Ask{Day: "2026-11-27", Name: "host h", Want: 9}); n != 1 {
		t.Errorf("Draw granted %d to a host, want the rest, 1", n)
	}
	draw(f, budget.Ask{Day: "2026-11-28", Name: budget.Requests, Want: 9})
	draw(f, budget.Ask{Day: "2026-11-27", Name: budget.Requests, Settle: -1}) // yesterday's
	if n := draw(f, budget.Ask{Day: "2026-11-28", Name: budget.Requests, Want: 9}); n != 1 {
		t.Errorf("Draw granted %d today, want the rest, 1", n)
	}
	draw(f, budget.Ask{Day: "2026-11-29", Name: budget.Requests, Want: 9})
	if f.totals["a 2026-11-27"] != nil || f.totals["a 2026-11-28"] == nil {
		t.Errorf("the totals are %v, want only today's", f.totals)
	}
	draw(f, budget.Ask{Day: "2030-01-01", Name: budget.Requests, Want: 9}) // with a wrong clock
	draw(f, budget.Ask{Day: "2026-11-29", Name: budget.Requests, Want: 9})
	if len(f.totals) != 1 {
		t.Errorf("the totals are %v, want one", f.totals)
	}
}

// TestBudgetFileWrites checks that draws do not wait for a write of the hosts, and that writers
// wait for each other.
func TestBudgetFileWrites(t *testing.T) {
	t.Parallel()
	f := fileOf(t, t.TempDir())
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for n := range 50 {
				ask := budget.Ask{Agent: "a", Day: "2026-11-27", Limit: 100, Name: fmt.Sprint("host ", i*50+n), Want: 1}
				if a, err := f.Draw(t.Context(), ask); err != nil || a.Granted != 1 {
					t.Error(a, err)
				}
				if err := f.writeHosts(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := len(fileOf(t, f.folder).hosts["a 2026-11-27"]); n != 200 || f.took == 0 {
		t.Errorf("%d hosts were written, the last write took %s; want 200", n, f.took)
	}
}

// TestBudgetFileHosts checks that beyond the bound only the hosts with the fewest requests are
// dropped.
func TestBudgetFileHosts(t *testing.T) {
	t.Parallel()
	f := fileOf(t, t.TempDir())
	ask := budget.Ask{Agent: "a", Day: "2026-11-27", Limit: 100}
	for i := range maxBudgetHosts + 1 {
		ask.Name, ask.Want = fmt.Sprint("host ", i), 1
		if i%4 == 0 {
			ask.Want = 100
		}
		if a, err := f.Draw(t.Context(), ask); err != nil || a.Granted != ask.Want {
			t.Fatal(a, err)
		}
	}
	if n := len(f.hosts["a 2026-11-27"]); n > maxBudgetHosts || n < maxBudgetHosts/2 {
		t.Errorf("%d hosts are kept, want between half the bound and the bound", n)
	}
	ask.Name, ask.Want = "host 4", 100
	if a, _ := f.Draw(t.Context(), ask); a.Granted != 0 {
		t.Errorf("a host without a budget left gets %d requests", a.Granted)
	}
	if err := f.writeHosts(); err != nil {
		t.Error(err)
	}
}
