package enforce

import (
	"bytes"
	"cmp"
	"html/template"
	"os"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Lengths that clients show without cutting, in bytes.
const (
	maxPhrase  = 99
	maxSummary = 120
)

// maxWho bounds the bytes of an agent's name in a summary.
const maxWho = 24

// summary fills in the reason's line: ${name} stands for a part of d, and <name> for the part that
// may be cut. If the line would be too long, it omits the time to retry, which is in Retry-After
// too. fit returns the line in at most limit bytes of printable ASCII. If cutting the one part is
// not enough, fit cuts the end as well.
func (d Decision) summary(url string) (fit func(limit int) string) {
	head, rest, _ := strings.Cut(d.Reason.Info().Summary, "<")
	subject, tail, _ := strings.Cut(rest, ">")
	parts := d.summaryParts(url)
	part := func(name string) string { return parts[name] }
	before, after := os.Expand(head, part), os.Expand(tail, part)
	if len(before)+len(part(subject))+len(after) > maxPhrase {
		delete(parts, "retry")
		before, after = os.Expand(head, part), os.Expand(tail, part)
	}
	return func(limit int) string {
		room := max(limit-len(before)-len(after), 2*len(escape.Ellipsis))
		return escape.Cut(before+escape.Cut(part(subject), room)+after, limit)
	}
}

func (d Decision) summaryParts(url string) map[string]string {
	parts := map[string]string{
		"title": d.Reason.Info().Title, "user_agent": "missing",
		"agent": escape.ASCII(cmp.Or(d.Agent, "this crawler"), maxWho),
		"host":  d.host(), "url": withoutQuery(url), "line": strconv.Itoa(d.Line),
	}
	if d.Reason == ReasonDisallowed && d.Form == PathResolved {
		parts["url"] = withoutQuery(d.Origin.String() + escape.ASCII(d.Judged, maxShown))
		parts["resolved"] = "resolved path, "
	}
	if d.UserAgent != "" {
		parts["user_agent"] = strconv.Quote(escape.ASCII(d.UserAgent, maxSummary))
	}
	if d.Detail != "" {
		parts["detail"] = " (" + escape.ASCII(d.Detail, maxWhy) + ")"
	}
	if d.RetryAfter > 0 {
		parts["retry"] = ", retry after " + strconv.FormatInt(RetrySeconds(d.RetryAfter), 10) + " s"
	}
	return parts
}

// host is the requested authority in human-readable form.
func (d Decision) host() string {
	if d.Origin.IsZero() {
		return "the target"
	}
	return escape.ASCII(d.Origin.Authority(), maxShown)
}

// maxWhy bounds the bytes of a detail in a sentence.
const maxWhy = 44

// withoutQuery cuts off the query of a URL. A query may be secret, few rules refer to it, and a
// summary ends up in clients' logs.
func withoutQuery(url string) string {
	if before, _, found := strings.Cut(url, "?"); found {
		return before + "?" + escape.Ellipsis
	}
	return url
}

// quotation is the place in a robots.txt that refused a request. The text is shared with the cache,
// and must not be changed. Only a refused decision has one, because a request that lasts for hours
// must not keep a text that the cache has dropped.
type quotation struct {
	text []byte
	line int // 0 if no line refused
}

// Bounds of what a refusal shows of a text, which together stay below 4 KB of HTML.
const (
	quotedAround = 5   // lines before and after the one that refused
	maxQuoted    = 200 // bytes of HTML of such a line
	maxDeciding  = 600 // of the one that refused
)

// html returns the line that refused and the lines around it, as HTML list items. It returns
// nothing if no line refused.
func (q quotation) html() template.HTML {
	if q.line < 1 {
		return ""
	}
	var b strings.Builder
	for n, line := range robotstxt.Lines(bytes.TrimRight(q.text, "\r\n")) {
		if n > q.line+quotedAround {
			break
		}
		if n == q.line {
			b.WriteString(`<li value="` + strconv.Itoa(n) + `"><mark>` + shownLine(line, maxDeciding) + "</mark></li>\n")
		} else if n >= q.line-quotedAround {
			b.WriteString(`<li value="` + strconv.Itoa(n) + `">` + shownLine(line, maxQuoted) + "</li>\n")
		}
	}
	return template.HTML(b.String()) //nolint:gosec // all text of the site is escaped below
}

// shownLine is a line of a site as HTML that is safe to show, of at most limit bytes.
func shownLine(line []byte, limit int) string {
	raw := strings.ReplaceAll(string(line[:min(len(line), limit+1)]), "\t", " ")
	shown := template.HTMLEscapeString(escape.Visible(raw, limit))
	if len(shown) > limit {
		shown = template.HTMLEscapeString(escape.Visible(raw, limit/len("&#34;"))) // the longest escape
	}
	return shown
}
