// Package stall knows which requests are writing their lines into a log, and for how long. It keeps
// a log that takes no more lines from holding up those that come after.
package stall

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

const (
	// Wait is how long a request waits for a log.
	Wait = 5 * time.Second
	// suspect is how long a line may be on its way before others wait for it in front of the log.
	suspect = 100 * time.Millisecond
	// places is how many requests may be held up by a log that stalls.
	places = 16
)

// Log is the log, or the logs, of some requests. The zero value is ready for use. It is safe for
// concurrent use.
type Log struct {
	since [places]atomic.Int64 // when a line was begun; 0 for a place that is free
}

var epoch = time.Now()

// now is on the monotonic clock, and never 0.
func now() int64 { return int64(time.Since(epoch)) | 1 }

// look tells how many lines are on their way, and for how long the oldest has been.
func (l *Log) look() (lines int, oldest time.Duration) {
	at := now()
	for i := range l.since {
		if since := l.since[i].Load(); since != 0 {
			lines++
			oldest = max(oldest, time.Duration(at-since))
		}
	}
	return lines, oldest
}

// Stalls reports whether the log has not taken a line for as long as a request waits.
func (l *Log) Stalls() bool {
	_, oldest := l.look()
	return oldest >= Wait
}

// Idle reports whether no line is on its way.
func (l *Log) Idle() bool {
	lines, _ := l.look()
	return lines == 0
}

// Admit waits until the log takes lines. It reports false if that takes too long: the caller must
// not write its line then.
func (l *Log) Admit() bool {
	began := now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		lines, oldest := l.look()
		if oldest < suspect && lines < places {
			return true
		}
		if oldest >= Wait || time.Duration(now()-began) >= Wait {
			return false
		}
		time.Sleep(pause)
	}
}

// Line is the line of one request. It is for one goroutine.
type Line struct {
	Log   *Log
	place *atomic.Int64
}

// Begin says that the line is about to be written. It may be called again for each log that gets
// the line.
func (l *Line) Begin() {
	if l.place != nil {
		l.place.Store(now())
		return
	}
	at := rand.N(places)    //nolint:gosec // it spreads load
	for i := range places { // where none is free, others tell of a stall
		place := &l.Log.since[(at+i)%places]
		if place.CompareAndSwap(0, now()) {
			l.place = place
			return
		}
	}
}

// End says that the line was written, or that there is none.
func (l *Line) End() {
	if l.place != nil {
		l.place.Store(0)
		l.place = nil
	}
}
