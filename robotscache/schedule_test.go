package robotscache

import (
	"fmt"
	"math/rand/v2"
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
	s := newSchedule(8, 100)
	for i := range 10 {
		s.push(newFlight(fmt.Sprintf("retry%d", i), 0), classRetry)
		s.push(newFlight(fmt.Sprintf("refresh%d", i), 0), classRefresh)
		s.push(newFlight(fmt.Sprintf("first%d", i), 1), classFirst)
	}
	want := []string{"first0", "first1", "first2", "first3", "first4", "first5", "refresh0", "refresh1"}
	if got := begin(t, s); !slices.Equal(got, want) {
		t.Errorf("begun %v, want %v", got, want)
	}
	s.done(classRefresh)
	if got := begin(t, s); !slices.Equal(got, []string{"refresh2"}) {
		t.Errorf("after a refresh: %v", got)
	}
	s.done(classFirst)
	s.done(classFirst)
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
		s := newSchedule(parallel, 100)
		for c := range classes {
			s.push(newFlight(fmt.Sprint(c), 1), c)
		}
		var running []class
		for done := range int(classes) {
			for f, _ := s.next(); f != nil; f, _ = s.next() {
				running = append(running, f.class)
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
	s := newSchedule(1, 3)
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
	s.done(classRetry)
	if f, _ := s.next(); f == nil || f.origin.Host != "waited for" {
		t.Errorf("begun %+v", f)
	}
}

// A flight is in one queue at a time, whatever happens to it.
func TestSchedule_CountsStayRight(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	s := newSchedule(16, 20)
	var all []*flight
	queued := func() (n int) {
		for _, f := range all {
			if f.queued != nil {
				n++
			}
		}
		return n
	}
	var running []class
	for step := range 20000 {
		switch rnd.IntN(6) {
		case 0, 1:
			f := newFlight(fmt.Sprint(step), rnd.IntN(2))
			if s.push(f, class(rnd.IntN(int(classes)))) {
				all = append(all, f)
			}
		case 2:
			if len(all) > 0 {
				f := all[rnd.IntN(len(all))]
				if f.queued != nil {
					s.push(f, classFirst)
					f.waiters = rnd.IntN(2)
				}
			}
		case 3:
			if len(running) > 0 {
				s.done(running[0])
				running = running[1:]
			}
		default:
			if f, _ := s.next(); f != nil {
				running = append(running, f.class)
			}
		}
		q, r := s.queuedLoad(), s.runningLoad()
		if q.First+q.Refresh+q.Retry != queued() || r.First+r.Refresh+r.Retry != len(running) || len(running) > 16 {
			t.Fatalf("step %d: %+v queued, %+v running; want %d and %d", step, q, r, queued(), len(running))
		}
		all = slices.DeleteFunc(all, func(f *flight) bool { return f.queued == nil })
	}
}
