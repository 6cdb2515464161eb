package pace

import "time"

// Observer is told what the Pacer does. Its methods are called on the request's
// path, never under a lock of the Pacer: they must be quick, safe for concurrent
// use, and must not label anything by key or agent.
type Observer interface {
	// Granted is called for each slot, with the time the request was held.
	Granted(wait time.Duration)
	// Refused is called for each refusal.
	Refused(reason Reason)
	// Blocked is called for each block that was set or prolonged: by the site's
	// own Retry-After (explicit) or by our doubling pause.
	Blocked(explicit bool)
}

// NopObserver observes nothing.
type NopObserver struct{}

// Granted implements Observer.
func (NopObserver) Granted(time.Duration) {}

// Refused implements Observer.
func (NopObserver) Refused(Reason) {}

// Blocked implements Observer.
func (NopObserver) Blocked(bool) {}

var _ Observer = NopObserver{}
