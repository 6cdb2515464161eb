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
