package enforce

import (
	"fmt"
	"net/http"

	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Paths says in which forms a path is held against the rules. The zero value is PathsStrict,
// and an undeclared value is strict too.
type Paths uint8

const (
	// PathsStrict judges the bytes as sent, and the forms that servers resolve them to
	// ([origin.Resolve]): what is disallowed in one of them is refused.
	PathsStrict Paths = iota
	// PathsAsSent judges the bytes as sent alone, as RFC 9309 section 2.2.2 has it.
	PathsAsSent
)

// String returns "strict" or "as_sent".
func (p Paths) String() string {
	if p == PathsAsSent {
		return "as_sent"
	}
	return "strict"
}

// ParsePaths reads what String returns; the empty text stands for the default, strict.
func ParsePaths(s string) (Paths, error) {
	switch s {
	case "", PathsStrict.String():
		return PathsStrict, nil
	case PathsAsSent.String():
		return PathsAsSent, nil
	}
	return 0, fmt.Errorf("paths %q: want strict, as_sent", s)
}

// PathForm says by which form of a path the rules decided. It is empty where servers resolve
// the path to itself, and where no rules were asked.
type PathForm string

const (
	// PathAsSent is the bytes as sent: they are disallowed, or were alone to be judged.
	PathAsSent PathForm = "as_sent"
	// PathResolved is a resolved form, which is disallowed while the bytes as sent are not.
	PathResolved PathForm = "resolved"
	// PathBoth is the bytes as sent and all resolved forms, none of which is disallowed.
	PathBoth PathForm = "both"
)

// MatchPath returns what the rules of a group say about a request for a path and query, and about
// which form of it. judged is the resolved form that is disallowed, where one is. Where all forms
// are allowed, the match is the one of the bytes as sent. A path of too many forms is not allowed
// by any rule: its form is PathResolved, and the line is 0.
func MatchPath(g robotstxt.Group, method, path string, paths Paths) (m robotstxt.Match, form PathForm, judged string) {
	match := g.MatchRules
	if isRead(method) {
		match = g.Match
	}
	m = match(path)
	resolved, ok := origin.Resolve(path)
	switch {
	case ok && len(resolved) == 0:
		return m, "", ""
	case !m.Allowed || paths == PathsAsSent:
		return m, PathAsSent, ""
	case !ok:
		return robotstxt.Match{}, PathResolved, ""
	}
	for _, judged := range resolved {
		if r := match(judged); !r.Allowed {
			return r, PathResolved, judged
		}
	}
	return m, PathBoth, ""
}

// FetchesRobotsTxt reports whether a request for a path and query reads robots.txt itself, which
// is always allowed. RFC 9309 section 2.2.2 excepts the URI /robots.txt, which is these bytes: a
// query makes another one, and an encoded letter is for the rules to judge. So is a request that
// could change the file.
func FetchesRobotsTxt(method, path string) bool { return path == "/robots.txt" && isRead(method) }

// isRead reports whether the method only asks for the resource.
func isRead(method string) bool { return method == http.MethodGet || method == http.MethodHead }
