package directives

import (
	"slices"
	"strings"
	"time"
)

const (
	// maxDate is the longest date in bytes.
	maxDate = 64
	// farthestAhead is the offset of the zone whose clocks are farthest ahead (Line Islands). A
	// time in an unknown zone is read as there: that is the earliest instant it can mean.
	farthestAhead = 14 * time.Hour
)

// zones are the zones of RFC 822 section 5.1, with the hours that they are ahead of UTC. Of the
// military letters, only Z is among them: RFC 822 had the signs of the others wrong, so they are
// meaningless (RFC 5322 section 4.3).
var zones = map[string]int{
	"": 0, "Z": 0, "UT": 0, "UTC": 0, "GMT": 0,
	"EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8, "PDT": -7,
}

// layouts are the forms of a date without the day of the week and the zone.
var layouts = [...]string{
	"2-Jan-06 15:04:05", "2-Jan-06 15:04", // RFC 850 section 2.1.4
	"2-Jan-2006 15:04:05", "2-Jan-2006 15:04", "2-Jan-2006", // as Google's first example had it
	"2 Jan 2006 15:04:05", "2 Jan 2006 15:04", "2 Jan 2006", // RFC 1123 section 5.2.14, RFC 5322
	"2 Jan 06 15:04:05", "2 Jan 06 15:04", // RFC 822 section 5.1
	"2006-01-02T15:04:05", "2006-01-02T15:04", "2006-01-02", // ISO 8601
	"2006-01-02 15:04:05", "2006-01-02 15:04", // RFC 3339 section 5.6 allows the space
	"20060102T150405Z0700", "20060102T150405", "20060102", // ISO 8601, the basic form
	"Jan 2 15:04:05 2006", // asctime (RFC 9110 section 5.6.7)
}

// cutDate reads the date at the beginning of s, which may contain a comma, and returns it in UTC
// with the rest after its comma. An unreadable date is the zero time: it ends at the first comma
// that does not follow a day of the week.
func cutDate(s string) (date time.Time, rest string) {
	first, behind, _ := strings.Cut(s, ",")
	second, last, _ := strings.Cut(behind, ",")
	if !isWeekday(strings.ToUpper(trim(first[:min(len(first), maxDate)]))) {
		return parseDate(first), behind
	}
	name, _, _ := strings.Cut(second, ":")
	if _, known := lookup(trim(name)); known || len(first) == len(s) {
		return time.Time{}, behind
	}
	return parseDate(s[:len(first)+1+len(second)]), last
}

// parseDate reads a date in one of the forms of layouts. Without a zone it is in UTC, as the dates
// of HTTP are.
//
// A year of two digits is one of 1977 to 2076. That is the rule of RFC 9110 section 5.6.7 (at most
// 50 years ahead) for the year 2026. It is fixed, so that an old log is always read in the same
// way.
func parseDate(s string) time.Time {
	if len(s) > maxDate {
		return time.Time{}
	}
	s, _, _ = strings.Cut(strings.ToUpper(s), "(") // a comment of RFC 822, as in "-0800 (PST)"
	s = trim(s)
	if i := strings.IndexAny(s, ", "); i > 0 && isWeekday(s[:i]) {
		s = strings.TrimLeft(s[i:], ", ")
	}
	s, zone := cutZone(s)
	offset, ok := zoneOffset(zone)
	if !ok {
		return time.Time{}
	}
	for _, layout := range layouts {
		t, err := time.Parse(layout, s)
		if err != nil {
			continue
		}
		if !strings.Contains(layout, "2006") && t.Year() < 1977 {
			t = t.AddDate(100, 0, 0) // time.Parse uses 1969 to 2068
		}
		if y := t.Year(); y < 1900 || y > 9998 {
			return time.Time{}
		}
		return t.Add(-offset).UTC()
	}
	return time.Time{}
}

// cutZone cuts off the zone, which begins with a letter or a sign after the first colon.
func cutZone(s string) (rest, zone string) {
	colon := strings.IndexByte(s, ':')
	if colon < 0 {
		return s, ""
	}
	i := strings.IndexFunc(s[colon:], func(c rune) bool { return c == '+' || c == '-' || 'A' <= c && c <= 'Z' })
	if i < 0 {
		return s, ""
	}
	return trim(s[:colon+i]), s[colon+i:]
}

// zoneOffset returns how far the clocks of a zone are ahead of UTC. ok is false if the text cannot
// be a zone.
func zoneOffset(zone string) (offset time.Duration, ok bool) {
	if strings.ContainsAny(zone, " \t,") {
		return 0, false
	}
	if hours, known := zones[zone]; known {
		return time.Duration(hours) * time.Hour, true
	}
	for _, layout := range [...]string{"-07:00", "-0700", "-07"} {
		if t, err := time.Parse(layout, zone); err == nil {
			_, seconds := t.Zone()
			return time.Duration(seconds) * time.Second, true
		}
	}
	return farthestAhead, true
}

// isWeekday reports whether s, in upper case, is a day of the week or the beginning of its name.
func isWeekday(s string) bool {
	days := []string{"MONDAY", "TUESDAY", "WEDNESDAY", "THURSDAY", "FRIDAY", "SATURDAY", "SUNDAY"}
	return len(s) >= 3 && slices.ContainsFunc(days, func(day string) bool { return strings.HasPrefix(day, s) })
}
