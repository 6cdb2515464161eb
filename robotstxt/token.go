package robotstxt

import (
	"iter"
	"slices"
	"strings"
)

// maxProduct bounds the bytes of a product's name. A longer name matches no agent.
const maxProduct = 128

// Products returns the names of the products in the value of a User-Agent field (RFC 9110 section
// 10.1.5), without their versions and in the order of the field:
//
//   - each word outside of comments;
//   - in a comment, whose items end at a semicolon or a comma, each item after the word
//     "compatible", and each item that is a name with a version before an address, or a name with a
//     version that has "bot", "crawl" or "spider" in it. Words with which browsers fill their
//     comments (Linux, Windows, MSIE, Trident, …) are left out.
//
// A name is made of letters, digits, hyphens, underscores and dots, is up to 128 bytes long, and
// ends at any other byte ([IsProductName]). An address is a word with "://" or "@". Inside a
// comment an address is no product; outside, a URL is no product. A comment inside a comment is
// read as a part of it.
func Products(userAgent string) iter.Seq[string] {
	return func(yield func(string) bool) {
		s := productScanner{rest: userAgent}
		for p, ok := s.next(); ok; p, ok = s.next() {
			if !yield(p.name) {
				return
			}
		}
	}
}

// ProductToken returns the product token of the value of a User-Agent field, or "" if it has none,
// as with all browsers of today. It is the one of the field's [Products] that the field begins
// with. Where that is Mozilla, which all browsers say and many crawlers too, it is the first item
// after "compatible;" in a comment or, without one, the first product that
//
//   - is after "compatible;" outside of comments;
//   - or stands in a comment, with its version, before an address;
//   - or has "bot", "crawl" or "spider" in its name. In a comment it has to be a whole item, with a
//     version: there are telephones called Cubot.
//
// These are ExampleBot:
//
//	ExampleBot/1.0 (+https://example.com/bot)
//	Mozilla/5.0 (compatible; ExampleBot/1.0; +https://example.com/bot)
//	Mozilla/5.0 Gecko (KHTML, like Gecko); compatible; ExampleBot/1.0; +https://example.com/bot
//	Mozilla/5.0 (X11; Linux x86_64) Firefox/52.0 (ExampleBot/1.0; +https://example.com/bot)
//	Mozilla/5.0 (X11; Linux x86_64; ExampleBot/1.0) Gecko/20100101 Firefox/52.0
//	Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/52.0; ExampleBot
//
// The token may hold digits and dots, which RFC 9309 section 2.2.1 does not allow, as in w3m:
// [Agent] says how such names are compared.
func ProductToken(userAgent string) string {
	userAgent = strings.TrimLeft(userAgent, " \t")
	word, _ := cutWord(userAgent)
	first, _ := cutName(word)
	if !equalFold(first, "mozilla") {
		return first
	}
	token := ""
	s := productScanner{rest: userAgent}
	for p, ok := s.next(); ok; p, ok = s.next() {
		if p.place == announced {
			return p.name
		}
		if p.place == telling && token == "" {
			token = p.name
		}
	}
	return token
}

// IsProductName reports whether s may be the name of a product, as in [Products].
func IsProductName(s string) bool {
	name, version := cutName(s)
	return name != "" && version == ""
}

// place says what the position of a product means.
type place uint8

const (
	anywhere  place = iota
	telling         // only crawlers use this position
	announced       // after "compatible;" in a comment
)

// product is a product in a User-Agent field.
type product struct {
	name  string
	place place
}

// productScanner walks over a User-Agent field once.
type productScanner struct {
	rest       string
	depth      int  // of comments
	compatible bool // the word was in this comment or, outside, since the last one
	expected   bool // the word was the last item
}

// next returns the next product; ok is false after the last one.
func (s *productScanner) next() (p product, ok bool) {
	for s.rest != "" && !ok {
		c := s.rest[0]
		if isNameByte(c) {
			p, ok = s.item()
			continue
		}
		s.rest = s.rest[1:]
		switch c {
		case '(':
			s.depth++
		case ')':
			s.depth = max(s.depth-1, 0)
		default:
			continue
		}
		s.expected = false
		if s.depth == 0 || s.depth == 1 && c == '(' {
			s.compatible = false
		}
	}
	return p, ok
}

// item reads the word that begins here and, in a comment, the rest of its item.
func (s *productScanner) item() (p product, ok bool) {
	word, rest := cutWord(s.rest)
	inside, alone := s.depth > 0, true
	s.rest = rest
	if inside {
		var tail string
		tail, s.rest = cutItem(rest)
		alone = strings.TrimLeft(tail, " \t") == ""
	}
	name, version := cutName(word)
	expected := s.expected
	s.expected = false
	if equalFold(name, "compatible") {
		semicolon := strings.HasPrefix(strings.TrimLeft(rest, " \t"), ";")
		s.expected = semicolon && version == "" && !s.compatible
		s.compatible = true
	}
	colon := strings.HasPrefix(version, ":") || strings.HasPrefix(version, "@")
	p.name = name
	if !inside {
		if !colon && (expected && !isPlatform(name) || isRobot(name)) {
			p.place = telling
		}
		return p, name != ""
	}
	told := strings.HasPrefix(version, "/") && (alone && isRobot(name) || startsWithAddress(rest))
	switch {
	case expected:
		p.place = announced
	case told:
		p.place = telling
	}
	return p, name != "" && !colon && (s.compatible || told) && !isPlatform(name)
}

// cutWord cuts s at the end of its first word: at a blank, a separator or a parenthesis.
func cutWord(s string) (word, rest string) { return cutBefore(s, " \t;,()") }

// cutItem cuts s at the end of an item of a comment.
func cutItem(s string) (item, rest string) { return cutBefore(s, ";,()") }

func cutBefore(s, ends string) (before, rest string) {
	if i := strings.IndexAny(s, ends); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// cutName cuts the name of a product off a word. It is "" if the word is not a product.
func cutName(word string) (name, version string) {
	end := 0
	for end < len(word) && isNameByte(word[end]) {
		end++
	}
	name, version = word[:end], word[end:]
	if end > maxProduct || strings.HasPrefix(version, "://") {
		name = ""
	}
	return name, version
}

// isNameByte reports whether c may be in the name of a product.
func isNameByte(c byte) bool { return isUnreserved(c) && c != '~' }

// startsWithAddress reports whether the next word of the same comment, or outside of comments, is
// an address.
func startsWithAddress(s string) bool {
	word, _ := cutWord(strings.TrimLeft(s, " \t;,"))
	return strings.Contains(word, "://") || strings.Contains(word, "@")
}

// isPlatform reports whether name is a word for browsers, engines and systems: browsers fill their
// comments with these.
func isPlatform(name string) bool {
	return slices.ContainsFunc(platforms, func(w string) bool { return equalFold(name, w) })
}

var platforms = []string{
	"compatible", "mozilla", "msie", "trident", "gecko", "khtml", "like", "u",
	"linux", "x11", "windows", "win32", "win64", "macintosh", "android", "iphone", "ipad",
}

// isRobot reports whether name contains one of the words that crawlers use in their names.
func isRobot(name string) bool {
	for _, word := range [...]string{"bot", "crawl", "spider"} {
		for i := range max(len(name)-len(word)+1, 0) {
			if equalFold(name[i:i+len(word)], word) {
				return true
			}
		}
	}
	return false
}

// families are the crawlers that also obey groups other than their own. Google's tables disagree:
// docs/cli.md shows them and our choice.
var families = map[string]Agent{
	"googlebot-news":            {Tokens: []string{"Googlebot-News", "Googlebot"}},
	"googlebot-image":           {Tokens: []string{"Googlebot-Image", "Googlebot"}},
	"googlebot-video":           {Tokens: []string{"Googlebot-Video", "Googlebot"}},
	"googlebot-mobile":          {Tokens: []string{"Googlebot-Mobile", "Googlebot"}},
	"mediapartners-google":      {Tokens: []string{"Mediapartners-Google", "Mediapartners", "Googlebot"}},
	"adsbot-google":             {Tokens: []string{"AdsBot-Google"}, IgnoreWildcard: true},
	"adsbot-google-mobile":      {Tokens: []string{"AdsBot-Google-Mobile", "AdsBot-Google"}, IgnoreWildcard: true},
	"adsbot-google-mobile-apps": {Tokens: []string{"AdsBot-Google-Mobile-Apps", "AdsBot-Google"}, IgnoreWildcard: true},
}

// Family returns the Agent for a product token: for well-known crawlers with the tokens of their
// family, for all others with the token alone. The tokens must not be changed.
func Family(token string) Agent {
	token = trimToken(token)
	lowerCase := make([]byte, len(token))
	for i := range len(token) {
		lowerCase[i] = lower(token[i])
	}
	if a, ok := families[string(lowerCase)]; ok {
		return a
	}
	return Agent{Tokens: []string{token}}
}
