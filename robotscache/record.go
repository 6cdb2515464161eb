package robotscache

import "github.com/crawlgate/crawlgate/fetch"

// WithoutText returns r without its body, hashes left in place: what
// [Store.List] returns.
func WithoutText(r fetch.Record) fetch.Record {
	r.Body = nil
	if r.LastGood != nil {
		last := *r.LastGood
		last.Body = nil
		r.LastGood = &last
	}
	return r
}
