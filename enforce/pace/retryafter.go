package pace

import (
	"net/http"
	"strings"
	"time"
)

// ParseRetryAfter reads a Retry-After field (RFC 9110 §10.2.3): whole seconds,
// or a date, taken against now. The answer is zero when the field is missing,
// unreadable, zero or in the past: none of these says how long to stay away,
// and [Pacer.Blocked] then uses a pause of its own. Seconds too many to count
// are a year.
func ParseRetryAfter(value string, now time.Time) time.Duration {
	value = strings.Trim(value, " \t")
	if value == "" {
		return 0
	}
	if strings.Trim(value, "0123456789") == "" {
		return retrySeconds(value)
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	return clip(at.Sub(now))
}

// retrySeconds reads ASCII digits, however many.
func retrySeconds(digits string) time.Duration {
	var d time.Duration
	for _, c := range []byte(digits) {
		d = d*10 + time.Duration(c-'0')*time.Second
		if d >= longest {
			return longest
		}
	}
	return d
}
