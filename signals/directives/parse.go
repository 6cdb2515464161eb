package directives

import (
	"slices"
	"strconv"
	"strings"
)

const (
	// maxLines is how many field lines, or meta tags of the crawler, are read.
	maxLines = 32
	// maxLine is how many bytes of each are read.
	maxLine = 4 << 10
)

// Named is a meta tag. It is an alias, so that a package that finds them need not import this one.
type Named = struct{ Name, Content string }

// Header reads the lines of X-Robots-Tag for a crawler with the given product tokens. The lines
// must not have been joined: the scope of an agent ends with its line.
//
//	noindex, max-snippet: 50            every crawler
//	googlebot: noindex, nofollow        Googlebot alone, both directives
//	noarchive, otherbot: nofollow       every crawler; otherbot alone
//
// A word before a colon is a product token, unless it is a directive. Its scope ends at the next
// token or at the end of the line. "*" and "robots" mean every crawler. Words that begin with
// "max-" count as future directives. A version after a token is ignored, as in robots.txt (Google's
// guide of 2012: "Googlebot/1.2 and Googlebot* are equivalent to Googlebot").
//
// Directives for any of tokens count, and directives for every crawler. They add up ("the sum of
// the negative directives", Google's guide of 2012), while in robots.txt only the most specific
// group is followed. So Googlebot-News with the tokens Googlebot-News and Googlebot is bound by
// both names.
func Header(values, tokens []string) Set {
	r := reader{tokens: tokens, scopes: true}
	for _, line := range values {
		r.line(line)
	}
	return r.set
}

// Meta reads meta tags for a crawler with the given product tokens: the tags named robots or one of
// tokens. They add up as in Header (Google's guide of 2012: nofollow for robots and noindex for
// googlebot both hold for Googlebot). The content of a tag has no scopes of agents. [Reserved]
// tokens never match a tag.
func Meta(metas []Named, tokens []string) Set {
	r := reader{tokens: tokens}
	for _, m := range metas {
		name := trim(m.Name)
		if strings.EqualFold(name, "robots") || r.isOwn(name) && !Reserved(name) {
			r.line(m.Content)
		}
	}
	return r.set
}

// Reserved reports whether HTML gives the name of a meta tag another meaning (HTML section 4.2.5.1
// and its registry), so that a tag with this name cannot address a crawler.
func Reserved(name string) bool {
	switch strings.ToLower(name) {
	case "application-name", "author", "color-scheme", "copyright", "description", "generator",
		"keywords", "rating", "referrer", "theme-color", "viewport", "tdm-reservation", "tdm-policy":
		return true
	}
	return false
}

// reader collects directives for one crawler.
type reader struct {
	set    Set
	tokens []string
	scopes bool // product tokens may stand before directives
	bound  bool // the directives that follow are for the crawler
	lines  int
}

type word struct {
	flags Flags
	date  bool                          // a date follows, which may have commas in it
	read  func(s Set, value string) Set // adds the value that follows; nil for none
}

// words are all known words in lower case.
var words = func() map[string]word {
	known := map[string]word{
		"all": {}, "index": {}, "follow": {}, "archive": {}, "snippet": {}, "imageindex": {}, "translate": {}, "odp": {},
		"none":              {flags: NoIndex | NoFollow},
		"unavailable_after": {date: true},
		"max-snippet":       {read: func(s Set, value string) Set { s.MaxSnippet = s.MaxSnippet.join(maximum(value)); return s }},
		"max-image-preview": {read: func(s Set, value string) Set {
			s.MaxImage = smallerPreview(s.MaxImage, strings.ToLower(value))
			return s
		}},
		"max-video-preview": {read: func(s Set, value string) Set { s.MaxVideo = s.MaxVideo.join(maximum(value)); return s }},
	}
	for i, name := range flagNames {
		known[name] = word{flags: 1 << i}
	}
	return known
}()

func lookup(name string) (word, bool) {
	w, ok := words[strings.ToLower(name)]
	return w, ok
}

// line reads one field line or the content of one tag.
func (r *reader) line(s string) {
	r.lines++
	if r.lines > maxLines {
		r.set.Cut = true
		return
	}
	if len(s) > maxLine {
		// Half a directive could be a different one, so the line ends at the last comma.
		r.set.Cut = true
		s = s[:strings.LastIndexByte(s[:maxLine], ',')+1]
	}
	r.bound = true
	for s != "" {
		s = r.item(s)
	}
}

// item reads the first directive of s, or the token before it, and returns the rest.
func (r *reader) item(s string) string {
	text, rest, _ := strings.Cut(s, ",")
	name, val, colon := strings.Cut(text, ":")
	behind := s[min(len(name)+1, len(s)):]
	name = trim(name)
	w, known := lookup(name)
	switch {
	case !colon:
		r.words(trim(text))
	case known && w.date:
		date, rest := cutDate(behind)
		if r.bound {
			r.set.say(date)
		}
		return rest
	case known && w.read == nil:
		r.add(w.flags) // after such a colon is one more directive, if anything
		return behind
	case known && r.bound:
		r.set = w.read(r.set, trim(val))
	case known:
	case r.scopes && isToken(name):
		r.bound = name == "*" || strings.EqualFold(name, "robots") || r.isOwn(product(name))
		return behind
	}
	return rest
}

// words reads a text without a colon: a directive, or several that only have space between them,
// which some pages write. A text with any other word says nothing.
func (r *reader) words(text string) {
	var sum Flags
	for name := range strings.FieldsSeq(text) {
		w, known := lookup(name)
		if !known || w.date || w.read != nil {
			return
		}
		sum |= w.flags
	}
	r.add(sum)
}

// maximum reads the value of a directive that bounds something. An unreadable value says nothing,
// as for Google.
func maximum(value string) Maximum {
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || n < -1 {
		return Maximum{}
	}
	return Maximum{Said: true, N: int(n)}
}

func (r *reader) add(flags Flags) {
	if r.bound {
		r.set.Flags |= flags
	}
}

// isOwn reports whether name is one of the crawler's names.
func (r *reader) isOwn(name string) bool {
	return name != "" && slices.ContainsFunc(r.tokens, func(t string) bool { return strings.EqualFold(t, name) })
}

// isToken reports whether a word before a colon names a crawler.
func isToken(name string) bool {
	if name == "*" {
		return true
	}
	p := product(name)
	if p == "" || len(p) >= 4 && strings.EqualFold(p[:4], "max-") {
		return false
	}
	version := name[len(p):]
	return version == "" || (version[0] == '/' || version[0] == '*') && !strings.ContainsAny(version, " \t")
}

// product returns the letters, digits, hyphens, underscores and dots at the beginning of name.
func product(name string) string {
	for i := range len(name) {
		switch c := name[i]; {
		case 'a' <= c|0x20 && c|0x20 <= 'z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
		default:
			return name[:i]
		}
	}
	return name
}
