package robotstxt

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Warning is about a line that is ignored or repaired, or that may do something other than its
// author intended.
type Warning struct {
	Line    int    // its number, from 1
	Code    string // the kind of fault, such as "bad-delay"; docs/cli.md lists them, and they do not change
	Message string // why, for a person
}

// maxWarnings bounds the warnings about one file.
const maxWarnings = 1000

// Lint reports faults in a robots.txt, and lines that may not do what their author meant, in line
// order. It returns at most 1,000 warnings, and one more if it found others. It reads a file
// exactly as [Parse] does.
func Lint(data []byte) []Warning {
	if IsUTF16(data) {
		return []Warning{{1, "utf-16", "the file is in UTF-16: robots.txt must be UTF-8, and nothing in this one is read"}}
	}
	l := linter{s: newScanner(data, false), bound: make(map[string]bool)}
	l.html = IsHTML(l.s.data)
	if l.s.hasBOM {
		l.warnAt(1, "byte-order-mark", "the file begins with a byte order mark, which is skipped")
	}
	if l.html {
		l.warnAt(1, "html", "this looks like an HTML page: lines that read like robots.txt lines are used, the others are not reported")
	}
	for line, ok := l.s.next(); ok && len(l.warnings) <= maxWarnings; line, ok = l.s.next() {
		l.line(line)
	}
	l.endGroup()
	l.compareRules(data)
	if l.s.hasCut {
		l.warnAt(l.s.number, "too-large", "the file has more than %d bytes: this line and what follows is not read", MaxSize)
	}
	slices.SortStableFunc(l.warnings, func(a, b Warning) int { return cmp.Compare(a.Line, b.Line) })
	if len(l.warnings) > maxWarnings {
		last := l.warnings[maxWarnings].Line
		l.warnings = append(l.warnings[:maxWarnings], Warning{last, "too-many-warnings", "there is more to say from here on"})
	}
	return l.warnings
}

// IsUTF16 reports whether data begins with a UTF-16 byte order mark or with ASCII letters in
// UTF-16. RFC 9309 section 2.3 demands UTF-8: nothing in such a file is read, so everything is
// allowed, which is worth a line in a log.
func IsUTF16(data []byte) bool {
	if len(data) < 4 {
		return false
	}
	return data[0] == 0xFF && data[1] == 0xFE || data[0] == 0xFE && data[1] == 0xFF ||
		data[0] != 0 && data[1] == 0 && data[2] != 0 && data[3] == 0 ||
		data[0] == 0 && data[1] != 0 && data[2] == 0 && data[3] != 0
}

// IsHTML reports whether data is an HTML page, which many sites without a robots.txt send: after
// blanks and a byte order mark it begins with a tag, and its first 1,024 bytes name the document
// type or the root element. Lines in it that look like robots.txt lines still count (RFC 9309
// section 2.2.4).
func IsHTML(data []byte) bool {
	head := bytes.TrimPrefix(data[:min(len(data), 1024)], []byte("\xEF\xBB\xBF"))
	head = bytes.ToLower(bytes.TrimLeft(head, " \t\v\f\r\n"))
	return bytes.HasPrefix(head, []byte("<")) &&
		(bytes.Contains(head, []byte("<!doctype html")) || bytes.Contains(head, []byte("<html")))
}

// linter is a second reader of lines. The parser that makes Rulesets does not depend on it.
type linter struct {
	s        scanner
	html     bool
	warnings []Warning

	list        []string // the names of the current list, in lower case
	first, last int      // the lines of its first and its latest name
	closed      bool     // a rule has ended the list
	shared      bool     // it was said that the list is one

	bound map[string]bool // names of the lists that have ended
}

func (l *linter) warn(code, format string, args ...any) { l.warnAt(l.s.number, code, format, args...) }

func (l *linter) warnAt(line int, code, format string, args ...any) {
	l.warnings = append(l.warnings, Warning{line, code, fmt.Sprintf(format, args...)})
}

func (l *linter) line(line []byte) {
	content := contentOf(line)
	if len(line) > maxLine {
		l.warn("long-line", "only the first %d of the line's %d bytes are read", maxLine, len(line))
	}
	if bytes.IndexByte(line, 0) >= 0 {
		l.warn("nul", "the line has a NUL byte: it and what follows are not read")
	}
	if len(content) == 0 {
		return
	}
	if !utf8.Valid(content) {
		l.warn("invalid-utf-8", "the line is not UTF-8: its bytes are used as they are")
	}
	f, key, value := split(content)
	if len(key) == 0 {
		if !l.html {
			l.warn("no-directive", "%s is not a directive: it has no field name and colon", quote(content))
		}
		return
	}
	if f == fieldOther {
		l.otherField(key)
		return
	}
	l.spelling(f, key, content)
	if i := bytes.IndexByte(line, '#'); i > 0 && len(value) > 0 && !isBlank(line[i-1]) {
		l.warn("comment-inside", "a # begins a comment: the value is %s", quote(value))
	}
	l.directive(f, value)
}

// fieldNames are the right spellings.
var fieldNames = map[field]string{
	fieldUserAgent: "user-agent", fieldAllow: "allow", fieldDisallow: "disallow", fieldSitemap: "sitemap",
	fieldCrawlDelay: "crawl-delay", fieldRequestRate: "request-rate", fieldVisitTime: "visit-time", fieldContentSignal: "content-signal",
	fieldContentUsage: "content-usage", fieldLicense: "license",
}

// unsupported are fields that other crawlers support or once supported.
var unsupported = []string{
	"clean-param", "host", "noarchive", "nofollow", "noindex", "nosnippet", "unavailable_after", "robot-version",
}

func (l *linter) otherField(key []byte) {
	switch {
	case l.html:
	case slices.ContainsFunc(unsupported, func(name string) bool { return equalFold(key, name) }):
		l.warn("unsupported-field", "%s is not part of RFC 9309 and is ignored", quote(key))
	default:
		l.warn("unknown-field", "unknown field %s: the line has no effect%s", quote(key), meant(key))
	}
}

// meant returns a hint at the field whose name a key contains, if any.
func meant(key []byte) string {
	folded := strings.ToLower(string(key))
	for _, s := range spellings {
		if strings.Contains(folded, s.key) {
			return ", though " + fieldNames[s.field] + " may be meant"
		}
	}
	return ""
}

func (l *linter) spelling(f field, key, content []byte) {
	if !bytes.HasPrefix(trimLeft(content[len(key):]), []byte{':'}) {
		l.warn("missing-colon", "there is no colon: %s is read as the field", quote(key))
	}
	if name := fieldNames[f]; !equalFold(key, name) {
		l.warn("misspelt-field", "%s is read as %s", quote(key), name)
	}
}

func (l *linter) directive(f field, value []byte) {
	if second := secondDirective(value); second != "" {
		l.warn("two-directives", "a line has one directive: here %+q is part of the value", second)
	}
	switch f {
	case fieldUserAgent:
		l.name(value)
	case fieldAllow, fieldDisallow:
		l.rule(value)
	case fieldSitemap:
		if fault := sitemapFault(value); fault != "" {
			l.warn("bad-sitemap", "%s %s", quote(value), fault)
		}
	case fieldCrawlDelay:
		_, ok := parseCrawlDelay(value)
		l.delay(value, ok, "a number of seconds such as 5 or 0.5")
	case fieldRequestRate:
		_, ok := parseRequestRate(value)
		l.delay(value, ok, "a number of documents and a time, such as 1/5 or 1/10m")
	case fieldVisitTime:
		_, ok := parseVisitTime(value)
		l.delay(value, ok, "two times of the day in UTC, such as 0600-0845")
	case fieldContentSignal, fieldContentUsage, fieldLicense, fieldOther:
	}
}

func (l *linter) delay(value []byte, ok bool, wanted string) {
	switch {
	case !ok:
		l.warn("bad-delay", "%s is not %s", quote(value), wanted)
	case len(l.list) == 0:
		l.warn("delay-outside-group", "there is no user-agent line before this line")
	}
}

// secondDirective finds a field name with a colon inside a value.
func secondDirective(value []byte) string {
	folded := strings.ToLower(string(value))
	for _, name := range []string{"disallow:", "allow:", "user-agent:", "sitemap:", "crawl-delay:"} {
		if i := strings.Index(folded, name); i > 0 && isBlank(folded[i-1]) {
			return string(value[i : i+len(name)])
		}
	}
	return ""
}

func (l *linter) name(value []byte) {
	if l.closed || len(l.list) == 0 {
		l.endGroup()
		l.list, l.closed, l.shared, l.first = l.list[:0], false, false, l.s.number
	} else if l.s.number > l.last+1 && !l.shared {
		l.shared = true
		l.warn("shared-group", "no rule is between this name and the one in line %d: both crawlers share all rules", l.last)
	}
	l.list, l.last = append(l.list, strings.ToLower(string(trimToken(value)))), l.s.number
	letters := trimLetters(value)
	switch {
	case len(value) == 0:
		l.warn("empty-name", "the line names no crawler")
	case len(value) == 1 && isWildcard(value):
	case isWildcard(value):
		l.warn("odd-name", "only the * of %s counts", quote(value))
	case value[0] == '*' || len(trimToken(value)) == 0:
		l.warn("bad-name", "%s is not a product token, and * must be alone: the line names no crawler", quote(value))
	case value[max(bytes.IndexAny(value, ",;|("), 0)] != '(' && bytes.ContainsAny(value, ",;|"):
		l.warn("several-names", "a line names one crawler: of %s only %s counts", quote(value), quote(letters))
	case len(letters) == 0:
		l.warn("odd-name", "%s is not a product token (letters, - and _): the line applies only to crawlers with exactly this name",
			quote(trimToken(value)))
	case len(letters) < len(trimToken(value)):
		l.warn("odd-name", "%s is not a product token (letters, - and _): the line also applies to crawlers called %s",
			quote(trimToken(value)), quote(letters))
	case len(letters) < len(value):
		l.warn("odd-name", "only %s of %s counts", quote(letters), quote(value))
	}
}

// endGroup is called when a list of names is over, and at the end.
func (l *linter) endGroup() {
	unbound := func(name string) bool { return !l.bound[name] }
	if !l.closed && slices.ContainsFunc(l.list, unbound) {
		l.warnAt(l.first, "group-without-rules", "no rule follows: the crawlers named here may fetch everything")
	}
	for _, name := range l.list {
		l.bound[name] = true
	}
}

func (l *linter) rule(path []byte) {
	if len(l.list) == 0 {
		l.warn("rule-outside-group", "there is no user-agent line before this rule")
		return
	}
	l.closed = true
	if len(path) == 0 {
		return
	}
	l.path(path)
	if path[0] != '/' && path[0] != '*' {
		l.warn("path-without-slash", "%s can never match: paths begin with a slash", quote(path))
	}
}

// path reports oddities in the spelling of a path.
func (l *linter) path(path []byte) {
	if i := bytes.IndexByte(path, '$'); i >= 0 && i < len(path)-1 {
		l.warn("dollar-inside", "a $ that is not at the end of %s is a plain character", quote(path))
	}
	encoded, broken := false, false
	for i, c := range path {
		encoded = encoded || byteClass[c]&classIllegal != 0
		broken = broken || c == '%' && (i+2 >= len(path) || !isHex(path[i+1]) || !isHex(path[i+2]))
	}
	if encoded {
		l.warn("encoded-path", "%s has bytes that a URL can only have escaped: it is read as %s",
			quote(path), quote(appendCanonical(nil, path)))
	}
	if broken {
		l.warn("broken-escape", "a %% without two hex digits after it in %s is a plain character", quote(path))
	}
}

// compareRules looks for rules of the same crawlers that match the same targets. Of these, the
// highest decides.
func (l *linter) compareRules(data []byte) {
	s, p := newScanner(data, false), parser{}
	p.scan(&s)
	p.sortRules(p.compileBlocks(new(Ruleset), p.nameKeys()))
	var winner draft
	for i, d := range p.drafts {
		switch {
		case i == 0 || d.compareTargets(winner) != 0:
			winner = d
		case d.rank.allow() == winner.rank.allow() && bytes.Equal(d.path, winner.path):
			l.warnAt(d.rank.line(), "duplicate-rule", "line %d says the same", winner.rank.line())
		default:
			l.shadowed(d, winner)
		}
	}
}

func (l *linter) shadowed(loser, winner draft) {
	reason := "is longer"
	if loser.rank>>rankLength == winner.rank>>rankLength {
		reason = "came first"
		if loser.rank.allow() != winner.rank.allow() {
			reason = "allows, which wins if both have the same length"
		}
	}
	l.warnAt(loser.rank.line(), "shadowed-rule", "never decides: %s of line %d matches the same and %s",
		quote(winner.path), winner.rank.line(), reason)
}

// quote shows bytes of a file in unambiguous ASCII, and shortens them if there are many.
func quote(b []byte) string {
	const most = 80
	if len(b) > most {
		return fmt.Sprintf("%+.*q…", most, b)
	}
	return fmt.Sprintf("%+q", b)
}
