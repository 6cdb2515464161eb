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

// fieldOf recognises a key. Keys of rules, names and sitemaps may have anything behind them and may
// be misspelt in the ways that Google's parser forgives; the others must be exact.
func fieldOf(key []byte) field {
	if len(key) == 0 {
		return fieldOther
	}
	switch lower(key[0]) {
	case 'd':
		if isDisallow(key) || hasAnyPrefix(key, "dissallow", "dissalow", "disalow", "diasllow", "disallaw") {
			return fieldDisallow
		}
	case 'a':
		if hasAnyPrefix(key, "allow") {
			return fieldAllow
		}
	case 'u':
		if hasAnyPrefix(key, "user-agent", "useragent", "user agent") {
			return fieldUserAgent
		}
	case 's':
		if hasAnyPrefix(key, "sitemap", "site-map") {
			return fieldSitemap
		}
	case 'c':
		if isAny(key, "crawl-delay", "crawldelay", "crawl delay") {
			return fieldCrawlDelay
		}
		if isAny(key, "content-signal", "content-usage") {
			return fieldPreference
		}
	case 'r':
		if isAny(key, "request-rate") {
			return fieldRequestRate
		}
	case 'l':
		if isAny(key, "license") {
			return fieldPreference
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

func hasAnyPrefix(key []byte, prefixes ...string) bool {
	for _, p := range prefixes {
		if len(key) >= len(p) && equalFold(key[:len(p)], p) {
			return true
		}
	}
	return false
}

func isAny(key []byte, names ...string) bool {
	for _, n := range names {
		if equalFold(key, n) {
			return true
		}
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
