package pace

import "time"

// At returns when the slot was granted, in full precision, for tests.
func (s Slot) At() time.Time {
	return s.grant.pacer.epoch.Add(s.grant.charges[0].at)
}
