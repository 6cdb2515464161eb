// Package stall tracks which requests are writing their lines into a log, and for how long. It
// keeps a log that accepts no more lines from holding up the requests that follow.
package stall

import (
	"sync"
	"time"
)

const (
	// Wait is how long a request waits for a log.
	Wait = 5 * time.Second
	// suspect is how long a line may take before other lines wait in front of the log.
	suspect = 100 * time.Millisecond
	// places is how many requests may be held up by a log that stalls.
	places = 16
)

// Log is the log, or the logs, that some requests share. The zero value is ready for use. It is
// safe for concurrent use.
type Log struct {
	mu    sync.Mutex
	lines map[*Line]time.Time // the lines being written, and when they were begun
}

// look returns how many lines are being written, and how long the oldest has taken so far.
func (l *Log) look() (lines int, oldest time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, began := range l.lines {
		oldest = max(oldest, time.Since(began))
	}
	return len(l.lines), oldest
}

// Stalls reports whether the log has not taken a line for as long as a request waits.
func (l *Log) Stalls() bool {
	_, oldest := l.look()
	return oldest >= Wait
}

// Idle reports whether no line is being written.
func (l *Log) Idle() bool {
	lines, _ := l.look()
	return lines == 0
}

// Admit waits until the log accepts lines. It reports false if that takes too long: the caller must
// not write its line then.
func (l *Log) Admit() bool {
	began := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		lines, oldest := l.look()
		if oldest < suspect && lines < places {
			return true
		}
		if oldest >= Wait || time.Since(began) >= Wait {
			return false
		}
		time.Sleep(pause)
	}
}

// Release releases the waiters of the lines that have taken [Wait] or longer.
func (l *Log) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line, began := range l.lines {
		if time.Since(began) >= Wait {
			go line.release()
		}
	}
}

// Line is the line of one request. Only one goroutine may use it at a time.
type Line struct {
	Log *Log
	// Waiter is released at most once, while the line is being written; it may be nil.
	Waiter interface{ Release() }
	mu     sync.Mutex // guards Waiter
}

// Begin says that the line is about to be written. It may be called again for each log that gets
// the line.
func (l *Line) Begin() {
	l.Log.mu.Lock()
	defer l.Log.mu.Unlock()
	if l.Log.lines == nil {
		l.Log.lines = make(map[*Line]time.Time, places)
	}
	l.Log.lines[l] = time.Now()
}

// End says that the line was written, or that there will be no line.
func (l *Line) End() {
	l.mu.Lock()
	l.Waiter = nil
	l.mu.Unlock()
	l.Log.mu.Lock()
	defer l.Log.mu.Unlock()
	delete(l.Log.lines, l)
}

func (l *Line) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w := l.Waiter; w != nil {
		l.Waiter = nil
		w.Release()
	}
}
