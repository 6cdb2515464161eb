package pace

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	maxRateCount = 1_000_000
	maxRatePer   = 24 * time.Hour
	// minInterval keeps "1000000/1ms" from meaning "off".
	minInterval = time.Microsecond
)

// ParseRate reads an operator's rate as the time between two requests: "5/s", "30/m", "100/h",
// "1/10s", "1/1m30s" or "off". The count is a whole number from 1 to 1,000,000; the time is s, m, h
// or a duration of at most a day. Off is zero: no rate, while Crawl-delay, concurrency and blocks
// still apply. Anything else is an error.
func ParseRate(s string) (interval time.Duration, err error) {
	if s == "off" {
		return 0, nil
	}
	count, per, found := strings.Cut(s, "/")
	if !found {
		return 0, fmt.Errorf("parsing rate %q: want COUNT/TIME, such as 5/s, 30/m or 1/10s, or off", s)
	}
	n, err := strconv.ParseUint(count, 10, 32)
	switch {
	case err != nil:
		return 0, fmt.Errorf("parsing rate %q: count %q is not a whole number "+
			"(write 1/2s for one request every two seconds)", s, count)
	case n == 0:
		return 0, fmt.Errorf("parsing rate %q: count is 0 (write off for no rate; to refuse a host, deny it)", s)
	case n > maxRateCount:
		return 0, fmt.Errorf("parsing rate %q: count %s is above %d", s, count, maxRateCount)
	}
	d, err := parsePer(per)
	if err != nil {
		return 0, fmt.Errorf("parsing rate %q: %w", s, err)
	}
	interval = (d + time.Duration(n) - 1) / time.Duration(n) // so that the rate is never exceeded
	if interval < minInterval {
		return 0, fmt.Errorf("parsing rate %q: more than one request every %s; write off for no rate", s, minInterval)
	}
	return interval, nil
}

func parsePer(per string) (time.Duration, error) {
	units := map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour}
	if d, ok := units[per]; ok {
		return d, nil
	}
	d, err := time.ParseDuration(per)
	switch {
	case per == "":
		return 0, fmt.Errorf("the time after / is missing")
	case err != nil || per[0] == '+':
		return 0, fmt.Errorf("time %q is not s, m, h or a duration such as 10s", per)
	case d <= 0:
		return 0, fmt.Errorf("time %q is not above zero", per)
	case d > maxRatePer:
		return 0, fmt.Errorf("time %q is above %s", per, maxRatePer)
	}
	return d, nil
}
