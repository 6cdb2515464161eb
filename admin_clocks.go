package crawlgate

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce/pace"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
)

// clockFilters are the values of the parameter state.
var clockFilters = map[string]pace.Filter{
	"": pace.AllClocks, "blocked": pace.BlockedClocks, "waiting": pace.WaitingClocks, "busy": pace.BusyClocks,
}

// adminClocks shows the clocks.
func adminClocks(e *engine.Engine, r *http.Request) (any, error) {
	query, err := readQuery(r, "after", "limit", "state", "key")
	if err != nil {
		return nil, err
	}
	limit, err := pageSize(query)
	if err != nil {
		return nil, err
	}
	filter, known := clockFilters[query.Get("state")]
	if !known {
		return nil, adminError(http.StatusBadRequest, "state %.20q: want blocked, waiting or busy", query.Get("state"))
	}
	pacer := e.Pacer()
	rate := pace.Limit{Interval: e.Config.Politeness.Rate.Interval(), Burst: e.Config.Politeness.Burst}
	stats := pacer.Stats()
	info := adminapi.Clocks{Keys: stats.Keys, Waiting: stats.Waiting, Blocked: stats.Blocked, Clocks: []adminapi.Clock{}}
	now := time.Now()
	if query.Has("key") {
		if c, ok := pacer.Status(query.Get("key"), rate); ok {
			info.Clocks = append(info.Clocks, describeClock(c, now))
		}
		return info, nil
	}
	page := pacer.Statuses(query.Get("after"), limit+1, filter, rate)
	if len(page) > limit {
		page = page[:limit]
		info.Next = page[limit-1].Key
	}
	for _, c := range page {
		info.Clocks = append(info.Clocks, describeClock(c, now))
	}
	return info, nil
}

func describeClock(c pace.Status, now time.Time) adminapi.Clock {
	info := adminapi.Clock{
		Key: c.Key, NextRequest: c.Next.UTC(), WaitSeconds: max(c.Next.Sub(now), 0).Seconds(), DelaySeconds: c.Delay.Seconds(),
		InFlight: c.InFlight, Queue: c.Waiting, Strikes: c.Strikes,
	}
	if info.WaitSeconds == 0 {
		info.NextRequest = now.UTC()
	}
	if !c.BlockedUntil.IsZero() {
		until := c.BlockedUntil.UTC()
		info.BlockedUntil = &until
		info.LeftSeconds = int64((max(until.Sub(now), 0) + time.Second - 1) / time.Second)
	}
	return info
}

// adminUnblock ends the back-off of a host, by all clocks that stand for it.
func adminUnblock(e *engine.Engine, r *http.Request) (any, error) {
	var request adminapi.UnblockRequest
	if err := readJSON(r, &request); err != nil {
		return nil, err
	}
	answer := adminapi.Unblocked{Ended: []adminapi.EndedBlock{}}
	for _, key := range clockKeys(e, request.Key) {
		b, found, err := e.Unblock(key)
		if err != nil {
			return nil, fmt.Errorf("the block is ended here, but the other gateways cannot be told: %w", err)
		}
		if found {
			answer.Ended = append(answer.Ended, adminapi.EndedBlock{Key: key, BlockedUntil: b.Until.UTC(), Strikes: b.Strikes})
		}
	}
	if len(answer.Ended) == 0 {
		return nil, adminError(http.StatusNotFound, "%.200q is not blocked", request.Key)
	}
	return answer, nil
}

// clockKeys are the keys of the clocks that a name may stand for: its own, and those of a host as
// the operator paces by them. The host may stand in a URL.
func clockKeys(e *engine.Engine, name string) []string {
	keys := []string{name}
	o, err := origin.Parse(name)
	if err != nil {
		o, err = origin.FromAuthority("http", name)
	}
	if err != nil {
		return keys
	}
	for _, scope := range e.Config.Politeness.Per {
		if key := scope.Key(o.Host, netip.Addr{}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
