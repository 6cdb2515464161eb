package pace

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Rate is an operator's rate: Count requests in every Per. The zero Rate is
// "off": no rate, which leaves Crawl-delay, concurrency and blocks in force.
type Rate struct {
	Count int
	Per   time.Duration
}

const (
	maxRateCount = 1_000_000
	maxRatePer   = 24 * time.Hour
	// minInterval keeps "1000000/1ms" from meaning "off".
	minInterval = time.Microsecond
)

// ParseRate reads "5/s", "30/m", "100/h", "1/10s", "1/1m30s" or "off". The
// count is a whole number from 1 to 1,000,000; the time is s, m, h or a duration
// of at most a day. Anything else is an error that says what is wrong.
func ParseRate(s string) (Rate, error) {
	if s == "off" {
		return Rate{}, nil
	}
	count, per, found := strings.Cut(s, "/")
	if !found {
		return Rate{}, fmt.Errorf("parsing rate %q: want COUNT/TIME, such as 5/s, 30/m or 1/10s, or off", s)
	}
	n, err := strconv.ParseUint(count, 10, 32)
	switch {
	case err != nil || count[0] == '+':
		return Rate{}, fmt.Errorf("parsing rate %q: count %q is not a whole number (write 1/2s for one request every two seconds)", s, count)
	case n == 0:
		return Rate{}, fmt.Errorf("parsing rate %q: count is 0 (write off for no rate; to refuse a host, deny it)", s)
	case n > maxRateCount:
		return Rate{}, fmt.Errorf("parsing rate %q: count %s is above %d", s, count, maxRateCount)
	}
	d, err := parsePer(per)
	if err != nil {
		return Rate{}, fmt.Errorf("parsing rate %q: %w", s, err)
	}
	r := Rate{Count: int(n), Per: d}
	if r.Interval() < minInterval {
		return Rate{}, fmt.Errorf("parsing rate %q: more than one request every %s; write off for no rate", s, minInterval)
	}
	return r, nil
}

func parsePer(per string) (time.Duration, error) {
	switch per {
	case "s":
		return time.Second, nil
	case "m":
		return time.Minute, nil
	case "h":
		return time.Hour, nil
	case "":
		return 0, fmt.Errorf("the time after / is missing")
	}
	d, err := time.ParseDuration(per)
	switch {
	case err != nil || per[0] == '+':
		return 0, fmt.Errorf("time %q is not s, m, h or a duration such as 10s", per)
	case d <= 0:
		return 0, fmt.Errorf("time %q is not above zero", per)
	case d > maxRatePer:
		return 0, fmt.Errorf("time %q is above %s", per, maxRatePer)
	}
	return d, nil
}

// Interval is the time between two requests, rounded up so that the rate is
// never exceeded; zero when the rate is off.
func (r Rate) Interval() time.Duration {
	if r.Count <= 0 {
		return 0
	}
	n := time.Duration(r.Count)
	return (r.Per + n - 1) / n
}

// String is the form that ParseRate reads.
func (r Rate) String() string {
	if r.Count <= 0 {
		return "off"
	}
	switch r.Per {
	case time.Second:
		return fmt.Sprintf("%d/s", r.Count)
	case time.Minute:
		return fmt.Sprintf("%d/m", r.Count)
	case time.Hour:
		return fmt.Sprintf("%d/h", r.Count)
	default:
		return fmt.Sprintf("%d/%s", r.Count, r.Per)
	}
}
