package robotstxt

import "encoding/binary"

// field is what the key of a line asks for.
type field uint8

const (
	fieldOther field = iota
	fieldUserAgent
	fieldAllow
	fieldDisallow
	fieldSitemap
	fieldCrawlDelay
	fieldRequestRate
	fieldPreference // Content-Signal, Content-Usage, License
)

// The letters of a key in one word. The bit that makes capitals small makes nothing else a letter.
const (
	allLower = 0x2020202020202020
	disallow = 'd' | 'i'<<8 | 's'<<16 | 'a'<<24 | 'l'<<32 | 'l'<<40 | 'o'<<48 | 'w'<<56
)

// isDisallow reports whether a line or key begins with the most frequent key, in one comparison.
func isDisallow(s []byte) bool {
	return len(s) >= 8 && binary.LittleEndian.Uint64(s)|allLower == disallow
}

// spellings are the keys that are read. Keys of rules, names and sitemaps may have anything behind
// them and may be misspelt in the ways that Google's parser forgives; the others must be exact.
var spellings = []struct {
	key   string
	exact bool
	field field
}{
	{"disallow", false, fieldDisallow},
	{"allow", false, fieldAllow},
	{"user-agent", false, fieldUserAgent},
	{"sitemap", false, fieldSitemap},
	{"crawl-delay", true, fieldCrawlDelay},
	{"request-rate", true, fieldRequestRate},
	{"content-signal", true, fieldPreference},
	{"content-usage", true, fieldPreference},
	{"license", true, fieldPreference},
	{"useragent", false, fieldUserAgent},
	{"user agent", false, fieldUserAgent},
	{"site-map", false, fieldSitemap},
	{"crawldelay", true, fieldCrawlDelay},
	{"crawl delay", true, fieldCrawlDelay},
	{"dissallow", false, fieldDisallow},
	{"dissalow", false, fieldDisallow},
	{"disalow", false, fieldDisallow},
	{"diasllow", false, fieldDisallow},
	{"disallaw", false, fieldDisallow},
}

// fieldOf recognises a key.
func fieldOf(key []byte) field {
	if isDisallow(key) {
		return fieldDisallow
	}
	for i := range spellings {
		s := &spellings[i]
		if n := len(s.key); len(key) == n || len(key) > n && !s.exact {
			if equalFold(key[:n], s.key) {
				return s.field
			}
		}
	}
	return fieldOther
}

// mayMatter reports whether a line that begins so can hold a field that is read.
func mayMatter(content []byte) bool {
	if len(content) == 0 {
		return false
	}
	switch lower(content[0]) {
	case 'd', 'a', 'u', 's', 'c', 'r', 'l':
		return true
	}
	return false
}

// equalFold compares with a lower-case string, ignoring the case of ASCII letters.
func equalFold[T ~string | ~[]byte](s T, lowerCase string) bool {
	if len(s) != len(lowerCase) {
		return false
	}
	for i := range len(lowerCase) {
		if lower(s[i]) != lowerCase[i] {
			return false
		}
	}
	return true
}
