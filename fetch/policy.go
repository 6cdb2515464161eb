package fetch

import (
	"cmp"
	"net/http"
	"time"
)

// UnreachableMode says what an unreachable robots.txt permits. The zero value is ModeSpec.
type UnreachableMode uint8

const (
	// ModeSpec refuses everything for Policy.UnreachableFor, then uses the last good copy if there is
	// one, and otherwise permits everything (RFC 9309 section 2.3.1.4).
	ModeSpec UnreachableMode = iota
	// ModeStale uses the last good copy at once. Without a copy it is the same as ModeSpec.
	ModeStale
	// ModeGoogle refuses everything for 12 hours, then uses the last good copy. Without a copy, and
	// after Policy.UnreachableFor, it is the same as ModeSpec.
	ModeGoogle
	// ModeStrict refuses everything, without a time limit.
	ModeStrict
)

// String returns "spec", "stale", "google" or "strict".
func (m UnreachableMode) String() string {
	return NameOf(min(m, ModeStrict), "spec", "stale", "google", "strict")
}

// Defaults of Policy. TTL defaults to maxTTL.
const (
	defaultUnreachableFor = 30 * 24 * time.Hour
	defaultMinTTL         = 5 * time.Minute
	defaultRetryMin       = time.Minute
	defaultRetryMax       = time.Hour
)

// Limits that cannot be configured.
const (
	// maxTTL is the longest use of a good answer (RFC 9309 section 2.4).
	maxTTL = 24 * time.Hour
	// maxRetryAfter is how far a Retry-After is honoured.
	maxRetryAfter = 24 * time.Hour
	// googleHold is how long ModeGoogle refuses before it uses the last good copy.
	googleHold = 12 * time.Hour
	// maxSkew is how far in the future a record's date may lie before it counts as the date of a wrong
	// clock. Gateways that share a store differ by less.
	maxSkew = 2 * time.Minute
	// localPause is the time between attempts while the fault is our own.
	localPause = 5 * time.Second
	// refreshAt is the share of the TTL, in percent, after which an early refresh is due.
	refreshAt = 80
)

// MaxUse is how long a record may be used after its latest attempt, under any policy: until a
// Retry-After has passed, and as long again while the retry is due. A good answer expires earlier.
const MaxUse = 2 * maxRetryAfter

// Policy is how records age. Its methods are pure: they read no clock and keep no state. Fields
// that are zero or negative take their defaults, so the zero Policy is the one of the
// specification.
type Policy struct {
	// Mode says what an unreachable file permits; default ModeSpec.
	Mode UnreachableMode
	// UnreachableFor is how long ModeSpec refuses, from the first failure of the unbroken run;
	// default 30 days.
	UnreachableFor time.Duration
	// TTL is how long a good answer is valid if it does not say, and the longest time that it can ask
	// for. Default and maximum: 24 h (RFC 9309 section 2.4).
	TTL time.Duration
	// MinTTL is the shortest time that an answer can ask for. Default: 5 min. Maximum: TTL.
	MinTTL time.Duration
	// RetryMin and RetryMax are the first and the longest pause between attempts while unreachable;
	// default 1 min and 1 h, at most a day.
	RetryMin, RetryMax time.Duration
	// ForbiddenDisallow makes 401 and 403 refuse everything. By default they permit everything, as
	// any 4xx (RFC 9309 section 2.3.1.3).
	ForbiddenDisallow bool
}

// Complete returns the policy with its defaults filled in, and contradictory values put in order.
func (p Policy) Complete() Policy {
	p.UnreachableFor = cmp.Or(max(p.UnreachableFor, 0), defaultUnreachableFor)
	p.TTL = min(cmp.Or(max(p.TTL, 0), maxTTL), maxTTL)
	p.MinTTL = min(cmp.Or(max(p.MinTTL, 0), defaultMinTTL), p.TTL)
	p.RetryMin = min(cmp.Or(max(p.RetryMin, 0), defaultRetryMin), maxRetryAfter)
	p.RetryMax = min(max(cmp.Or(max(p.RetryMax, 0), defaultRetryMax), p.RetryMin), maxRetryAfter)
	return p
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
func (a Access) String() string { return NameOf(a, "deny", "rules", "last_good", "allow") }

// RobotsStatus is the HTTP status of the answer to a crawler's own GET /robots.txt. It tells the
// crawler what the gateway enforces: 200 comes with the text that decides, 404 permits everything,
// and 503 permits nothing (RFC 9309 sections 2.3.1.3 and 2.3.1.4).
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

// epoch is before any run of failures. A record with an older one was written by a machine whose
// clock was not set. To count from that time would permit everything as soon as the clock is right.
var epoch = time.Date(2000, time.January, 1, 0, 0, 0, 0, time.UTC)

// Access returns what r permits at now.
//
//   - A good answer inside its TTL: its rules, or everything if the file is absent
//     (nothing for 401 and 403 with ForbiddenDisallow).
//   - A run of failures without such an answer: what Mode says.
//   - Everything else, such as a good answer past its TTL that nobody tried to renew:
//     nothing. Callers that answer requests ask [Policy.Fresh] first, with the same now.
func (p Policy) Access(r Record, now time.Time) Access {
	switch {
	case p.usable(&r, now):
		return p.goodAccess(&r)
	case r.Failing():
		return p.failingAccess(&r, now)
	default:
		return AccessDeny
	}
}

// statusThrottled is the 430 that Shopify's shops send for a while to crawlers that seem too fast
// or malicious. It is not in any standard; under RFC 9110 section 15 it would mean a 400.
const statusThrottled = 430

// IsThrottle reports whether a status says only that the sender asks too often.
func IsThrottle(status int) bool {
	return status == http.StatusTooManyRequests || status == statusThrottled
}

// TurnedAway reports whether an answer refuses the sender with 401, 403, 406 or 451, which
// firewalls send to names that they do not know. The site may give another crawler a different
// answer.
func TurnedAway(state State, status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotAcceptable, http.StatusUnavailableForLegalReasons:
		return state == StateAbsent
	}
	return false
}

func (p *Policy) goodAccess(r *Record) Access {
	if r.State == StateRules {
		if whole(r.Body, &r.SHA256) {
			return AccessRules
		}
		return AccessDeny
	}
	if p.ForbiddenDisallow && (r.Status == 401 || r.Status == 403) {
		return AccessDeny
	}
	return AccessAllow
}

// failingAccess returns the access while unreachable: the mode decides by the age of the run of
// failures and the presence of a copy (docs/status-table.md).
func (p *Policy) failingAccess(r *Record, now time.Time) Access {
	since := r.UnreachableSince
	if p.Mode >= ModeStrict || since.Before(epoch) {
		return AccessDeny
	}
	hasCopy := r.hasText()
	age := now.Sub(since)
	over := age >= p.Complete().UnreachableFor
	switch {
	case over && !hasCopy:
		return AccessAllow
	case over,
		hasCopy && p.Mode == ModeStale,
		hasCopy && p.Mode == ModeGoogle && age >= googleHold:
		return AccessLastGood
	default:
		return AccessDeny
	}
}

// Fresh reports whether r may be used at now without another attempt. A good answer is fresh until
// its TTL ends. A run of failures is fresh until its next attempt is due, and then as long again
// (at most RetryMax). In this second half, [Policy.RefreshDue] calls for an attempt that nobody has
// to wait for. After that, the last attempt is too old to refuse a request because of it.
func (p Policy) Fresh(r Record, now time.Time) bool {
	if p.usable(&r, now) {
		return true
	}
	if !r.Failing() {
		return false
	}
	due := r.retryAt(now)
	pause := min(max(due.Sub(r.LastFailure.At), 0), p.Complete().RetryMax)
	return now.Before(due.Add(pause))
}

// RefreshDue reports whether an attempt is worth making at now: for a good answer from 80 % of its
// TTL, after a failure from NextAttempt on.
func (p Policy) RefreshDue(r Record, now time.Time) bool {
	if r.Failing() {
		return !now.Before(r.retryAt(now))
	}
	if !p.usable(&r, now) {
		return true
	}
	return !now.Before(p.RefreshAt(r))
}

// RefreshAt returns the time from which [Policy.RefreshDue] calls for an attempt, unless the clock
// is set back.
func (p Policy) RefreshAt(r Record) time.Time {
	if r.Failing() {
		return r.NextAttempt
	}
	ttl := p.goodUntil(&r).Sub(r.FetchedAt)
	return r.FetchedAt.Add(ttl / 100 * refreshAt)
}

// Settle returns r as it stands at now. A good answer whose TTL has ended during a run of failures
// is unreachable at once, for the cause of the latest failure, with its text as the last good copy.
// All other records are returned unchanged. Access, Fresh, RefreshDue and Next call it themselves.
// Settle is for callers that show a record.
func (p Policy) Settle(r Record, now time.Time) Record {
	if r.State == StateUnreachable || !r.Failing() || p.usable(&r, now) {
		return r
	}
	return unreachable(r, r.LastFailure)
}

// unreachable makes a record of a run of failures out of its predecessor.
func unreachable(r Record, f Failure) Record {
	n := Record{
		Origin:           r.Origin,
		Agent:            r.Agent,
		State:            StateUnreachable,
		Cause:            f.Cause,
		Detail:           f.Detail,
		Status:           f.Status,
		Hops:             f.Hops,
		FetchedAt:        f.At,
		UnreachableSince: r.UnreachableSince,
		Attempts:         r.Attempts,
		NextAttempt:      r.NextAttempt,
		LastFailure:      f,
	}
	if r.hasText() {
		text, _ := r.Text()
		n.LastGood = &text
	}
	return n
}

// Failing reports whether the last attempt failed.
func (r *Record) Failing() bool { return !r.UnreachableSince.IsZero() }

// usable reports whether a good answer may be used at now. A date in the future is a wrong clock's:
// such an answer could outlive its TTL and is not used.
func (p *Policy) usable(r *Record, now time.Time) bool {
	if r.State != StateRules && r.State != StateAbsent {
		return false
	}
	return !now.Add(maxSkew).Before(r.FetchedAt) && now.Before(p.goodUntil(r))
}

// goodUntil is FreshUntil, limited to the current TTL counted from the answer's own date.
func (p *Policy) goodUntil(r *Record) time.Time {
	if limit := r.FetchedAt.Add(p.Complete().TTL); r.FreshUntil.After(limit) {
		return limit
	}
	return r.FreshUntil
}

// retryAt is NextAttempt, but now if the run's latest failure lies in the future (the clock was set
// back: the pause could have no end), and never more than a day away.
func (r *Record) retryAt(now time.Time) time.Time {
	if r.LastFailure.At.After(now.Add(maxSkew)) || r.NextAttempt.After(now.Add(maxSkew+maxRetryAfter)) {
		return now
	}
	return r.NextAttempt
}
