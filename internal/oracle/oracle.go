package oracle

import (
	"bytes"
	"fmt"
	"math/big"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// limits of RFC 9309 section 2.5 and of Google's parser.
const (
	maxFile = 500 * 1024
	maxLine = 2083*8 - 1

	maxToken = 255 // of a crawler
)

// File has the groups of a robots.txt, in the order of the file.
type File struct {
	groups   []*group
	sitemaps []string
}

type group struct {
	names  []string // values of the user-agent lines
	rules  []rule
	delays []delay
}

type rule struct {
	allow bool
	text  string // as written
	path  pattern
	line  int
}

// delay is a Crawl-delay or Request-rate line: it speaks to the first `names` names of its group.
type delay struct {
	names int
	crawl bool
	pause time.Duration
}

// Result is what the file says about one target.
type Result struct {
	Allowed  bool
	Rule     string
	Line     int
	Specific bool
	Found    bool // any group, own or *
}

// Parse reads a file. With indexHTML, a rule "Allow: /x/index.htm…" also allows exactly /x/.
func Parse(data []byte, indexHTML bool) *File {
	f := &File{}
	var current *group
	closed := false
	for i, text := range lines(data) {
		key, value, ok := directive(text)
		if !ok {
			continue
		}
		switch kind(key) {
		case "user-agent":
			if current == nil || closed {
				current, closed = &group{}, false
				f.groups = append(f.groups, current)
			}
			current.names = append(current.names, value)
		case "allow", "disallow":
			if current != nil {
				closed = true
				r := rule{kind(key) == "allow", value, read(value), i + 1}
				current.rules = append(current.rules, r)
				slash := strings.LastIndex(value, "/")
				if indexHTML && r.allow && slash >= 0 && strings.HasPrefix(value[slash:], "/index.htm") {
					r.path = read(value[:slash+1] + "$")
					current.rules = append(current.rules, r)
				}
			}
		case "sitemap":
			f.addSitemap(value, i+1)
		case "crawl-delay":
			if pause, ok := crawlDelay(value); ok && current != nil {
				current.delays = append(current.delays, delay{len(current.names), true, pause})
			}
		case "request-rate":
			if pause, ok := requestRate(value); ok && current != nil {
				current.delays = append(current.delays, delay{len(current.names), false, pause})
			}
		}
	}
	return f
}

func (f *File) addSitemap(value string, line int) {
	scheme, rest, _ := strings.Cut(strings.ToLower(value), "://")
	isURL := (scheme == "http" || scheme == "https") && rest != "" && len(value) <= 2048
	if isURL && len(f.sitemaps) < 1000 {
		f.sitemaps = append(f.sitemaps, fmt.Sprintf("%d %s", line, value))
	}
}

// Sitemaps returns the URLs of the Sitemap lines, each after its line number and a blank.
func (f *File) Sitemaps() []string { return f.sitemaps }

// member says that a group is the crawler's, and in which positions of the name list.
type member struct {
	group     *group
	positions []int
}

// choose finds the groups of the first token that has any, or else the groups of *.
func (f *File) choose(tokens []string, ignoreWildcard bool) (found []member, specific bool) {
	for _, token := range tokens {
		if i := strings.IndexAny(token, "/ \t\v\f"); i >= 0 {
			token = token[:i]
		}
		if token == "" || token == "*" || len(token) > maxToken {
			continue
		}
		if found = f.members(func(name string) bool { return names(name, token) }); len(found) > 0 {
			return found, true
		}
	}
	if ignoreWildcard {
		return nil, false
	}
	return f.members(isWildcard), false
}

func (f *File) members(is func(string) bool) []member {
	var found []member
	for _, g := range f.groups {
		m := member{group: g}
		for i, name := range g.names {
			if is(name) {
				m.positions = append(m.positions, i)
			}
		}
		if m.positions != nil {
			found = append(found, m)
		}
	}
	return found
}

// isWildcard: `*` alone, or `*`, a blank, and anything.
func isWildcard(name string) bool {
	return name == "*" || len(name) > 1 && name[0] == '*' && strings.ContainsRune(" \t\v\f", rune(name[1]))
}

// names reports whether the value of a user-agent line names the token.
func names(value, token string) bool {
	if isWildcard(value) {
		return false
	}
	if len(letters(token)) == len(token) {
		return asciiLower(letters(value)) == asciiLower(token)
	}
	if i := strings.IndexAny(value, "/ \t\v\f"); i >= 0 {
		value = value[:i]
	}
	return asciiLower(value) == asciiLower(token)
}

// letters is the longest beginning of s made of the bytes of an RFC 9309 product token.
func letters(s string) string {
	i := 0
	for i < len(s) && (s[i] == '-' || s[i] == '_' || s[i]|0x20 >= 'a' && s[i]|0x20 <= 'z') {
		i++
	}
	return s[:i]
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c >= 'A' && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Check is the verdict on a target (path and query) that is to be fetched.
func (f *File) Check(tokens []string, ignoreWildcard bool, target string) Result {
	if Canonical(target) == "/robots.txt" {
		members, specific := f.choose(tokens, ignoreWildcard)
		return Result{Allowed: true, Specific: specific, Found: len(members) > 0}
	}
	return f.CheckRules(tokens, ignoreWildcard, target)
}

// CheckRules is the verdict of the rules alone.
func (f *File) CheckRules(tokens []string, ignoreWildcard bool, target string) Result {
	members, specific := f.choose(tokens, ignoreWildcard)
	result := Result{Allowed: true, Specific: specific, Found: len(members) > 0}
	t := Canonical(target)
	best := 0
	for _, m := range members {
		for _, r := range m.group.rules {
			n := r.path.match(t)
			if n > best || n > 0 && n == best && r.allow && !result.Allowed {
				best = n
				result.Allowed, result.Rule, result.Line = r.allow, r.text, r.line
			}
		}
	}
	return result
}

// Delay is the pause asked of a crawler: the largest Crawl-delay, without any the slowest
// Request-rate.
func (f *File) Delay(tokens []string, ignoreWildcard bool) (time.Duration, bool) {
	members, _ := f.choose(tokens, ignoreWildcard)
	for _, crawl := range []bool{true, false} {
		longest, found := time.Duration(0), false
		for _, m := range members {
			for _, d := range m.group.delays {
				if d.crawl == crawl && m.positions[0] < d.names {
					longest, found = max(longest, d.pause), true
				}
			}
		}
		if found {
			return longest, true
		}
	}
	return 0, false
}

// lines cuts data at CR, LF and CRLF, after the byte order mark and within the limits.
func lines(data []byte) []string {
	cut := len(data) > maxFile
	if cut {
		cut = data[maxFile] != '\n' && data[maxFile] != '\r'
		data = data[:maxFile]
	}
	for _, c := range []byte{0xEF, 0xBB, 0xBF} {
		if len(data) == 0 || data[0] != c {
			break
		}
		data = data[1:]
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
	data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
	all := strings.Split(string(data), "\n")
	if cut {
		all = all[:len(all)-1]
	}
	for i, l := range all {
		l = l[:min(len(l), maxLine)]
		l, _, _ = strings.Cut(l, "\x00")
		l, _, _ = strings.Cut(l, "#")
		all[i] = strings.Trim(l, " \t\v\f")
	}
	return all
}

// directive splits a line at its colon or, if no known field precedes one, at the blanks between
// exactly two words.
func directive(line string) (key, value string, ok bool) {
	const blank = " \t\v\f"
	key, value, ok = strings.Cut(line, ":")
	key, value = strings.Trim(key, blank), strings.Trim(value, blank)
	words := strings.FieldsFunc(line, func(r rune) bool { return r == ' ' || r == '\t' })
	if len(words) == 2 && (!ok || kind(key) == "" && kind(strings.Trim(words[0], blank)) != "") {
		return strings.Trim(words[0], blank), strings.Trim(words[1], blank), true
	}
	return key, value, ok && key != ""
}

// endings may stand after the keys of names, rules and sitemaps.
var endings = []string{"", "s", "ed"}

func kind(key string) string {
	runes := []rune(asciiLower(key))
	for len(runes) > 0 && (runes[len(runes)-1] == ' ' || runes[len(runes)-1] == utf8.RuneError || !unicode.IsPrint(runes[len(runes)-1])) {
		runes = runes[:len(runes)-1]
	}
	key = string(runes)
	for _, stems := range [][]string{
		{"user-agent", "useragent", "user agent"},
		{"allow"},
		{"disallow", "dissallow", "dissalow", "disalow", "diasllow", "disallaw"},
		{"sitemap", "site-map"},
	} {
		for _, stem := range stems {
			for _, ending := range endings {
				if key == stem+ending {
					return stems[0]
				}
			}
		}
	}
	switch key {
	case "crawl-delay", "crawl delay", "crawldelay":
		return "crawl-delay"
	case "request-rate", "content-signal", "content-usage", "license":
		return key
	}
	return ""
}

// crawlDelay reads decimal digits with at most one point, as seconds.
func crawlDelay(s string) (time.Duration, bool) {
	whole, fraction, _ := strings.Cut(s, ".")
	if whole+fraction == "" || strings.Trim(whole+fraction, "0123456789") != "" {
		return 0, false
	}
	n, _ := new(big.Int).SetString(whole+(fraction + "000000000")[:9], 10)
	return clamp(n), true
}

// requestRate reads documents/time with an optional unit: the pause is time/documents. Both
// have 18 digits at most.
func requestRate(s string) (time.Duration, bool) {
	documents, period, ok := strings.Cut(s, "/")
	unit := int64(1)
	if ok && period != "" {
		if i := strings.IndexByte("smhdSMHD", period[len(period)-1]); i >= 0 {
			unit = []int64{1, 60, 3600, 86400}[i%4]
			period = period[:len(period)-1]
		}
	}
	if documents == "" || period == "" || len(documents) > 18 || len(period) > 18 || strings.Trim(documents+period, "0123456789") != "" {
		return 0, false
	}
	n, _ := new(big.Int).SetString(documents, 10)
	t, _ := new(big.Int).SetString(period, 10)
	if n.Sign() == 0 {
		return 0, false
	}
	t.Mul(t, big.NewInt(unit*int64(time.Second)))
	return clamp(t.Div(t, n)), true
}

func clamp(n *big.Int) time.Duration {
	if !n.IsInt64() {
		return 1<<63 - 1
	}
	return time.Duration(n.Int64())
}
