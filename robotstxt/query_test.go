package robotstxt_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// question is a crawler's request for a target.
type question struct {
	tokens         []string
	ignoreWildcard bool
	target         string
}

func (q question) String() string {
	return fmt.Sprintf("%q (wildcard ignored: %v) %q", q.tokens, q.ignoreWildcard, q.target)
}

// asker makes questions about the edge cases of a file: about the names it lists and the paths of
// its rules, lengthened, shortened, filled in and spelt differently.
type asker struct {
	rnd   *rand.Rand
	names []string
	paths []string
}

func newAsker(data []byte, seed uint64) *asker {
	a := &asker{rnd: rand.New(rand.NewPCG(seed, 9309))}
	for _, line := range strings.FieldsFunc(string(data), func(r rune) bool { return r == '\n' || r == '\r' }) {
		key, value, ok := strings.Cut(line, ":")
		if !ok {
			if key, value, ok = strings.Cut(strings.TrimSpace(line), " "); !ok {
				continue
			}
		}
		value, _, _ = strings.Cut(value, "#")
		value = strings.TrimSpace(value)
		switch key = strings.ToLower(key); {
		case strings.Contains(key, "agent"):
			a.names = append(a.names, value)
		case strings.Contains(key, "low"):
			a.paths = append(a.paths, value)
		}
	}
	return a
}

func (a *asker) next() question {
	q := question{ignoreWildcard: a.rnd.IntN(8) == 0, target: a.target()}
	for range 1 + a.rnd.IntN(2) {
		q.tokens = append(q.tokens, a.token())
	}
	return q
}

func (a *asker) token() string {
	if len(a.names) == 0 || a.rnd.IntN(4) == 0 {
		return []string{"Googlebot", "ExampleBot", "bingbot", "*", "", "MJ12bot", "a"}[a.rnd.IntN(7)]
	}
	name := a.names[a.rnd.IntN(len(a.names))]
	switch a.rnd.IntN(6) {
	case 0:
		return strings.ToUpper(name)
	case 1:
		return name + "/1.0"
	case 2:
		return name[:a.rnd.IntN(len(name)+1)]
	case 3:
		return strings.ToLower(strings.Trim(name, "0123456789./*"))
	}
	return name
}

// fillings replace a *.
var fillings = []string{"", "x", "/", "a/b", "?", "?a=b&", "index.html", "%2F", "%", "*", "$", "\u00e9", "aaaa"}

// edges are put in front of, after and inside targets.
var edges = []string{
	"", "/", "a", "?", "?x=y", "&", "%20", "%", "%2", "$", "%24", "*", "%2A", "#f", " ", "\x01", "\xff", "\u00e9",
	"%c3%A9", "%61", "%7e", "%2f", "%3A", ":", "%3f", ";", "%3B", "{", "|", "..", "//", "%%36%31",
}

func (a *asker) target() string {
	if a.rnd.IntN(40) == 0 {
		return []string{"", "/", "/robots.txt", "/robots%2Etxt", "?q", "/robots.txt?", "x", "/index.html"}[a.rnd.IntN(8)]
	}
	path := "/" + edges[a.rnd.IntN(len(edges))]
	if len(a.paths) > 0 && a.rnd.IntN(8) != 0 {
		path = a.paths[a.rnd.IntN(len(a.paths))]
	}
	if a.rnd.IntN(8) != 0 {
		path = strings.TrimSuffix(path, "$")
	}
	var b strings.Builder
	for i, part := range strings.Split(path, "*") {
		if i > 0 {
			b.WriteString(fillings[a.rnd.IntN(len(fillings))])
		}
		b.WriteString(part)
	}
	t := b.String()
	for range a.rnd.IntN(3) {
		t = a.mutate(t)
	}
	return t
}

func (a *asker) mutate(t string) string {
	at := a.rnd.IntN(len(t) + 1)
	switch a.rnd.IntN(8) {
	case 0:
		return t[:at]
	case 1:
		return t[:at] + edges[a.rnd.IntN(len(edges))] + t[at:]
	case 2, 3:
		return t + edges[a.rnd.IntN(len(edges))]
	case 4:
		return respell(t, at)
	case 5:
		return strings.ToUpper(t)
	case 6:
		if at < len(t) {
			return t[:at] + t[at+1:]
		}
	}
	return t
}

// respell escapes the byte at a position or decodes the escapes there.
func respell(t string, at int) string {
	if at >= len(t) {
		return t
	}
	if i := strings.IndexByte(t[at:], '%'); i >= 0 && at+i+2 < len(t) {
		const digits = "0123456789abcdefABCDEF"
		hi, lo := strings.IndexByte(digits, t[at+i+1]), strings.IndexByte(digits, t[at+i+2])
		if hi >= 0 && lo >= 0 {
			for _, d := range []*int{&hi, &lo} {
				if *d > 15 {
					*d -= 6
				}
			}
			return t[:at+i] + string([]byte{byte(hi<<4 | lo)}) + t[at+i+3:]
		}
	}
	const hex = "0123456789aBcDeF"
	return t[:at] + "%" + hex[t[at]>>4:][:1] + hex[t[at]&15:][:1] + t[at+1:]
}
