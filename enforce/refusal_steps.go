package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/robotscache"
)

// retryLeast keeps a client from retrying within the same second.
const retryLeast = time.Second

// Refuse returns d, refused for the reason of a later step: politeness, the address guard, or a
// failing origin. It refuses in every mode, like those steps. It keeps the facts of the earlier
// decision as evidence.
//
// A reason that does not refuse counts as [ReasonInternal].
func (d Decision) Refuse(r Reason, detail string, retryAfter time.Duration) Decision {
	if r.Allows() || !r.Valid() {
		r = ReasonInternal
	}
	d.Allowed, d.Reason, d.Detail, d.RetryAfter = false, r, detail, cmp.Or(max(retryAfter, 0), r.RetryAfter())
	d.WouldDeny = false
	return d
}

// RefuseExcess refuses an agent that already has as many requests or tunnels open as it may have.
// detail says how many.
func (e *Enforcer) RefuseExcess(id Identity, o origin.Origin, detail string) Decision {
	return e.begin(id, o).Refuse(ReasonAgentLimit, detail, 0)
}

// noAccess refuses because the state of the robots.txt permits nothing.
func (d *Decision) noAccess(v robotscache.View, now time.Time) {
	if v.State == fetch.StateAbsent && now.Before(v.FreshUntil) {
		d.deny(ReasonRobotsForbidden, v.Why()) // fetch.Policy.ForbiddenDisallow
		d.RetryAfter = max(v.FreshUntil.Sub(now), retryLeast)
		return
	}
	d.deny(ReasonUnreachable, v.Why())
	switch wait := v.NextAttempt.Sub(now); {
	case v.NextAttempt.IsZero(): // no next attempt is known
	case wait <= 0:
		d.RetryAfter = ReasonPending.RetryAfter() // the next attempt is in progress
	default:
		d.RetryAfter = max(wait, retryLeast)
	}
}

// LookupFailure returns the reason to refuse a request because of an error of [Enforcer.Lookup],
// and a detail. ctx is the request's.
func LookupFailure(ctx context.Context, err error) (reason Reason, detail string) {
	forbidden, isForbidden := errors.AsType[*robotscache.ForbiddenError](err)
	switch {
	case isForbidden:
		return Reason(forbidden.Cause), forbidden.Detail // both sets use the same spelling
	case errors.Is(err, robotscache.ErrPending):
		return ReasonPending, ""
	case ctx.Err() != nil:
		return ReasonCanceled, "the client left while the gateway waited for robots.txt"
	default:
		return ReasonInternal, fmt.Sprintf("looking up the rules: %v", err)
	}
}

// brief is a duration without the units that are zero at its end: 1h, not 1h0m0s.
func brief(d time.Duration) string {
	return strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(d.String())
}

// RefuseSlot returns d, refused because the request gets no slot. err is the error of
// [Politeness.Request], [pace.Pacer.Acquire], [pace.Slot.Confirm] or [Enforcer.Beyond]. ctx is the
// context of the request.
func (d Decision) RefuseSlot(ctx context.Context, err error) Decision {
	if refused, ok := errors.AsType[*pace.Refused](err); ok {
		wait := time.Duration(RetrySeconds(max(refused.RetryAfter, time.Second))) * time.Second
		return d.Refuse(slotReasons[refused.Reason], fmt.Sprintf("a retry may succeed in %s", wait), wait)
	}
	if spent, ok := errors.AsType[*budget.SpentError](err); ok {
		return d.Refuse(ReasonBudget, spent.Error(), max(spent.Wait, time.Second))
	}
	if r, ok := errors.AsType[*refusal](err); ok {
		return d.Refuse(r.reason, r.detail, r.wait)
	}
	if ctx.Err() != nil {
		return d.Refuse(ReasonCanceled, "the client left while its request was held", 0)
	}
	return d.Refuse(ReasonInternal, err.Error(), 0)
}

var slotReasons = map[pace.Reason]Reason{
	pace.ReasonWait:        ReasonRateLimited,
	pace.ReasonBlocked:     ReasonBackoff,
	pace.ReasonConcurrency: ReasonConcurrency,
	pace.ReasonQueueFull:   ReasonQueueFull,
	pace.ReasonWaitersFull: ReasonOverloaded,
	pace.ReasonOverflow:    ReasonOverloaded,
}
