package robotstxt

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// field is the meaning of a line's key.
type field uint8

const (
	fieldOther field = iota
	fieldUserAgent
	fieldAllow
	fieldDisallow
	fieldSitemap
	fieldCrawlDelay
	fieldRequestRate
	fieldVisitTime
	fieldContentSignal
	fieldContentUsage
	fieldLicense
)

// spellings are the recognised keys: the names of the fields, and the misspellings that Google's
// parser accepts. Keys of rules, names and sitemaps may end in s or ed as well.
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
	{"visit-time", true, fieldVisitTime},
	{"content-signal", true, fieldContentSignal},
	{"content-usage", true, fieldContentUsage},
	{"license", true, fieldLicense},
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

// fieldOf recognises a key. A longer name that begins with one of these is a different field.
// Google's parser treats DisallowAITraining as Disallow, but RFC 9309 section 2.2 has exact names,
// and by section 2.2.4 other records must not interfere.
func fieldOf(key []byte) field {
	isInvisible := func(r rune) bool { return r == ' ' || r == utf8.RuneError || !unicode.IsPrint(r) } // such as a no-break space
	key = bytes.TrimRightFunc(key, isInvisible)
	for i := range spellings {
		s := &spellings[i]
		n := len(s.key)
		if len(key) < n || !equalFold(key[:n], s.key) {
			continue
		}
		if end := key[n:]; len(end) == 0 || !s.exact && (equalFold(end, "s") || equalFold(end, "ed")) {
			return s.field
		}
	}
	return fieldOther
}

// parseCrawlDelay reads seconds as decimal digits with at most one point. It rejects signs,
// exponents, units and decimal commas, because other crawlers interpret them too differently to
// guess what a site means.
func parseCrawlDelay(s []byte) (time.Duration, bool) {
	whole, fraction, _ := bytes.Cut(s, []byte{'.'})
	if len(whole)+len(fraction) == 0 || !isDigits(whole) || !isDigits(fraction) {
		return 0, false
	}
	fraction = fraction[:min(len(fraction), len("nnnnnnnnn"))]
	d, err := time.ParseDuration(string(whole) + "." + string(fraction) + "s")
	if err != nil { // it is too long
		return math.MaxInt64, true
	}
	return d, true
}

// parseRequestRate reads documents/period, both of up to 18 digits, with an optional unit s, m, h
// or d of the period. The delay is period/documents.
func parseRequestRate(s []byte) (time.Duration, bool) {
	left, right, _ := bytes.Cut(s, []byte{'/'})
	unit := time.Second
	if n := len(right); n > 0 {
		switch lower(right[n-1]) {
		case 's':
			right = right[:n-1]
		case 'm':
			right, unit = right[:n-1], time.Minute
		case 'h':
			right, unit = right[:n-1], time.Hour
		case 'd':
			right, unit = right[:n-1], 24*time.Hour
		}
	}
	documents, period := parseDigits(left), parseDigits(right)
	if documents <= 0 || period < 0 {
		return 0, false
	}
	hi, lo := bits.Mul64(uint64(period), uint64(unit))
	if hi >= uint64(documents) {
		return math.MaxInt64, true
	}
	quotient, _ := bits.Div64(hi, lo, uint64(documents))
	return time.Duration(min(quotient, math.MaxInt64)), true
}

// parseVisitTime reads two different times of the day, such as 0600-0845. Spaces around the hyphen
// are optional. 2400 is the end of the day.
func parseVisitTime(s []byte) (v VisitTime, ok bool) {
	from, to, _ := bytes.Cut(s, []byte{'-'})
	var begins, ends bool
	v.From, begins = parseTimeOfDay(trimRight(from))
	v.To, ends = parseTimeOfDay(trimLeft(to))
	return v, begins && ends && v.From != v.To && v.From < minutesOfDay
}

const minutesOfDay = 24 * 60

// parseTimeOfDay reads HHMM as minutes.
func parseTimeOfDay(s []byte) (minutes uint16, ok bool) {
	if len(s) != len("HHMM") || !isDigits(s) {
		return 0, false
	}
	n := uint16(parseDigits(s))
	minutes = n/100*60 + n%100
	return minutes, n%100 < 60 && minutes <= minutesOfDay
}

// parseDigits reads up to 18 decimal digits, which always fit. A negative result means that there
// are none.
func parseDigits(s []byte) int64 {
	n, err := strconv.ParseInt(string(s), 10, 64)
	if err != nil || len(s) > 18 || !isDigits(s) {
		return -1
	}
	return n
}

func isDigits(s []byte) bool { return len(bytes.Trim(s, "0123456789")) == 0 }
