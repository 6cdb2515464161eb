package crawlgate

import (
	"slices"
	"sync"
)

// sites are the gateways of one configuration. It is safe for concurrent use.
type sites struct {
	mu       sync.Mutex
	handlers []*Handler
}

func (s *sites) add(h *Handler) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handlers = append(s.handlers, h)
}

// all returns them in the order in which they were provisioned.
func (s *sites) all() []*Handler {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.handlers)
}
