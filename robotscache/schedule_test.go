package robotscache

import (
	"fmt"
	"slices"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
)

func newFlight(name string, waiters int) *flight {
	return &flight{origin: origin.Origin{Scheme: "http", Host: name, Port: 80}, waiters: waiters}
}

// next takes all flights that may begin and returns their names.
func begin(t *testing.T, s *schedule) []string {
	t.Helper()
	var names []string
	for {
		f, lost := s.next()
		if len(lost) > 0 {
			t.Errorf("%d flights were lost", len(lost))
		}
		if f == nil {
			return names
		}
		names = append(names, f.origin.Host)
	}
}

func TestSchedule_OrderAndShares(t *testing.T) {
	t.Parallel()
	s := newSchedule(8, 128, 100)
	all := make(map[string]*flight)
	push := func(f *flight, c class) {
		all[f.origin.Host] = f
		s.push(f, c)
	}
	for i := range 10 {
		push(newFlight(fmt.Sprintf("retry%d", i), 0), classRetry)
		push(newFlight(fmt.Sprintf("refresh%d", i), 0), classRefresh)
		push(newFlight(fmt.Sprintf("first%d", i), 1), classFirst)
	}
	want := []string{"first0", "first1", "first2", "first3", "first4", "first5", "refresh0", "refresh1"}
	if got := begin(t, s); !slices.Equal(got, want) {
		t.Errorf("begun %v, want %v", got, want)
	}
	s.done(all["refresh1"])
	if got := begin(t, s); !slices.Equal(got, []string{"refresh2"}) {
		t.Errorf("after a refresh: %v", got)
	}
	s.done(all["first3"])
	s.done(all["first0"])
	if got := begin(t, s); !slices.Equal(got, []string{"first6", "first7"}) {
		t.Errorf("after two first requests: %v", got)
	}
	if q, r := s.queuedLoad(), s.runningLoad(); q != (Load{2, 7, 10}) || r != (Load{6, 2, 0}) {
		t.Errorf("queued %+v, running %+v", q, r)
	}
	if n := len(s.drain()); n != 19 || s.queuedLoad() != (Load{}) {
		t.Errorf("%d drained, %+v left", n, s.queuedLoad())
	}
}

// However small the number of parallel retrievals, each class gets on.
func TestSchedule_SmallShares(t *testing.T) {
	t.Parallel()
	for parallel := 1; parallel <= 9; parallel++ {
		s := newSchedule(parallel, 16*parallel, 100)
		for c := range classes {
			s.push(newFlight(fmt.Sprint(c), 1), c)
		}
		var running []*flight
		for done := range int(classes) {
			for f, _ := s.next(); f != nil; f, _ = s.next() {
				running = append(running, f)
			}
			if len(running)-done > parallel {
				t.Errorf("%d of %d run", len(running)-done, parallel)
			}
			if len(running) <= done {
				t.Fatalf("parallel %d: stuck with %+v queued", parallel, s.queuedLoad())
			}
			s.done(running[done])
		}
	}
}

// Abandoned first requests let others pass, and are lost only where there is no
// room behind.
func TestSchedule_Demotes(t *testing.T) {
	t.Parallel()
	s := newSchedule(1, 16, 3)
	for i := range 3 {
		s.push(newFlight(fmt.Sprintf("abandoned%d", i), 0), classFirst)
	}
	if s.push(newFlight("one too many", 1), classFirst) {
		t.Error("the queue takes more than its limit")
	}
	s.push(newFlight("retry", 0), classRetry)
	f, lost := s.next()
	if f == nil || f.origin.Host != "retry" || len(lost) != 1 || lost[0].origin.Host != "abandoned2" {
		t.Errorf("begun %+v, lost %+v", f, lost)
	}
	if !s.push(newFlight("waited for", 1), classFirst) {
		t.Error("no room after the demotion")
	}
	s.done(f)
	if f, _ := s.next(); f == nil || f.origin.Host != "waited for" {
		t.Errorf("begun %+v", f)
	}
}
