package pace

import "time"

// At returns when the slot was granted, to the nanosecond: what a test measures by.
func (s Slot) At() time.Time {
	return s.grant.pacer.epoch.Add(s.grant.charges[0].at)
}
