package adminapi

import (
	"context"
	"net/http"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
	"github.com/crawlgate/crawlgate/signals/preferences"
)

// Sitemap is a sitemap that the robots.txt of an origin names. The gateway never fetches it.
type Sitemap struct {
	// URL is as the site wrote it, with unprintable characters escaped.
	URL string `json:"url"`
	// Line is its line in robots.txt, from 1.
	Line int `json:"line"`
	// InScope says that it is on the same origin, so the same robots.txt applies to it.
	InScope bool `json:"in_scope"`
	// Access is "allow", "deny" or "unknown" for the agent that was asked for. It is empty if none
	// was.
	Access string `json:"access,omitempty"`

	target origin.Target // zero for a URL that cannot be requested
}

// The values of [Sitemap.Access].
const (
	AccessAllow   = "allow"
	AccessDeny    = "deny"
	AccessUnknown = "unknown" // the robots.txt of its origin is unknown or expired
)

// sitemapsOf returns the sitemaps that a ruleset of o names, or nil.
func sitemapsOf(o origin.Origin, rules *robotstxt.Ruleset) (list []Sitemap) {
	for _, line := range rules.Sitemaps() {
		s := Sitemap{URL: escape.Unprintable(line.URL), Line: line.Line}
		if target, err := origin.ParseTarget(line.URL); err == nil {
			s.target, s.InScope = target, target.Origin == o
		}
		list = append(list, s)
	}
	return list
}

// judgeSitemaps fills in whether an agent may fetch each sitemap by robots.txt alone, without the
// agent's boundaries. It fetches nothing and uses only known rules.
func judgeSitemaps(ctx context.Context, e *engine.Engine, id enforce.Identity, list []Sitemap) {
	if id.Config != nil {
		free := *id.Config
		free.Boundaries = enforce.Boundaries{}
		id.Config = &free
	}
	judge := enforce.Enforcer{Rules: newKnownRules(e)}
	for i := range list {
		s := &list[i]
		if s.target.Origin.IsZero() {
			s.Access = AccessDeny
			continue
		}
		d := judge.Decide(ctx, enforce.Request{Method: http.MethodGet, Target: s.target, Identity: id})
		switch {
		case d.Reason == enforce.ReasonPending:
			s.Access = AccessUnknown
		case d.Allowed:
			s.Access = AccessAllow
		default:
			s.Access = AccessDeny
		}
	}
}

// maxKnown bounds the origins that one answer looks up in the store, because sitemaps can name a
// thousand.
const maxKnown = 16

// knownRules is an [enforce.Lookup] that never fetches, and has no TDM files. It serves one answer
// to one sender, and is not safe for concurrent use.
type knownRules struct {
	cache     *robotscache.Cache
	entries   map[origin.Origin]*robotscache.Entry
	needsFile bool // a decision depends on a TDM file
}

func newKnownRules(e *engine.Engine) *knownRules {
	return &knownRules{cache: e.Cache(), entries: make(map[origin.Origin]*robotscache.Entry)}
}

// TDMFile implements [enforce.TDMFiles].
func (k *knownRules) TDMFile(context.Context, origin.Origin) (none preferences.TDMRules, ok bool, fault string) {
	k.needsFile = true
	return none, false, ""
}

// Lookup implements enforce.Lookup. Rules that are unknown or expired are pending.
func (k *knownRules) Lookup(_ context.Context, o origin.Origin, a robotscache.Asker) (*robotscache.Entry, robotscache.Source, error) {
	entry, asked := k.entries[o]
	if !asked && len(k.entries) < maxKnown {
		entry, _ = k.cache.PeekAs(o, a)
		k.entries[o] = entry
	}
	if !entry.Fresh(time.Now()) {
		return nil, robotscache.SourceNone, robotscache.ErrPending
	}
	return entry, robotscache.SourceHot, nil
}
