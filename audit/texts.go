package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Texts finds a text by its hash, such as a [robotscache.Store]. The error is
// [robotscache.ErrNotFound] if the text is missing and [robotscache.ErrCorrupt] if it is damaged.
// Any other error means that it cannot be read now. The hash of the text may differ: an audit
// checks it.
type Texts interface {
	Body(ctx context.Context, sha [32]byte) ([]byte, error)
}

// text is a compiled text, or the reason why it is unavailable.
type text struct {
	// rules decide. If the end of the text may have been cut off, cut are the rules without the last
	// line.
	rules, cut *robotstxt.Ruleset
	// asks disallows the paths for which some rule may look at the query.
	asks    *robotstxt.Ruleset
	altered bool       // the store's text has another hash
	cause   Unprovable // why the text is unavailable; err explains CauseTextUnread
	err     error
}

// texts is a cache of compiled texts, bounded by their bytes.
type texts struct {
	cfg   Config
	ctx   context.Context // of the Run that makes the value
	used  int
	known map[[32]byte]*text
}

// shaOf parses a hash as lines write it.
func shaOf(text string) (sha fetch.Sum, ok bool) {
	return sha, sha.UnmarshalText([]byte(text)) == nil && sha.Hex() == text
}

// overhead is an estimate of the memory of a text besides its rules, in bytes.
const overhead = 1 << 10

func newTexts(ctx context.Context, cfg Config) *texts {
	return &texts{cfg: cfg, ctx: ctx, known: make(map[[32]byte]*text)}
}

// get returns a text, and loads and compiles it if the cache does not have it. If there is no room
// for it, get drops all others.
func (c *texts) get(sha [32]byte) *text {
	if t, ok := c.known[sha]; ok {
		return t
	}
	t := c.load(sha)
	size := t.rules.Size() + t.cut.Size() + t.asks.Size() + overhead
	if c.used += size; c.used > c.cfg.limits.room {
		clear(c.known)
		c.used = size
	}
	c.known[sha] = t
	return t
}

func (c *texts) load(sha [32]byte) *text {
	body, err := c.cfg.Texts.Body(c.ctx, sha)
	switch {
	case errors.Is(err, robotscache.ErrNotFound):
		return &text{cause: CauseTextMissing}
	case errors.Is(err, robotscache.ErrCorrupt) && !errors.Is(err, robotscache.ErrUnavailable):
		return &text{altered: true}
	case err != nil:
		return &text{cause: CauseTextUnread, err: fmt.Errorf("reading text %x: %w", sha, err)}
	case sha256.Sum256(body) != sha:
		return &text{altered: true}
	}
	t := &text{rules: robotstxt.Options{IndexHTML: c.cfg.IndexHTML}.Parse(body), asks: queryDependentRules(body, c.cfg.IndexHTML)}
	if len(body) == robotstxt.MaxSize && !isLineEnd(rune(body[len(body)-1])) {
		// Only the first bytes of a longer file are kept, but a whole file may have this size too.
		t.cut = robotstxt.Options{Truncated: true, IndexHTML: c.cfg.IndexHTML}.Parse(body)
	}
	return t
}

// queryDependentRules returns a ruleset that disallows each path for which the query may decide
// whether a rule of the text matches: the paths that begin like a rule does before its first ?, *
// or $. All other rules match independently of the query. With indexHTML, a rule for /x/index.html
// also stands for /x/$.
func queryDependentRules(body []byte, indexHTML bool) *robotstxt.Ruleset {
	probe := []byte("User-agent: *\n")
	for line := range bytes.FieldsFuncSeq(body[:min(len(body), robotstxt.MaxSize)], isLineEnd) {
		line, _, _ = bytes.Cut(line, []byte{'#'})
		// The key is ignored: many misspellings of it count as rules.
		start := bytes.IndexAny(line, "/*")
		special := bytes.IndexAny(line, "?*$")
		if index := bytes.Index(line, []byte("/index.htm")); indexHTML && index >= 0 && (special < 0 || index < special) {
			special = index + 1
		}
		if start < 0 || special < 0 || string(bytes.TrimSpace(line[start:])) == "*" { // it names an agent, or matches every path
			continue
		}
		probe = append(probe, "Disallow: "...)
		if special <= start {
			probe = append(probe, '/')
		} else {
			probe = append(probe, line[start:special]...)
		}
		probe = append(probe, '\n')
		if len(probe) > robotstxt.MaxSize {
			return robotstxt.Parse([]byte("User-agent: *\nDisallow: /\n"))
		}
	}
	return robotstxt.Parse(probe)
}

// QueryMatters returns a function that reports whether a rule of a text may look at the query of a
// path. Its first call reads the text.
func QueryMatters(text []byte, indexHTML bool) func(path string) bool {
	asks := sync.OnceValue(func() *robotstxt.Ruleset { return queryDependentRules(text, indexHTML) })
	return func(path string) bool { return dependsOnQuery(asks(), path) }
}

// dependsOnQuery is QueryMatters for the result of [queryDependentRules].
func dependsOnQuery(asks *robotstxt.Ruleset, path string) bool {
	disallowed := func(form string) bool { return !asks.Match(nil, form).Allowed }
	forms, ok := origin.Resolve(path)
	return !ok || disallowed(path) || slices.ContainsFunc(forms, disallowed)
}

func isLineEnd(r rune) bool { return r == '\n' || r == '\r' }
