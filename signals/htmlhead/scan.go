package htmlhead

import (
	"bytes"
	"cmp"
	"slices"
	"strings"

	"golang.org/x/net/html"
)

const (
	// maxTag is the longest tag in bytes. A longer one is not read.
	maxTag = 4 << 10
	// maxFound is how many tags of each kind are kept.
	maxFound = 32
	// smallHead is the size up to which a head is tokenized directly, because searching the whole page
	// for the names would take longer.
	smallHead = 8 << 10
)

// Named is a meta tag: its name in lower case and its content as it was written, in the page's own
// charset. It is an alias of the type of the same name in the package directives.
type Named = struct{ Name, Content string }

// Options describe the page and the tags to look for.
type Options struct {
	// Names are the product tokens of the agent, compared without case of ASCII. A token that HTML
	// itself gives a meaning as the name of a meta tag should not be among them.
	Names []string
	// XHTML says that <script/> is a whole element, as in application/xhtml+xml.
	XHTML bool
	// Whole says that the copy is the whole body, so that nothing can be missing after it.
	Whole bool
}

// Metas has the tags found, each kind in the order of the page, 32 at most.
type Metas struct {
	Robots   []Named  // of the name robots and of the agent's names
	TDM      []Named  // of the names tdm-reservation and tdm-policy
	Licenses []string // the href of each <link rel=license type=application/rsl+xml>
}

// Every page is searched for these, and for the names of the agent.
const (
	robotsName = "robots"
	tdmPrefix  = "tdm-"
	rslType    = "application/rsl+xml"
	reference  = "&#" // begins a character reference, which can spell a name
)

// Scan reads the beginning of a decoded page up to <body, its end or, after </head>, a tag that
// cannot be in a head: a browser moves the tags between the two into the head (HTML section
// 13.2.6.4.6). Cut reports that the page may say more: the copy ended too early, there was too much
// of something, or the page is in UTF-16 or UTF-32.
//
// A page whose head does not seem to end within 8 KiB is tokenized only if one of the names, or a
// character reference, occurs in or shortly after a meta or link tag. Without a name in such a
// page, an end of the head inside a comment or a script counts as its end.
//
// Tags inside of comments, script, style, title and the like do not count, nor do tags inside of a
// template, as in browsers. Tags inside of noscript count: browsers without scripts read them, and
// most crawlers run no scripts.
func Scan(page []byte, o Options) (m Metas, cut bool) {
	if isWide(page) {
		return Metas{}, true
	}
	if !headEnds(page[:min(smallHead, len(page))]) && !o.mayHold(page) {
		return Metas{}, !o.Whole && !headEnds(page)
	}
	return o.tokenize(page)
}

// isWide reports whether a page is in UTF-16 or UTF-32: it has the mark, or a zero byte next to its
// first byte.
func isWide(page []byte) bool {
	return len(page) >= 2 && (page[0] == 0xfe && page[1] == 0xff || page[0] == 0xff && page[1] == 0xfe ||
		page[0] == 0 || page[1] == 0)
}

// mayHold reports whether a name occurs within maxTag bytes of the first to the last beginning of a
// meta or link tag. Without one, tokenize finds nothing.
func (o Options) mayHold(page []byte) bool {
	first, last := -1, -1
	for i := 0; ; i++ {
		next := bytes.IndexByte(page[i:], '<')
		if next < 0 {
			break
		}
		i += next
		if isTag(page[i:], "meta") || isTag(page[i:], "link") {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	return first >= 0 && o.names(page[first:min(last+maxTag, len(page))])
}

// names reports whether s contains one of the names that Scan looks for.
func (o Options) names(s []byte) bool {
	return containsFold(s, robotsName) || containsFold(s, tdmPrefix) || containsFold(s, rslType) || containsFold(s, reference) ||
		slices.ContainsFunc(o.Names, func(name string) bool { return name != "" && containsFold(s, name) })
}

// headEnds reports whether a page contains </head or <body.
func headEnds(page []byte) bool {
	return containsFold(page, "</head") || containsFold(page, "<body")
}

// tokenize is Scan without the search before it.
func (o Options) tokenize(page []byte) (m Metas, cut bool) {
	z := html.NewTokenizer(bytes.NewReader(page))
	z.AllowCDATA(o.XHTML)
	templates, ended := 0, false
	for {
		kind := z.Next()
		switch kind {
		case html.ErrorToken:
			return m, cut || !o.Whole
		case html.StartTagToken, html.SelfClosingTagToken:
		case html.EndTagToken:
			switch {
			case templates > 0 && isTag(z.Raw(), "/template"):
				templates--
			case templates == 0 && isTag(z.Raw(), "/head"):
				ended = true
			}
			continue
		default:
			continue
		}
		raw := z.Raw()
		whole := o.XHTML && kind == html.SelfClosingTagToken
		switch {
		case whole || isTag(raw, "noscript"):
			z.NextIsNotRawText()
		case isTag(raw, "template"):
			templates++
		case templates == 0 && (isTag(raw, "body") || ended && !inHead(raw)):
			return m, cut
		}
		if templates == 0 {
			cut = o.tag(z, raw, &m) || cut
		}
	}
}

// inHead reports whether a start tag can be in a head.
func inHead(raw []byte) bool {
	return slices.ContainsFunc([]string{"meta", "link", "script", "style", "title", "base", "noscript", "noframes", "template", "head", "html"},
		func(name string) bool { return isTag(raw, name) })
}

// tag adds what a tag says to m, and reports whether it is too long, or there is no room for it.
func (o Options) tag(z *html.Tokenizer, raw []byte, m *Metas) (full bool) {
	isMeta := isTag(raw, "meta")
	if !isMeta && !isTag(raw, "link") || len(raw) > maxTag {
		return isMeta || isTag(raw, "link")
	}
	var name, content, value, rel, mediaType, href string
	for more := true; more; {
		var key, val []byte
		key, val, more = z.TagAttr()
		switch string(key) {
		case "name":
			name = trim(string(val))
		case "content":
			content = string(val)
		case "value":
			value = string(val)
		case "rel":
			rel = string(val)
		case "type":
			mediaType = string(val)
		case "href":
			href = trim(string(val))
		}
	}
	if !isMeta {
		isLicense := func(word string) bool { return strings.EqualFold(word, "license") }
		if isMediaType(mediaType, rslType) && href != "" && slices.ContainsFunc(strings.Fields(rel), isLicense) {
			return add(&m.Licenses, href)
		}
		return false
	}
	content = cmp.Or(content, value) // an example in Google's guide of 2012 has value
	switch lower := strings.ToLower(name); {
	case lower == "tdm-reservation" || lower == "tdm-policy":
		return add(&m.TDM, Named{lower, content})
	case lower == robotsName || o.isAgent(name):
		return add(&m.Robots, Named{lower, content})
	}
	return false
}

// add appends to a list that has room for maxFound.
func add[T any](list *[]T, item T) (full bool) {
	if len(*list) == maxFound {
		return true
	}
	*list = append(*list, item)
	return false
}

func (o Options) isAgent(name string) bool {
	return name != "" && slices.ContainsFunc(o.Names, func(n string) bool { return len(n) == len(name) && hasFold([]byte(name), n) })
}

// isMediaType reports whether the value of a Content-Type field, or of a type attribute, has a
// given media type, with any parameters.
func isMediaType(value, mediaType string) bool {
	value, _, _ = strings.Cut(value, ";")
	return strings.EqualFold(trim(value), mediaType)
}

// isTag reports whether s begins with a tag of that name; the name of an end tag begins with a
// slash.
func isTag(s []byte, name string) bool {
	if len(s) < len(name)+2 || !hasFold(s[1:], name) {
		return false
	}
	switch s[len(name)+1] {
	case ' ', '\t', '\n', '\f', '\r', '/', '>':
		return true
	}
	return false
}

// containsFold reports whether s contains a text, ignoring the case of ASCII letters.
func containsFold(s []byte, text string) bool {
	lower := fold(text[0])
	upper := lower
	if 'a' <= lower && lower <= 'z' {
		upper -= 'a' - 'A'
	}
	return findFold(s, lower, text) || upper != lower && findFold(s, upper, text)
}

// findFold is containsFold for a text whose first letter is c in s.
func findFold(s []byte, c byte, text string) bool {
	for {
		i := bytes.IndexByte(s, c)
		if i < 0 || len(s)-i < len(text) {
			return false
		}
		if hasFold(s[i:], text) {
			return true
		}
		s = s[i+1:]
	}
}

// hasFold reports whether s begins with a text, ignoring the case of ASCII letters.
func hasFold(s []byte, text string) bool {
	if len(s) < len(text) {
		return false
	}
	for i := range len(text) {
		if s[i] != text[i] && fold(s[i]) != fold(text[i]) {
			return false
		}
	}
	return true
}

func fold(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// trim removes the white space of HTML from both ends.
func trim(s string) string { return strings.Trim(s, " \t\r\n\f") }
