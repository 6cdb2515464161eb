package enforce

import (
	"cmp"
	"os"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/internal/escape"
)

// Lengths that clients show without cutting, in bytes.
const (
	maxPhrase  = 99
	maxSummary = 120
)

// maxWho bounds the bytes of an agent's name in a summary.
const maxWho = 24

// summary fills in the line that the reason has: ${name} stands for a part of d, and <name> for the
// part that may be cut. The time to come back is left out where the line would be too long: the
// field Retry-After has it too. fit returns the line in at most limit bytes of printable ASCII; if
// cutting the one part is not enough, the end is cut as well.
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

// withoutQuery cuts the query off a URL. It may be secret, few rules are about it, and a summary
// ends up in clients' logs.
func withoutQuery(url string) string {
	if before, _, found := strings.Cut(url, "?"); found {
		return before + "?" + escape.Ellipsis
	}
	return url
}
