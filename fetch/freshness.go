package fetch

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// freshness is what an answer says about its own reuse (RFC 9111 section 5.2.2).
type freshness struct {
	maxAge    time.Duration
	hasMaxAge bool
	noCache   bool
}

// parseFreshness reads Cache-Control and Age.
//
// Of several lifetimes, max-age and s-maxage included, the shortest counts: seed
// 000 names max-age, RFC 9111 prefers s-maxage for a shared cache, and the
// shorter satisfies both. Age is taken off it, so that a copy out of somebody
// else's cache does not start its life again. no-cache and no-store both mean
// "ask again soon". Values that are no number are ignored. Expires is not read:
// neither seed 000 nor DESIGN section 3 names it, and many applications send one
// from the past on every answer.
func parseFreshness(h http.Header) freshness {
	var f freshness
	for directive := range headerList(h, "Cache-Control") {
		name, value, _ := strings.Cut(directive, "=")
		switch strings.ToLower(strings.TrimSpace(name)) {
		case "no-cache", "no-store":
			f.noCache = true
		case "max-age", "s-maxage":
			age, ok := parseSeconds(strings.Trim(strings.TrimSpace(value), `"`))
			if ok && (!f.hasMaxAge || age < f.maxAge) {
				f.maxAge, f.hasMaxAge = age, true
			}
		}
	}
	if !f.hasMaxAge {
		return f
	}
	if age, ok := parseSeconds(strings.TrimSpace(h.Get("Age"))); ok {
		f.maxAge = max(f.maxAge-age, 0)
	}
	return f
}

// headerList yields the elements of a comma-separated header field, trimmed and
// not empty. It does not know quoted strings: a comma inside one ends an element,
// which none of the fields read here can be misled by into a longer life.
func headerList(h http.Header, key string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, line := range h.Values(key) {
			for element := range strings.SplitSeq(line, ",") {
				if element = strings.TrimSpace(element); element != "" && !yield(element) {
					return
				}
			}
		}
	}
}

// parseRetryAfter reads a Retry-After field, seconds or date (RFC 9110 section
// 10.2.3), as a pause from now on. Garbage and the past give 0; a day is the most.
func parseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if pause, ok := parseSeconds(value); ok {
		return min(pause, maxRetryAfter)
	}
	date, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return min(max(date.Sub(now), 0), maxRetryAfter)
}

// maxSeconds is where delta-seconds stop to count (RFC 9111 section 1.2.2).
const maxSeconds = 1 << 31

// parseSeconds reads the delta-seconds of RFC 9111 section 1.2.2: digits only. A
// number too large for its type is a very long time, not an error.
func parseSeconds(s string) (time.Duration, bool) {
	if s == "" || strings.Trim(s, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > maxSeconds {
		n = maxSeconds
	}
	return time.Duration(n) * time.Second, true
}
