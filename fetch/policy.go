package fetch

import (
	"net/http"
	"time"
)

// Mode says what an unreachable robots.txt permits. The zero value is ModeSpec.
type Mode uint8

const (
	// ModeSpec refuses everything for Policy.UnreachableFor, then uses the last
	// good copy if there is one, else permits everything (RFC 9309 section
	// 2.3.1.4, seed 000).
	ModeSpec Mode = iota
	// ModeStale uses the last good copy at once; without one it is ModeSpec.
	ModeStale
	// ModeGoogle refuses everything for 12 hours, then uses the last good copy;
	// without one, and after Policy.UnreachableFor, it is ModeSpec.
	ModeGoogle
	// ModeStrict refuses everything without end.
	ModeStrict
)

// String returns "spec", "stale", "google" or "strict".
func (m Mode) String() string { return nameOf(min(m, ModeStrict), "spec", "stale", "google", "strict") }

// Defaults of Policy. TTL defaults to maxTTL.
const (
	defaultUnreachableFor = 30 * 24 * time.Hour
	defaultMinTTL         = 5 * time.Minute
	defaultRetryMin       = time.Minute
	defaultRetryMax       = time.Hour
)

// Limits that no configuration moves.
const (
	// maxTTL is the longest use of a good answer (RFC 9309 section 2.4).
	maxTTL = 24 * time.Hour
	// maxRetryAfter is how far a Retry-After is honoured.
	maxRetryAfter = 24 * time.Hour
	// googleHold is how long ModeGoogle refuses before it uses the last good copy.
	googleHold = 12 * time.Hour
	// maxSkew is how far in the future a record's date may lie before a wrong clock
	// is held responsible. Gateways that share a store differ by less.
	maxSkew = 2 * time.Minute
	// localPause is the time between attempts while the fault is our own.
	localPause = 5 * time.Second
	// refreshAt is the share of the TTL, in percent, after which an early refresh is due.
	refreshAt = 80
)

// Policy is how records age. Its methods are pure: they read no clock and keep
// no state. Fields that are zero or negative take the value of [DefaultPolicy],
// so the zero Policy is the default one.
type Policy struct {
	// Mode says what an unreachable file permits; default ModeSpec.
	Mode Mode
	// UnreachableFor is how long ModeSpec refuses, from the first failure of the
	// unbroken run; default 30 days.
	UnreachableFor time.Duration
	// TTL is how long a good answer holds that does not say so itself, and the
	// longest that it can say; default and ceiling 24 h (RFC 9309 section 2.4).
	TTL time.Duration
	// MinTTL is the shortest that an answer can say; default 5 min, at most TTL.
	MinTTL time.Duration
	// RetryMin and RetryMax are the first and the longest pause between attempts
	// while unreachable; default 1 min and 1 h, at most a day.
	RetryMin, RetryMax time.Duration
	// ForbiddenDisallow makes 401 and 403 refuse everything. By default they
	// permit everything, as any 4xx (RFC 9309 section 2.3.1.3).
	ForbiddenDisallow bool
}

// DefaultPolicy returns the policy of the specification.
func DefaultPolicy() Policy {
	return Policy{
		Mode:           ModeSpec,
		UnreachableFor: defaultUnreachableFor,
		TTL:            maxTTL,
		MinTTL:         defaultMinTTL,
		RetryMin:       defaultRetryMin,
		RetryMax:       defaultRetryMax,
	}
}

// The accessors fill in defaults and put contradictory values in order.

func (p *Policy) unreachableFor() time.Duration {
	return orDefault(p.UnreachableFor, defaultUnreachableFor)
}

func (p *Policy) ttl() time.Duration { return min(orDefault(p.TTL, maxTTL), maxTTL) }

func (p *Policy) minTTL() time.Duration { return min(orDefault(p.MinTTL, defaultMinTTL), p.ttl()) }

func (p *Policy) retryMin() time.Duration {
	return min(orDefault(p.RetryMin, defaultRetryMin), maxRetryAfter)
}

func (p *Policy) retryMax() time.Duration {
	return min(max(orDefault(p.RetryMax, defaultRetryMax), p.retryMin()), maxRetryAfter)
}

func orDefault(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// Access is what a record permits. The zero value permits nothing.
type Access uint8

const (
	// AccessDeny refuses every path.
	AccessDeny Access = iota
	// AccessRules lets the rules of Record.Body decide.
	AccessRules
	// AccessLastGood lets the rules of the last good copy decide: see [Record.Text].
	AccessLastGood
	// AccessAllow permits every path.
	AccessAllow
)

// String returns "deny", "rules", "last_good" or "allow".
func (a Access) String() string { return nameOf(a, "deny", "rules", "last_good", "allow") }

// RobotsStatus is the HTTP status of the answer to a crawler's own GET /robots.txt, by which the
// crawler comes to what the gateway obeys: 200 goes with the text that decides, 404 permits
// everything, and 503 nothing (RFC 9309 sections 2.3.1.3 and 2.3.1.4).
func (a Access) RobotsStatus() int {
	switch a {
	case AccessRules, AccessLastGood:
		return http.StatusOK
	case AccessAllow:
		return http.StatusNotFound
	default:
		return http.StatusServiceUnavailable
	}
}
