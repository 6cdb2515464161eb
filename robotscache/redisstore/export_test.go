package redisstore

import "time"

// SetLifetimes makes all later saves expire after d.
func (s *Store) SetLifetimes(d time.Duration) {
	s.times.Store(&lifetimes{milliseconds(d), milliseconds(d)})
}
