package egress

import (
	"sync"
	"sync/atomic"
	"time"
)

// watch notices that an exchange stands still: it calls stalled when it has run for limit without a touch. While held
// it does not: it is somebody else's turn then than the origin's. The methods are safe for concurrent use; a nil watch
// does nothing.
type watch struct {
	limit   time.Duration
	stalled func()
	began   time.Time
	last    atomic.Int64 // the last touch, as time since began
	held    atomic.Bool

	mu    sync.Mutex
	timer *time.Timer // nil while it does not run
}

func newWatch(limit time.Duration, stalled func()) *watch {
	return &watch{limit: limit, stalled: stalled, began: time.Now()}
}

// start lets it run, from now.
func (w *watch) start() {
	if w == nil {
		return
	}
	w.touch()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.limit, w.check)
	}
}

func (w *watch) stop() {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

func (w *watch) touch() {
	if w != nil {
		w.last.Store(int64(time.Since(w.began)))
	}
}

func (w *watch) hold() { w.held.Store(true) }

func (w *watch) release() {
	w.touch()
	w.held.Store(false)
}

func (w *watch) check() {
	left := w.limit - (time.Since(w.began) - time.Duration(w.last.Load()))
	if w.held.Load() {
		left = w.limit
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.timer == nil:
	case left > 0:
		w.timer.Reset(left)
	default:
		w.timer = nil
		w.stalled()
	}
}
