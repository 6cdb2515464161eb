package pace

import "time"

// At is when the slot was granted, to the nanosecond: what a test measures by.
func (s Slot) At() time.Time {
	return s.ticket.pacer.epoch.Add(s.ticket.holds[0].at)
}
