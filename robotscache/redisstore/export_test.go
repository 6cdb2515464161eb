package redisstore

import "time"

// SetLifetimes makes what is saved from now on expire after d.
func (s *Store) SetLifetimes(d time.Duration) {
	s.times.Store(&lifetimes{milliseconds(d), milliseconds(d)})
}
