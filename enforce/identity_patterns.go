package enforce

import (
	"fmt"
	"slices"
	"strings"
)

// ambiguity says how one request can match both agents equally well, or returns "". Agents with
// different kinds of conditions never do: the stronger evidence decides.
//
// This is exact, except for certificates: one with the names of two agents cannot be foreseen, and
// is refused when it appears.
func (a *Agent) ambiguity(b *Agent) string {
	if a.conditions != b.conditions {
		return ""
	}
	var both []string
	for _, kind := range conditionKinds {
		if a.conditions&kind.bit == 0 {
			continue
		}
		how := a.overlap(b, kind.bit)
		if how == "" {
			return ""
		}
		both = append(both, how)
	}
	return strings.Join(both, ", ")
}

// overlap says how one sender can meet a condition of both agents, or returns "". A product takes
// precedence over every glob (see [Identifier]), so those two never compete.
func (a *Agent) overlap(b *Agent, kind condition) string {
	switch kind {
	case byCredential:
		return common("credential user", a.Credentials, b.Credentials)
	case byCertificate:
		return common("client certificate name", a.ClientCertificates, b.ClientCertificates)
	case bySource:
		for _, p := range a.from {
			if i := slices.IndexFunc(b.from, p.Overlaps); i >= 0 {
				return fmt.Sprintf("sources %s and %s", p, b.from[i])
			}
		}
	case byUserAgent:
		if how := common("User-Agent product", a.products, b.products); how != "" {
			return how
		}
		for _, g := range a.globs {
			for _, h := range b.globs {
				if witness, ok := (intersection{}).of(g, h); ok {
					return fmt.Sprintf("User-Agent patterns %q and %q (both match %q)", g, h, witness)
				}
			}
		}
	}
	return ""
}

// common names the first element that both lists have, or returns "".
func common(kind string, a, b []string) string {
	if i := slices.IndexFunc(a, func(s string) bool { return slices.Contains(b, s) }); i >= 0 {
		return fmt.Sprintf("%s %q", kind, a[i])
	}
	return ""
}

// glob is a pattern for a whole header value, in which * stands for any number of bytes. It is kept
// in lower case, without runs of *.
type glob string

func newGlob(pattern string) glob {
	g := strings.ToLower(pattern)
	for strings.Contains(g, "**") {
		g = strings.ReplaceAll(g, "**", "*")
	}
	return glob(g)
}

// match reports whether g matches all of s, which must be in lower case. It never backtracks:
// between the ends, each literal matches at its first occurrence.
func (g glob) match(s string) bool {
	head, rest, star := strings.Cut(string(g), "*")
	s, ok := strings.CutPrefix(s, head)
	if !ok || !star {
		return ok && s == ""
	}
	for {
		var literal string
		if literal, rest, star = strings.Cut(rest, "*"); !star {
			return strings.HasSuffix(s, literal)
		}
		_, after, found := strings.Cut(s, literal)
		if !found {
			return false
		}
		s = after
	}
}

// intersection is the search for a string that two globs match. It records the pairs of rests that
// no string matches.
type intersection map[[2]glob]bool

func (none intersection) of(g, h glob) (witness string, ok bool) {
	if none[[2]glob{g, h}] {
		return "", false
	}
	defer func() { none[[2]glob{g, h}] = !ok }()
	switch {
	case g == "" && h == "":
		return "", true
	case strings.HasPrefix(string(h), "*") && !strings.HasPrefix(string(g), "*"):
		return none.of(h, g)
	case g == "":
		return "", false
	case g[0] != '*':
		if h == "" || g[0] != h[0] {
			return "", false
		}
		rest, ok := none.of(g[1:], h[1:])
		return string(g[:1]) + rest, ok
	}
	// The star of g stands for nothing, or for what h begins with.
	if witness, ok := none.of(g[1:], h); ok || h == "" {
		return witness, ok
	}
	rest, ok := none.of(g, h[1:])
	return strings.TrimPrefix(string(h[:1]), "*") + rest, ok
}
