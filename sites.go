package crawlgate

import (
	"slices"
	"sync"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
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

// deny reports whether the deny list of every gateway names the origin, and the pattern of the last
// one.
func (s *sites) deny(o origin.Origin) (pattern enforce.HostPattern, denied bool) {
	for _, h := range s.all() {
		if pattern, denied = h.operator.Denied(o); !denied {
			return pattern, false
		}
	}
	return pattern, denied
}
