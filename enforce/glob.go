package enforce

import "strings"

// glob is a pattern for a whole header value in which * stands for any octets, also
// none. It is kept in ASCII lower case, without runs of *.
type glob string

func newGlob(pattern string) glob {
	g := lowerASCII(pattern)
	for strings.Contains(g, "**") {
		g = strings.ReplaceAll(g, "**", "*")
	}
	return glob(g)
}

// match reports whether g matches all of s, which must be in ASCII lower case. It never
// backtracks: between the ends, each literal is taken where it comes first.
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

// intersect returns a string that both globs match, if there is one.
func (g glob) intersect(h glob) (witness string, ok bool) {
	dead := make(map[[2]int]bool)
	// walk matches g[i:] against h[j:] and returns the string backwards.
	var walk func(i, j int) ([]byte, bool)
	try := func(i, j int, emit ...byte) ([]byte, bool) {
		w, ok := walk(i, j)
		return append(w, emit...), ok
	}
	walk = func(i, j int) ([]byte, bool) {
		if i == len(g) && j == len(h) {
			return nil, true
		}
		if dead[[2]int{i, j}] {
			return nil, false
		}
		inG, inH := i < len(g), j < len(h)
		starG, starH := inG && g[i] == '*', inH && h[j] == '*'
		var w []byte
		found := false
		if starG {
			w, found = try(i+1, j)
		}
		if !found && starH {
			w, found = try(i, j+1)
		}
		switch {
		case found:
		case starG && inH && !starH:
			w, found = try(i, j+1, h[j])
		case starH && inG && !starG:
			w, found = try(i+1, j, g[i])
		case inG && inH && g[i] == h[j] && !starG:
			w, found = try(i+1, j+1, g[i])
		}
		dead[[2]int{i, j}] = !found
		return w, found
	}
	w, ok := walk(0, 0)
	for i, j := 0, len(w)-1; i < j; i, j = i+1, j-1 {
		w[i], w[j] = w[j], w[i]
	}
	return string(w), ok
}

// lowerASCII returns s with its ASCII letters in lower case.
func lowerASCII(s string) string {
	for i := range len(s) {
		if s[i] != lower(s[i]) {
			b := []byte(s)
			for ; i < len(b); i++ {
				b[i] = lower(b[i])
			}
			return string(b)
		}
	}
	return s
}
