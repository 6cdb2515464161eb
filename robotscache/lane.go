package robotscache

import (
	"container/list"
	"context"
	"sync/atomic"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
)

// A retrieval that only waits for its server costs a connection and nothing else,
// and yet it would keep another one from its place: 200 hosts that never answer
// were enough to keep all new origins waiting for as long as the header may take.
// So a retrieval has its place among the parallel ones for patience; if its server
// has said nothing by then it goes on in a lane beside them, and another begins.
// When the first octet comes it gets a place again, before any that has not begun,
// and reads no further until then: what it may hold from there on is a file.
//
// A server that does answer, but slowly, goes to another lane after patience. That
// one is as short as the places are many, for its retrievals hold what they have
// read. With a full lane a retrieval keeps its place until there is room.

const (
	// patience is for how long a retrieval that waits may keep its place. Most
	// servers answer sooner; one that does not loses nothing, as it goes on. It
	// bounds the rate at which retrievals begin to Parallel / patience.
	patience = 500 * time.Millisecond
	// silentPerPlace is how many retrievals may wait for servers that have said
	// nothing, for each place that there is: 16 for each that a class may take. With
	// the other defaults that are 3,072 first requests, as many as a storm of 10,000
	// new origins has of which three in ten hang.
	silentPerPlace = 18
	// slowPerPlace is how many may take longer over an answer that has begun.
	slowPerPlace = 1
)

// stage is what a retrieval waits for.
type stage uint8

const (
	stageSilent stage = iota // the first octet of an answer
	stageSlow                // the rest of it
	stages
)

// lane is where the retrievals of one class and stage go on that have waited for
// longer than patience. A retrieval in it is not counted as running.
type lane struct {
	limit int
	in    int
	ripe  list.List // of *flight: they keep their places as there is no room here
}

// spot says where in the schedule a flight that has begun is.
type spot uint8

const (
	spotNone  spot = iota // not begun, or through
	spotPlace             // among the parallel ones
	spotLane              // in the lane of its stage
)

// laneOf is the lane of a flight that has begun.
func (s *schedule) laneOf(f *flight) *lane { return &s.lanes[f.class][f.stage] }

// give gives f a place.
func (s *schedule) give(f *flight) {
	f.spot = spotPlace
	s.running[f.class]++
}

// giveWay moves f, which has waited for long enough, from its place to its lane;
// at the latest when there is room.
func (s *schedule) giveWay(f *flight) {
	if f.spot != spotPlace || f.ripe != nil {
		return
	}
	f.ripe = s.laneOf(f).ripe.PushBack(f)
	s.clear(f.class)
}

// clear moves ripe flights of a class to their lanes, as far as there is room.
func (s *schedule) clear(c class) {
	for i := range s.lanes[c] {
		l := &s.lanes[c][i]
		for l.in < l.limit && l.ripe.Len() > 0 {
			f, _ := l.ripe.Remove(l.ripe.Front()).(*flight)
			f.ripe, f.spot = nil, spotLane
			l.in++
			s.running[c]--
		}
	}
}

// stay makes a flight that was ripe keep its place.
func (s *schedule) stay(f *flight) {
	if f.ripe != nil {
		s.laneOf(f).ripe.Remove(f.ripe)
		f.ripe = nil
	}
}

// comeBack is called when the server of a silent flight has said something. It
// returns nil if the flight has a place; otherwise it will have one once the
// channel is closed.
func (s *schedule) comeBack(f *flight) <-chan struct{} {
	if f.spot != spotLane || f.stage != stageSilent {
		s.stay(f)
		return nil
	}
	if f.back == nil {
		f.placed = make(chan struct{})
		f.back = s.back[f.class].PushBack(f)
	}
	return f.placed
}

// giveUp takes back a comeBack that is waited for no more.
func (s *schedule) giveUp(f *flight) {
	if f.back != nil {
		s.back[f.class].Remove(f.back)
		f.back = nil
	}
}

// restore gives places to those of a class that come back from its lane.
func (s *schedule) restore(c class) {
	for s.back[c].Len() > 0 && s.free(c) {
		f, _ := s.back[c].Remove(s.back[c].Front()).(*flight)
		f.back = nil
		s.laneOf(f).in--
		s.give(f)
		close(f.placed)
	}
}

// turn is the fetch.Turn of a flight.
type turn struct {
	cache  *Cache
	flight *flight
	timer  *time.Timer  // of giveWay
	waited atomic.Int64 // to get a place again; nanoseconds
}

// begin starts the patience with a flight that has just got its place.
func (c *Cache) begin(f *flight) *turn {
	t := &turn{cache: c, flight: f}
	c.mu.Lock()
	f.since = time.Now()
	c.mu.Unlock()
	t.timer = time.AfterFunc(patience, t.giveWay)
	return t
}

// end ends it, before the flight is through.
func (t *turn) end() { t.timer.Stop() }

// giveWay is what the timer calls.
func (t *turn) giveWay() {
	c, f := t.cache, t.flight
	c.mu.Lock()
	if time.Since(f.since) >= patience { // else something has happened just now
		c.schedule.giveWay(f)
	}
	c.dispatchAndUnlock()
}

// Asked implements fetch.Turn.
func (t *turn) Asked() {
	c, f := t.cache, t.flight
	c.mu.Lock()
	defer c.mu.Unlock()
	if f.spot == spotPlace {
		c.schedule.stay(f)
		f.stage, f.since = stageSilent, time.Now()
		t.timer.Reset(patience)
	}
}

// Answered implements fetch.Turn.
func (t *turn) Answered(ctx context.Context) { t.resume(ctx) }

// resume waits until the flight has a place and reports whether it got one before
// ctx ended. The timer may take the place away again as long as the flight's time
// has not begun anew, so that begins under the lock under which it is seen to have
// the place.
func (t *turn) resume(ctx context.Context) bool {
	c, f := t.cache, t.flight
	for {
		c.mu.Lock()
		placed := c.schedule.comeBack(f)
		if placed == nil || ctx.Err() != nil {
			c.schedule.giveUp(f)
			goesOn := t.goOn()
			c.dispatchAndUnlock()
			return goesOn
		}
		c.dispatchAndUnlock()
		began := time.Now()
		select {
		case <-placed:
		case <-ctx.Done():
		}
		t.waited.Add(int64(time.Since(began)))
	}
}

// goOn begins the patience with the rest of an answer, and reports whether the
// flight may read it. c.mu is held.
func (t *turn) goOn() bool {
	f := t.flight
	if f.spot == spotPlace {
		f.stage, f.since = stageSlow, time.Now()
		t.timer.Reset(patience)
	}
	return f.spot == spotPlace || f.stage == stageSlow
}

// starved reports whether a retrieval that ran out of its time did so for want of a
// place: if it waited for one for half of the time.
func (t *turn) starved(out fetch.Outcome, budget time.Duration) bool {
	return out.Cause == fetch.CauseTimeout && t.waited.Load() >= int64(budget/2)
}

// outcomeStarved says nothing about the origin.
var outcomeStarved = fetch.Outcome{Cause: fetch.CauseLocal, Detail: "too many robots.txt files are being fetched"}

// Interface guard.
var _ fetch.Turn = (*turn)(nil)
