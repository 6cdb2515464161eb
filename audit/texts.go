package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Texts finds the text with a hash, such as a [robotscache.Store]. The error is
// [robotscache.ErrNotFound] if there is none, [robotscache.ErrCorrupt] if it is damaged; any other
// error means that it cannot be read now. The text need not have
// the hash: an audit checks that.
type Texts interface {
	Body(ctx context.Context, sha [32]byte) ([]byte, error)
}

// text is the text with a hash, compiled, or the reason why there is none.
type text struct {
	// rules decide; where the end of a text may be cut, cut holds the rules without its last line.
	rules, cut *robotstxt.Ruleset
	// asks matches the paths for which some rule may look at the query.
	asks    *robotstxt.Ruleset
	altered bool  // the store's text has another hash
	cause   Cause // why there is no text; err explains CauseTextUnread
	err     error
}

// texts keeps texts up to a number of bytes.
type texts struct {
	cfg   Config
	ctx   context.Context // of the Run that makes the value
	used  int
	known map[[32]byte]*text
}

// shaOf reads a hash as lines have it.
func shaOf(text string) (sha fetch.Sum, ok bool) {
	return sha, sha.UnmarshalText([]byte(text)) == nil && sha.Hex() == text
}

// overhead is an estimate of the memory of a text besides its rules, in bytes.
const overhead = 1 << 10

func newTexts(ctx context.Context, cfg Config) *texts {
	return &texts{cfg: cfg, ctx: ctx, known: make(map[[32]byte]*text)}
}

// get finds a text and compiles it, unless that has been done. Where there is no room for a new one
// all others are dropped.
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
	t := &text{rules: robotstxt.Options{IndexHTML: c.cfg.IndexHTML}.Parse(body), asks: askers(body, c.cfg.IndexHTML)}
	if len(body) == robotstxt.MaxSize && !isLineEnd(rune(body[len(body)-1])) {
		// The kept beginning of a longer file has this length, and a whole file may have it too.
		t.cut = robotstxt.Options{Truncated: true, IndexHTML: c.cfg.IndexHTML}.Parse(body)
	}
	return t
}

// askers makes a ruleset that disallows each path on which the query may decide whether some rule
// of the text matches: the paths that begin as a rule with ?, * or $ does up to there. Whether any
// other rule matches does not depend on the query.
//
// With indexHTML, /x/index.html stands for /x/$ too.
func askers(body []byte, indexHTML bool) *robotstxt.Ruleset {
	probe := []byte("User-agent: *\n")
	for line := range bytes.FieldsFuncSeq(body[:min(len(body), robotstxt.MaxSize)], isLineEnd) {
		line, _, _ = bytes.Cut(line, []byte{'#'})
		// The key is not looked at: there are many misspellings that count as rules.
		start := bytes.IndexAny(line, "/*")
		special := bytes.IndexAny(line, "?*$")
		if index := bytes.Index(line, []byte("/index.htm")); indexHTML && index >= 0 && (special < 0 || index < special) {
			special = index + 1
		}
		if start < 0 || special < 0 || string(bytes.TrimSpace(line[start:])) == "*" { // of User-agent, or for every path
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

// QueryMatters reports whether some rule of a text may look at the query of a path.
func QueryMatters(text []byte, indexHTML bool, path string) bool {
	return asksQuery(askers(text, indexHTML), path)
}

// asksQuery is QueryMatters for the rules that [askers] has made.
func asksQuery(asks *robotstxt.Ruleset, path string) bool {
	disallowed := func(form string) bool { return !asks.Match(nil, form).Allowed }
	forms, ok := origin.Resolve(path)
	return !ok || disallowed(path) || slices.ContainsFunc(forms, disallowed)
}

func isLineEnd(r rune) bool { return r == '\n' || r == '\r' }
