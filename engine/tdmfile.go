package engine

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// tdmPath is where the TDM file of an origin is (TDMRep, "TDM File on the Origin Server").
const tdmPath = "/.well-known/tdmrep.json"

// The memory of TDM files: most origins have none, which takes 1 KiB each.
const (
	tdmHotSize   = 32 << 20
	tdmStoreSize = 64 << 20
)

// openFiles makes the cache of the TDM files, once. They are fetched and kept like robots.txt, but
// only in memory.
func (r *records) openFiles(e *Engine) error {
	if r.files.Load() != nil {
		return nil
	}
	config := tdmConfig(e.Config.Cache)
	config.Store = memstore.New(tdmStoreSize)
	config.Fetcher, config.Observer = &tdmFetcher{r}, &tdmObserver{logger: e.logger.Named("cache")}
	cache, err := robotscache.New(config)
	if err != nil {
		return fmt.Errorf("making the cache of TDM files: %w", err)
	}
	if !r.files.CompareAndSwap(nil, cache) {
		return cache.Close()
	}
	return nil
}

// tdmConfig is the part of the cache's configuration that follows the one of robots.txt. Fewer
// fetches may hold a descriptor, because the fetch of robots.txt has already revealed a site that
// does not answer.
func tdmConfig(c robotscache.Config) robotscache.Config {
	c.MaxSize, c.InFlight = tdmHotSize, c.InFlight/4
	return c
}

// TDMFile returns the rules of an origin's TDM file, and whether it was read. unread says why its
// content is unknown; it is empty if there is no file. It may wait for a fetch, like
// [Engine.Lookup].
func (e *Engine) TDMFile(ctx context.Context, o origin.Origin) (rules preferences.TDMRules, ok bool, unread string) {
	files := e.records.files.Load()
	if files == nil || o.Scheme == "ftp" {
		return rules, false, ""
	}
	entry, _, err := files.Lookup(ctx, o, robotscache.Asker{})
	if err != nil {
		return rules, false, "not fetched in time"
	}
	return readTDMFile(entry)
}

// readTDMFile is TDMFile for an entry in memory.
func readTDMFile(entry *robotscache.Entry) (rules preferences.TDMRules, ok bool, unread string) {
	now := time.Now()
	rules, ok = entry.Derive(now, func(text []byte) any {
		rules, _ := preferences.ParseTDMFile(text) // the fetcher has already dropped texts with errors
		return rules
	}).(preferences.TDMRules)
	view := entry.View(now)
	if !ok && (view.State != fetch.StateAbsent || view.Cause != fetch.CauseStatus) {
		unread = cmp.Or(string(view.Cause), view.Detail, "not fetched")
	}
	return rules, ok, unread
}

// TDMFileState says whether an origin's TDM file was read: "read", "none", or "unread" with the
// reason. It is empty if there was no fetch.
func (e *Engine) TDMFileState(o origin.Origin) string {
	files := e.records.files.Load()
	if files == nil {
		return ""
	}
	entry, known := files.Peek(o, "")
	if !known {
		return ""
	}
	switch _, ok, unread := readTDMFile(entry); {
	case ok:
		return "read"
	case unread == "":
		return "none"
	default:
		return "unread: " + unread
	}
}

// Purge forgets the record of an origin and its TDM file.
func (e *Engine) Purge(ctx context.Context, o origin.Origin) error {
	e.forgetFile(ctx, o)
	return e.records.cache.Purge(ctx, o)
}

// forgetFile is the first step of a purge. It notes the purge in the access logs.
func (e *Engine) forgetFile(ctx context.Context, o origin.Origin) {
	e.tell(robotscache.AnswerOf(robotscache.EventPurged, fetch.Key{Origin: o}, nil, time.Now()), nil)
	if files := e.records.files.Load(); files != nil {
		_ = files.Purge(ctx, o) // it fails only if the cache has ended
	}
}

// tdmFetcher fetches TDM files by the current configuration.
type tdmFetcher struct{ *records }

// Fetch implements robotscache.Fetcher. The file is a page like any other, so the robots.txt must
// allow it for the gateway's product token. A forbidden or unreadable file counts as absent; the
// detail says so.
func (f *tdmFetcher) Fetch(ctx context.Context, k fetch.Key, gate fetch.Gate) fetch.Outcome {
	e := f.fetcher.Load()
	absent := fetch.Outcome{Kind: fetch.KindAbsent, NoCache: true, Started: time.Now(), Detail: "robots.txt does not allow it"}
	entry, _, err := f.cache.Lookup(ctx, k.Origin, robotscache.Asker{})
	if err != nil || !mayFetch(entry.View(time.Now()), e.Config.Fetch.UserAgent) {
		return absent
	}
	out := e.fetch(ctx, e.files, k, gate)
	if out.Kind != fetch.KindRules {
		return out
	}
	err = preferences.ErrTDMTooLarge
	if !out.Truncated { // its whole lines may be shorter
		_, err = preferences.ParseTDMFile(out.Body)
	}
	if err != nil {
		out.Kind, out.Detail = fetch.KindAbsent, escape.ASCII(err.Error(), fetch.MaxDetail)
		out.Body, out.Truncated = nil, false
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
	robotscache.NopObserver
	logger *zap.Logger
}

// Panicked implements robotscache.Observer.
func (o *tdmObserver) Panicked(k fetch.Key, value any, stack []byte) {
	o.logger.Error("reading a TDM file panicked; it says nothing",
		zap.Stringer("origin", k.Origin), zap.Any("panic", value), zap.ByteString("stack", stack))
}
