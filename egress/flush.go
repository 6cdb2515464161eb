package egress

import (
	"errors"
	"net/http"
	"sync"
	"time"
)

// flushDelay is how long octets of a body of known length may wait in the server's buffer for more to come.
const flushDelay = 10 * time.Millisecond

// flusher writes a response's body and sees to it that no octet waits long in the server's buffers. With eager set
// each write is sent at once, else a timer sends what the buffers hold after flushDelay. Close must be called.
type flusher struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	eager bool

	mu    sync.Mutex // a ResponseWriter is not for concurrent use: the timer takes turns with Write
	timer *time.Timer
	armed bool
	done  bool
}

// arm lets what is in the buffers now be sent within flushDelay.
func (f *flusher) arm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.armed || f.done:
		return
	case f.timer == nil:
		f.timer = time.AfterFunc(flushDelay, f.fire)
	default:
		f.timer.Reset(flushDelay)
	}
	f.armed = true
}

func (f *flusher) fire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.armed && !f.done {
		f.armed = false
		_ = f.flush() // a failure shows in the next write
	}
}

// Write writes and, where eager, sends.
func (f *flusher) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, err := f.w.Write(p)
	if err != nil || !f.eager {
		return n, err
	}
	f.armed = false
	return n, f.flush()
}

func (f *flusher) flush() error {
	if err := f.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// close stops the timer; none of its flushes runs afterwards.
func (f *flusher) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = true
	if f.timer != nil {
		f.timer.Stop()
	}
}
