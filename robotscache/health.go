package robotscache

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// health remembers which kinds of calls of the store fail, so that a store that
// goes away, or fills its disk, is reported once and not at each call. Reading and
// writing are apart: what can still be read is no sign that it can be written.
type health struct {
	failing atomic.Int32 // number of kinds, for the usual case that it is none

	mu    sync.Mutex
	kinds map[string]bool
}

func kindOf(op string) string {
	switch op {
	case "save", "delete":
		return "write"
	default:
		return "read"
	}
}

// note records how a call went, and reports whether the health of the store has
// changed by it, and to what.
func (h *health) note(op string, ok bool) (changed, healthy bool) {
	if ok && h.failing.Load() == 0 {
		return false, true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	before := len(h.kinds)
	if ok {
		delete(h.kinds, kindOf(op))
	} else {
		if h.kinds == nil {
			h.kinds = make(map[string]bool)
		}
		h.kinds[kindOf(op)] = true
	}
	h.failing.Store(int32(len(h.kinds)))
	return (before == 0) != (len(h.kinds) == 0), len(h.kinds) == 0
}

// noteStore tells the observer how a call of the store went.
func (c *Cache) noteStore(op string, err error) {
	failed := err != nil && !errors.Is(err, ErrNotFound)
	if failed {
		if c.base.Err() != nil && op != "save" {
			return // ended by Close
		}
		c.cfg.Observer.StoreFailed(op, err)
		if !errors.Is(err, ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return // it answers, if badly
		}
	}
	if changed, healthy := c.health.note(op, !failed); changed {
		if healthy {
			err = nil
		}
		c.cfg.Observer.StoreAvailable(healthy, err)
	}
}
