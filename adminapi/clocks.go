package adminapi

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/cluster"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace"
)

// clockFilters are the values of the parameter state.
var clockFilters = map[string]func(pace.Status) bool{
	"":        nil, // all
	"blocked": func(c pace.Status) bool { return c.Until.After(time.Now()) },
	"waiting": func(c pace.Status) bool { return c.Waiting > 0 },
	"busy":    func(c pace.Status) bool { return c.InFlight > 0 },
}

// ListClocks returns the clocks in the order of their keys, or one of them.
func ListClocks(_ context.Context, e *engine.Engine, request ClocksRequest) (Clocks, error) {
	limit := cmp.Or(request.Limit, DefaultPage)
	filter, known := clockFilters[request.State]
	if !known {
		return Clocks{}, badRequest("state %.20q: want blocked, waiting or busy", request.State)
	}
	stats := e.Pacer().Stats()
	info := Clocks{Keys: stats.Keys, Waiting: stats.Waiting, Blocked: stats.Blocked, Clocks: []Clock{}}
	var page []pace.Status
	if request.Key == nil {
		page = e.Pacer().Statuses(request.After, limit+1, func(c pace.Status) bool {
			return (filter == nil || filter(c)) && strings.Contains(c.Key, request.Contains)
		}, rateOf(e))
	} else {
		for _, key := range clockKeys(e, *request.Key) {
			if c, ok := e.Pacer().Status(key, rateOf(e)); ok {
				page = append(page, c)
				break
			}
		}
	}
	if len(page) > limit {
		page = page[:limit]
		info.Next = page[limit-1].Key
	}
	now := time.Now()
	for _, c := range page {
		info.Clocks = append(info.Clocks, describeClock(c, now))
	}
	return info, nil
}

// rateOf returns the operator's rate for a clock's next request.
func rateOf(e *engine.Engine) pace.Limit {
	return pace.Limit{Interval: e.Config.Politeness.Interval, Burst: e.Config.Politeness.Burst}
}

func describeClock(c pace.Status, now time.Time) Clock {
	wait, blocked := max(c.Next.Sub(now), 0), max(c.Until.Sub(now), 0)
	return Clock{
		Key: c.Key, NextRequest: now.Add(wait).UTC(), WaitSeconds: wait.Seconds(),
		DelaySeconds: c.Gap.Seconds(), InFlight: c.InFlight, Queue: c.Waiting, Strikes: c.Strikes,
		BlockedUntil: c.Until.UTC(), LeftSeconds: int64((blocked + time.Second - 1) / time.Second),
	}
}

// UnblockHost ends the block of a host at all its clocks, at all gateways.
func UnblockHost(ctx context.Context, e *engine.Engine, request UnblockRequest) (Unblocked, error) {
	answer := Unblocked{Ended: []EndedBlock{}}
	for _, key := range clockKeys(e, request.Key) {
		b, isBlocked, err := e.Unblock(key)
		if err != nil {
			return answer, fmt.Errorf("the block is ended here, but not everywhere or not for good: %w", err)
		}
		report := e.Fleet().Tell(ctx, cluster.Unblock, key, found(isBlocked))
		_, _, ended := report.Counts()
		if isBlocked || ended > 0 {
			answer.Ended = append(answer.Ended, EndedBlock{key, b.Until.UTC(), b.Strikes})
			answer.Acknowledgements = report
		}
	}
	if len(answer.Ended) == 0 {
		return answer, fault(http.StatusNotFound, "%.200q is not blocked; clocks --state blocked lists the hosts that are", request.Key)
	}
	return answer, nil
}

// clockKeys returns the keys of the clocks that a name may stand for: the name itself, and the keys
// by which the operator paces a host. The host may stand in a URL.
func clockKeys(e *engine.Engine, name string) []string {
	keys := []string{name}
	o, err := origin.Parse(name)
	if err != nil {
		o, err = origin.FromAuthority("http", name)
	}
	if err != nil {
		return keys
	}
	for _, key := range keysOf(e, o) {
		if !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// keysOf are the keys of the clocks by which the operator paces an origin. It resolves no address,
// so it does not find clocks by address.
func keysOf(e *engine.Engine, o origin.Origin) (keys []string) {
	for _, scope := range e.Config.Politeness.Per {
		keys = append(keys, scope.Key(o.Host, netip.Addr{}))
	}
	return keys
}

// blockedUntil returns the end of the longest block of an origin's clocks, or the zero time.
func blockedUntil(e *engine.Engine, o origin.Origin) (until time.Time) {
	now := time.Now()
	for _, key := range keysOf(e, o) {
		c, ok := e.Pacer().Status(key, rateOf(e))
		if ok && c.Until.After(now) && c.Until.After(until) {
			until = c.Until.UTC()
		}
	}
	return until
}
