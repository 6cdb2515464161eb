package engine

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/preferences"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// tdmPath is where the TDM file of an origin is (TDMRep, "TDM File on the Origin Server").
const tdmPath = "/.well-known/tdmrep.json"

// The memory of TDM files: most origins have none, which takes 1 KiB each.
const (
	tdmHotSize   = 32 << 20
	tdmStoreSize = 64 << 20
)

// openFiles makes the cache of the TDM files, once. They are kept and fetched as robots.txt is, but
// in memory only.
func (r *records) openFiles(e *Engine) error {
	if r.files.Load() != nil {
		return nil
	}
	config := tdmConfig(e.Config.Cache)
	config.Store = memstore.New(memstore.Config{MaxSize: tdmStoreSize})
	config.Fetcher, config.Observer = &tdmFetcher{r}, &tdmObserver{robotscache.NopObserver(), e.logger.Named("cache")}
	cache, err := robotscache.New(config)
	if err != nil {
		return fmt.Errorf("making the cache of TDM files: %w", err)
	}
	if !r.files.CompareAndSwap(nil, cache) {
		return cache.Close()
	}
	return nil
}

// tdmConfig is the part of the cache's configuration that follows that of robots.txt. Fewer fetches
// may hold a descriptor: a site that does not answer was found out by its robots.txt.
func tdmConfig(c robotscache.Config) robotscache.Config {
	c.MaxSize, c.InFlight = tdmHotSize, c.InFlight/4
	return c
}

// TDMFile returns the rules of an origin's TDM file, and whether there is one. It may wait for a
// fetch, as [Engine.Lookup] does.
func (e *Engine) TDMFile(ctx context.Context, o origin.Origin) (rules preferences.TDMRules, ok bool) {
	files := e.records.files.Load()
	if files == nil || o.Scheme == "ftp" {
		return rules, false
	}
	entry, _, err := files.Lookup(ctx, o)
	if err != nil {
		return rules, false
	}
	rules, ok = entry.Derive(time.Now(), func(text []byte) any {
		rules, _ := preferences.ParseTDMFile(text) // the fetcher has read it
		return rules
	}).(preferences.TDMRules)
	return rules, ok
}

// Purge forgets what is known of an origin, its TDM file included.
func (e *Engine) Purge(ctx context.Context, o origin.Origin) error {
	e.forgetFile(ctx, o)
	return e.records.cache.Purge(ctx, o)
}

func (e *Engine) forgetFile(ctx context.Context, o origin.Origin) {
	if files := e.records.files.Load(); files != nil {
		_ = files.Purge(ctx, o) // it fails only where the cache has ended
	}
}

// tdmFetcher fetches TDM files by the current configuration.
type tdmFetcher struct{ *records }

// Fetch implements robotscache.Fetcher. The file is a page like others, so the robots.txt must
// allow it to the product token by which the gateway asks. One that may not be had, or cannot be
// read, is absent.
func (f *tdmFetcher) Fetch(ctx context.Context, k fetch.Key, gate fetch.Gate) fetch.Outcome {
	e := f.fetcher.Load()
	absent := fetch.Outcome{Kind: fetch.KindAbsent, NoCache: true, Started: time.Now()}
	entry, _, err := f.cache.Lookup(ctx, k.Origin)
	if err != nil || !mayFetch(entry.View(time.Now()), e.Config.Fetch.UserAgent) {
		return absent
	}
	out := e.fetch(ctx, e.files, k, gate)
	if out.Kind != fetch.KindRules {
		return out
	}
	if _, err := preferences.ParseTDMFile(out.Body); err != nil {
		out.Kind, out.Body, out.Truncated = fetch.KindAbsent, nil, false
	}
	return out
}

func mayFetch(v robotscache.View, userAgent string) bool {
	if v.Access != fetch.AccessRules && v.Access != fetch.AccessLastGood {
		return v.Access == fetch.AccessAllow
	}
	agent := robotstxt.Family(robotstxt.ProductToken(userAgent))
	return v.Rules.Select(agent).Match(tdmPath).Allowed
}

// tdmObserver logs defects; the metrics are those of robots.txt.
type tdmObserver struct {
	robotscache.Observer
	logger *zap.Logger
}

// Panicked implements robotscache.Observer.
func (o *tdmObserver) Panicked(k fetch.Key, value any, stack []byte) {
	o.logger.Error("reading a TDM file panicked; it says nothing",
		zap.Stringer("origin", k.Origin), zap.Any("panic", value), zap.ByteString("stack", stack))
}
