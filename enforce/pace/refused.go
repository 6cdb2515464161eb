package pace

import (
	"fmt"
	"time"
)

// Reason says why a request was refused. The set is closed.
type Reason string

const (
	// ReasonWait means that the slot lies further ahead than the request may be held.
	ReasonWait Reason = "wait"
	// ReasonBlocked means that the site asked, by 429 or 503, not to be visited yet.
	ReasonBlocked Reason = "blocked"
	// ReasonConcurrency means that all places for requests in flight stayed taken.
	ReasonConcurrency Reason = "concurrency"
	// ReasonQueueFull means that as many requests as allowed wait for the key already, and
	// this agent has at least its share of them.
	ReasonQueueFull Reason = "queue_full"
	// ReasonWaitersFull means that as many requests as allowed wait in the whole Pacer.
	ReasonWaitersFull Reason = "waiters_full"
	// ReasonOverflow means that there are more keys than the Pacer may keep, and the clock
	// which this one shares with others is too busy.
	ReasonOverflow Reason = "overflow"
)

// Refused is the error of a request that got no slot. It used none.
//
//nolint:errname // it reads as what it says, pace.Refused; the package has no other error type
type Refused struct {
	// Key is the clock that refused.
	Key    string
	Reason Reason
	// RetryAfter is when a slot would be free for the request, from now: exact
	// as far as the clocks know, that is, if those who wait now go as planned.
	// Where only a place in flight is missing nobody can know; it is then a
	// second at least.
	RetryAfter time.Duration
}

// Error implements error.
func (r *Refused) Error() string {
	return fmt.Sprintf("pacing %s: refused (%s), retry after %s", r.Key, r.Reason, r.RetryAfter)
}

// Seconds is RetryAfter for the Retry-After field: whole seconds, rounded up,
// at least one.
func (r *Refused) Seconds() int64 {
	return max(1, int64((r.RetryAfter+time.Second-1)/time.Second))
}
