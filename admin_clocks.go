package crawlgate

import (
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/enforce/pace"
	"github.com/crawlgate/crawlgate/origin"
)

// clocksInfo is how the clocks of the hosts stand.
type clocksInfo struct {
	// Keys is the number of clocks kept, Waiting that of requests held for their turn, Blocked that of clocks whose site
	// asked to be left alone.
	Keys    int `json:"keys"`
	Waiting int `json:"waiting"`
	Blocked int `json:"blocked"`
	// Clocks are a page of them, in the order of their keys.
	Clocks []clockInfo `json:"clocks"`
	// Next is the parameter after of the next page, empty if there is none.
	Next string `json:"next,omitempty"`
}

// clockInfo is one clock: a host's, or that of a "site:", an "addr:" or an "agent:" where the operator paces by these.
type clockInfo struct {
	Key string `json:"key"`
	// NextRequest is when the next request may go, WaitSeconds how long that is: 0 where one may go now.
	NextRequest time.Time `json:"next_request"`
	WaitSeconds float64   `json:"wait_s"`
	// DelaySeconds is the gap that the last request asked for: the Crawl-delay.
	DelaySeconds float64 `json:"delay_s,omitempty"`
	InFlight     int     `json:"in_flight"`
	Queue        int     `json:"queue"`
	// BlockedUntil is the end of the block, LeftSeconds how long that is: 0 for one that is over and not forgiven.
	BlockedUntil *time.Time `json:"blocked_until,omitempty"`
	LeftSeconds  int64      `json:"left_s,omitempty"`
	// Strikes is how often in a row the site blocked without saying for how long.
	Strikes int `json:"strikes,omitempty"`
}

// clockFilters are the values of the parameter state.
var clockFilters = map[string]pace.Filter{
	"": pace.AllClocks, "blocked": pace.BlockedClocks, "waiting": pace.WaitingClocks, "busy": pace.BusyClocks,
}

// adminClocks shows the clocks.
func adminClocks(a *App, r *http.Request) (any, error) {
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
	pacer := a.clocks.pacer
	rate := pace.Limit{Interval: a.cfg.pace.Rate.Interval(), Burst: a.cfg.pace.Burst}
	stats := pacer.Stats()
	info := clocksInfo{Keys: stats.Keys, Waiting: stats.Waiting, Blocked: stats.Blocked, Clocks: []clockInfo{}}
	now := time.Now()
	if query.Has("key") {
		if c, ok := pacer.Clock(query.Get("key"), rate); ok {
			info.Clocks = append(info.Clocks, describeClock(c, now))
		}
		return info, nil
	}
	page := pacer.Clocks(query.Get("after"), limit+1, filter, rate)
	if len(page) > limit {
		page = page[:limit]
		info.Next = page[limit-1].Key
	}
	for _, c := range page {
		info.Clocks = append(info.Clocks, describeClock(c, now))
	}
	return info, nil
}

func describeClock(c pace.Clock, now time.Time) clockInfo {
	info := clockInfo{
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

// unblockRequest is the body of unblock.
type unblockRequest struct {
	// Key is a host, or the key of a clock as they are listed.
	Key string `json:"key"`
}

// unblocked is the answer to it: the blocks that were ended.
type unblocked struct {
	Ended []endedBlock `json:"ended"`
}

// endedBlock is one of them. Of a block that only other gateways knew no more is told than its key.
type endedBlock struct {
	Key          string    `json:"key"`
	BlockedUntil time.Time `json:"blocked_until,omitzero"`
	Strikes      int       `json:"strikes,omitempty"`
}

// adminUnblock ends the back-off of a host, by all clocks that stand for it.
func adminUnblock(a *App, r *http.Request) (any, error) {
	var request unblockRequest
	if err := readJSON(r, &request); err != nil {
		return nil, err
	}
	answer := unblocked{Ended: []endedBlock{}}
	for _, key := range a.clockKeys(request.Key) {
		b, found, err := a.clocks.pacer.Unblock(key)
		if err != nil {
			return nil, fmt.Errorf("the block is ended here, but the other gateways cannot be told: %w", err)
		}
		if found {
			note(a.clocks.changed)
			a.logger.Info("back-off lifted by the operator",
				zap.String("clock", key), zap.Time("blocked_until", b.Until), zap.Int("strikes", b.Strikes))
			answer.Ended = append(answer.Ended, endedBlock{key, b.Until.UTC(), b.Strikes})
		}
	}
	if len(answer.Ended) == 0 {
		return nil, adminError(http.StatusNotFound, "%.200q is not blocked", request.Key)
	}
	return answer, nil
}

// clockKeys are the keys of the clocks that a name may stand for: its own, and those of a host as
// the operator paces by them. The host may stand in a URL.
func (a *App) clockKeys(name string) []string {
	keys := []string{name}
	o, err := origin.Parse(name)
	if err != nil {
		o, err = origin.FromAuthority("http", name)
	}
	if err != nil {
		return keys
	}
	for _, scope := range a.cfg.pace.Per {
		if key := scope.Key(o.Host, netip.Addr{}); !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
	return keys
}
