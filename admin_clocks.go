package crawlgate

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/enforce/pace"
)

// clocksInfo is how the clocks of the hosts stand.
type clocksInfo struct {
	// Keys is the number of clocks kept, Waiting that of requests held for their turn, Blocked that of clocks whose site
	// asked to be left alone.
	Keys    int `json:"keys"`
	Waiting int `json:"waiting"`
	Blocked int `json:"blocked"`
	// Blocks are a page of those, and of the ones that are not forgiven yet, in the order of their keys.
	Blocks []blockInfo `json:"blocks"`
	// Next is the parameter after of the next page, empty if there is none.
	Next string `json:"next,omitempty"`
}

// blockInfo is the block of one clock: a host's, or that of a "site:" or "addr:" where the operator paces by these.
type blockInfo struct {
	Key   string    `json:"key"`
	Until time.Time `json:"until"`
	// LeftSeconds is how long that is, 0 for a block that is over.
	LeftSeconds int64 `json:"left_s"`
	// Strikes is how often in a row the site blocked without saying for how long.
	Strikes int `json:"strikes"`
}

// adminClocks shows the clocks.
func adminClocks(a *App, r *http.Request) (any, error) {
	query, err := readQuery(r, "after", "limit", "key")
	if err != nil {
		return nil, err
	}
	limit, err := pageSize(query)
	if err != nil {
		return nil, err
	}
	pacer := a.clocks.pacer
	stats := pacer.Stats()
	info := clocksInfo{Keys: stats.Keys, Waiting: stats.Waiting, Blocked: stats.Blocked, Blocks: []blockInfo{}}
	blocks := pacer.Blocks(blocksKept)
	slices.SortFunc(blocks, func(x, y pace.Block) int { return strings.Compare(x.Key, y.Key) })
	now := time.Now()
	for _, b := range blocks {
		if b.Key <= query.Get("after") || query.Has("key") && b.Key != query.Get("key") {
			continue
		}
		if len(info.Blocks) == limit {
			info.Next = info.Blocks[limit-1].Key
			break
		}
		left := max(b.Until.Sub(now), 0)
		info.Blocks = append(info.Blocks, blockInfo{b.Key, b.Until.UTC(), int64((left + time.Second - 1) / time.Second), b.Strikes})
	}
	return info, nil
}
