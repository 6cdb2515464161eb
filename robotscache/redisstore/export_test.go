package redisstore

import (
	"time"

	"github.com/crawlgate/crawlgate/cluster/link"
)

// SetLifetimes makes all later saves expire after d.
func (s *Store) SetLifetimes(d time.Duration) {
	s.times.Store(&lifetimes{d, d})
}

// LinkState returns the state of the link.
func (s *Store) LinkState() link.State { return s.link.State() }
