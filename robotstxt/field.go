package robotstxt

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
