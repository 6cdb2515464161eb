package robotscache

import (
	"errors"

	"github.com/crawlgate/crawlgate/fetch"
)

// Errors of [Cache.Lookup] and [Cache.Refresh], besides those of the context.
var (
	// ErrPending means that the origin's rules are not known yet and that the
	// request may wait no longer: a bound on waiters or on the queue was reached,
	// or the budget ran out. Unless it was refused at the door the retrieval goes
	// on. The request is to be refused as for an unreachable origin.
	ErrPending = errors.New("robots.txt is not fetched yet")
	// ErrClosed means that the cache is closed.
	ErrClosed = errors.New("robots.txt cache is closed")
)

// ForbiddenError is the answer of [Cache.Lookup] and [Cache.Refresh] for an origin
// to which the gateway itself may not connect. It says nothing about the origin, so
// nothing is kept, and the next request for it tries again.
type ForbiddenError struct {
	// Cause is that of fetch.Outcome.Refused: address, port or own listener.
	Cause fetch.Cause
	// Detail is what the guard says, for people.
	Detail string
}

// Error implements error.
func (e *ForbiddenError) Error() string { return string(e.Cause) + ": " + e.Detail }

// Errors of a [Store], to be found with errors.Is.
var (
	// ErrNotFound is the answer for an origin or a body that it does not hold.
	ErrNotFound = errors.New("not found")
	// ErrUnavailable means that its medium does not answer at the moment: it may
	// later, and to ask is cheap until then.
	ErrUnavailable = errors.New("store unavailable")
	// ErrCorrupt means that it holds something under the key, but not what was
	// saved. The origin is as good as unknown.
	ErrCorrupt = errors.New("stored data is damaged")
	// ErrInvalid means that a record contradicts itself, and so cannot be kept.
	ErrInvalid = errors.New("invalid record")
)
