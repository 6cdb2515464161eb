package fetch

import (
	"sync"
	"time"
)

// stopwatch calls a function when it has run for a time. It is safe for concurrent
// use; pause and resume are called in pairs.
type stopwatch struct {
	mu    sync.Mutex
	timer *time.Timer
	since time.Time
	left  time.Duration
	over  bool // ended, or the function has been called
}

// newStopwatch returns one that runs.
func newStopwatch(limit time.Duration, f func()) *stopwatch {
	return &stopwatch{timer: time.AfterFunc(limit, f), since: time.Now(), left: limit}
}

func (s *stopwatch) pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = !s.timer.Stop() || s.over
	s.left -= time.Since(s.since)
}

func (s *stopwatch) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.over {
		s.since = time.Now()
		s.timer.Reset(max(s.left, 0))
	}
}

// end keeps the function from being called, if it has not been.
func (s *stopwatch) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
	s.timer.Stop()
}
