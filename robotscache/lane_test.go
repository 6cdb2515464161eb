package robotscache

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// begun puts n flights with a name into the class and begins as many as may.
func begun(t *testing.T, s *schedule, name string, n int, c class) map[string]*flight {
	t.Helper()
	all := make(map[string]*flight)
	for i := range n {
		f := newFlight(fmt.Sprint(name, i), 1)
		all[f.origin.Host] = f
		if !s.push(f, c) {
			t.Fatal("the queue is full")
		}
	}
	return all
}

// Who waits for a silent server makes room for others, comes back before any that
// has not begun, and never stands in the way of another class.
func TestLane_SilentServersGiveWay(t *testing.T) {
	t.Parallel()
	s := newSchedule(8, 90, 100) // 6 places and 54 lane places for first requests
	all := begun(t, s, "a", 20, classFirst)
	if got := begin(t, s); len(got) != 6 {
		t.Fatalf("begun %v", got)
	}
	for i := range 6 {
		s.giveWay(all[fmt.Sprint("a", i)])
		s.giveWay(all[fmt.Sprint("a", i)]) // twice is once
	}
	if got := begin(t, s); !slices.Equal(got, []string{"a6", "a7", "a8", "a9", "a10", "a11"}) {
		t.Errorf("after six gave way: %v", got)
	}
	if r, l := s.runningLoad(), s.silentLoad(); r != (Load{First: 6}) || l != (Load{First: 6}) {
		t.Errorf("running %+v, silent %+v", r, l)
	}

	placed := s.comeBack(all["a3"])
	if placed == nil || s.comeBack(all["a7"]) != nil {
		t.Fatal("who has left its place has to wait, who has one has not")
	}
	begin(t, s)
	select {
	case <-placed:
		t.Error("a place too many")
	default:
	}
	s.done(all["a6"])
	if got := begin(t, s); len(got) != 0 {
		t.Errorf("%v began before one that came back", got)
	}
	<-placed
	if r, l := s.runningLoad(), s.silentLoad(); r != (Load{First: 6}) || l != (Load{First: 5}) {
		t.Errorf("running %+v, silent %+v", r, l)
	}

	// Who gives up coming back stays where it was.
	s.comeBack(all["a4"])
	s.giveUp(all["a4"])
	s.done(all["a3"])
	if got := begin(t, s); !slices.Equal(got, []string{"a12"}) {
		t.Errorf("after a place became free: %v", got)
	}
	s.done(all["a4"])
	if l := s.silentLoad(); l != (Load{First: 4}) {
		t.Errorf("silent %+v", l)
	}
}

// A full lane lets nobody in until there is room, and then the one that has waited
// longest.
func TestLane_IsBounded(t *testing.T) {
	t.Parallel()
	s := newSchedule(4, 5, 100) // first requests: 3 places, 3 in the lane
	all := begun(t, s, "a", 20, classFirst)
	waiting := func() int { return s.silentLoad().First + s.runningLoad().First }
	for range 5 {
		for _, f := range all {
			s.giveWay(f) // those that have begun
		}
		begin(t, s)
	}
	if n := waiting(); n != 6 || s.silentLoad().First != 3 {
		t.Errorf("%d under way, %+v silent", n, s.silentLoad())
	}
	for _, f := range all {
		if f.spot == spotLane {
			s.done(f)
			break
		}
	}
	if got := begin(t, s); len(got) != 1 || waiting() != 6 {
		t.Errorf("after one came to its end: %v began, %d under way", got, waiting())
	}
	// Who hears from its server in time keeps its place.
	for _, f := range all {
		if f.spot == spotPlace && s.comeBack(f) != nil || f.spot == spotPlace && f.ripe != nil {
			t.Errorf("%s does not keep its place", f.origin)
		}
	}
}

// Slow answers have a lane of their own, from which nobody has to come back.
func TestLane_SlowAnswers(t *testing.T) {
	t.Parallel()
	s := newSchedule(8, 90, 100)
	all := begun(t, s, "a", 30, classFirst)
	for range 3 {
		for _, f := range all {
			f.stage = stageSlow
			s.giveWay(f)
		}
		begin(t, s)
	}
	if r, l := s.runningLoad(), s.slowLoad(); r != (Load{First: 6}) || l != (Load{First: 6}) {
		t.Errorf("running %+v, slow %+v", r, l)
	}
	for _, f := range all {
		if s.comeBack(f) != nil {
			t.Errorf("%s has to come back", f.origin)
		}
	}
}

// A smaller configuration throws nobody out, and a larger one lets in who waits.
func TestLane_Resize(t *testing.T) {
	t.Parallel()
	s := newSchedule(8, 90, 100)
	all := begun(t, s, "a", 40, classFirst)
	for range 2 {
		begin(t, s)
		for _, f := range all {
			s.giveWay(f)
		}
	}
	s.resize(1, 1)
	for _, want := range []int{1, 0} {
		if got := begin(t, s); len(got) != want || s.silentLoad().First != 12 {
			t.Errorf("made smaller: %v began, %+v silent", got, s.silentLoad())
		}
	}
	s.resize(16, 180)
	if got := begin(t, s); len(got) != 11 {
		t.Errorf("made larger: %v began", got)
	}
}

// Whatever happens to flights, in whatever order: each is in one place, the counts
// are those of the flights, and no bound is exceeded.
func TestSchedule_CountsStayRight(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(1, 2))
	s := newSchedule(16, 40, 20)
	var all []*flight
	for step := range 50000 {
		var f *flight
		if len(all) > 0 {
			f = all[rnd.IntN(len(all))]
		}
		switch op := rnd.IntN(10); {
		case op < 2 || f == nil:
			f = newFlight(fmt.Sprint(step), rnd.IntN(2))
			if s.push(f, class(rnd.IntN(int(classes)))) {
				all = append(all, f)
			}
		case op == 2 && f.queued != nil:
			s.push(f, classFirst)
			f.waiters = rnd.IntN(2)
		case op == 3 && f.spot != spotNone:
			s.done(f)
		case op == 4:
			s.giveWay(f)
		case op == 5 && f.spot != spotNone:
			if s.comeBack(f) == nil && f.spot == spotPlace {
				f.stage = stageSlow
			}
		case op == 6:
			s.giveUp(f)
		case op == 7 && f.spot == spotPlace:
			s.stay(f)
			f.stage = stageSilent
		default:
			s.next()
		}
		all = slices.DeleteFunc(all, func(f *flight) bool { return f.queued == nil && f.spot == spotNone })
		checkCounts(t, s, all, step)
	}
}

func checkCounts(t *testing.T, s *schedule, all []*flight, step int) {
	t.Helper()
	var queued, running Load
	var lanes [stages]Load
	of := func(l *Load, c class) *int { return []*int{&l.First, &l.Refresh, &l.Retry}[c] }
	for _, f := range all {
		switch {
		case f.queued != nil && f.spot == spotNone:
			*of(&queued, f.class)++
		case f.queued == nil && f.spot == spotPlace && f.back == nil:
			*of(&running, f.class)++
		case f.queued == nil && f.spot == spotLane && f.ripe == nil:
			*of(&lanes[f.stage], f.class)++
		default:
			t.Fatalf("step %d: %s is in two places: %+v", step, f.origin, f)
		}
	}
	if q, r, silent, slow := s.queuedLoad(), s.runningLoad(), s.silentLoad(), s.slowLoad(); q != queued || r != running ||
		silent != lanes[stageSilent] || slow != lanes[stageSlow] {
		t.Fatalf("step %d: %+v queued, %+v running, %+v silent, %+v slow; want %+v, %+v, %+v", step, q, r, silent, slow, queued, running, lanes)
	}
	if n := running.First + running.Refresh + running.Retry; n > 16 {
		t.Fatalf("step %d: %d places", step, n)
	}
	for st, l := range lanes {
		if n := l.First + l.Refresh + l.Retry; n > 40 {
			t.Fatalf("step %d: %d in lane %d", step, n, st)
		}
	}
}

// A timer that comes late, on a busy machine, finds a flight that has just seen that it has a place. It takes it away
// before the flight goes on, and is made good for, or not at all.
func TestTurn_LateTimer(t *testing.T) {
	t.Parallel()
	for range 3000 {
		c := &Cache{schedule: newSchedule(8, 100, 10)}
		f := &flight{since: time.Now().Add(-2 * patience)}
		c.schedule.give(f)
		late := &turn{cache: c, flight: f, timer: time.AfterFunc(time.Hour, func() {})}
		refused := false
		var all sync.WaitGroup
		c.mu.Lock() // so that they crowd upon it
		all.Go(func() { refused = !late.resume(t.Context()) })
		for range 8 {
			all.Go(late.giveWay)
		}
		runtime.Gosched()
		c.mu.Unlock()
		all.Wait()
		late.end()
		if refused {
			t.Fatal("a flight was refused its place")
		}
	}
}
