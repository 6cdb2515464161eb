package enforce

import (
	"bytes"
	"html/template"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// quotation is the place in a robots.txt that refused a request. The text is shared with the cache,
// and must not be changed. Only a refused decision has one: a request that goes on for hours must
// not hold a text that the cache has dropped.
type quotation struct {
	text []byte
	line int // 0 where no line refused
}

// Bounds of what a refusal shows of a text, which together stay below 4 KB of HTML.
const (
	quotedAround = 5   // lines before and behind the one that refused
	maxQuoted    = 200 // bytes of HTML of such a line
	maxDeciding  = 600 // of the one that refused
)

// html returns the line that refused among its neighbours, as items of HTML; empty if no line
// refused.
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
		shown = template.HTMLEscapeString(escape.Visible(raw, limit/len("&#34;"))) // nothing takes more
	}
	return shown
}
