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

// quote keeps the place that refused, where one did.
func (d *Decision) quote(b Bound) {
	if d.Allowed {
		d.quoted = quotation{}
		return
	}
	if d.Reason == ReasonDisallowed {
		d.quoted.line = d.Line
	}
	d.quoted.text = b.text
}

// Bounds of what a refusal shows of a text, which together stay below 4 KB of HTML.
const (
	quotedAround = 5   // lines before and behind the one that refused
	maxQuoted    = 200 // bytes of HTML of such a line
	maxDeciding  = 600 // of the one that refused
)

// quotedLine is a line as it is shown.
type quotedLine struct {
	Number  int
	Text    string
	Decides bool
}

// lines returns the line that refused among its neighbours, nil if no line refused.
func (q quotation) lines() (list []quotedLine) {
	if q.line < 1 {
		return nil
	}
	for n, line := range robotstxt.Lines(bytes.TrimRight(q.text, "\r\n")) {
		switch {
		case n > q.line+quotedAround:
			return list
		case n == q.line:
			list = append(list, quotedLine{n, shownLine(line, maxDeciding), true})
		case n >= q.line-quotedAround:
			list = append(list, quotedLine{n, shownLine(line, maxQuoted), false})
		}
	}
	return list
}

// html is the list as items of HTML.
func (q quotation) html() template.HTML {
	var b strings.Builder
	for _, l := range q.lines() {
		text := template.HTMLEscapeString(l.Text)
		if l.Decides {
			text = "<mark>" + text + "</mark>"
		}
		b.WriteString(`<li value="` + strconv.Itoa(l.Number) + `">` + text + "</li>\n")
	}
	return template.HTML(b.String()) //nolint:gosec // all text of the site is escaped above
}

// shownLine is a line of a site that is safe to show, of at most limit bytes as HTML.
func shownLine(line []byte, limit int) string {
	raw := strings.ReplaceAll(string(line[:min(len(line), limit+1)]), "\t", " ")
	shown := escape.Visible(raw, limit)
	if len(template.HTMLEscapeString(shown)) > limit {
		shown = escape.Visible(raw, limit/len("&#34;")) // nothing takes more
	}
	return shown
}
