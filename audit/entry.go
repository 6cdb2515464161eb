package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/robotscache"
)

// entry has the fields of an access-log line that are read.
type entry struct {
	TS       stamp   `json:"ts"`
	Duration seconds `json:"duration"`
	Status   number  `json:"status"`
	// Request is what the line says of the request, besides what the robots object says.
	Request struct {
		Method   string `json:"method"`
		URI      string `json:"uri"`
		RemoteIP string `json:"remote_ip"`
		ClientIP string `json:"client_ip"`
		// Headers and TLS are objects, which the log's filter may have made something else.
		Headers json.RawMessage `json:"headers"`
		TLS     json.RawMessage `json:"tls"`
	} `json:"request"`
	Robots *enforce.Record `json:"robots"`
	// Answer is of a line about a robots.txt, which no request has.
	Answer *robotscache.Answer `json:"robots_txt"`
}

// number is 0 where a filter of the log has put a text.
type number int

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return nil
	}
	return json.Unmarshal(data, (*int)(n))
}

// Tunnel reports whether the line is about a tunnel, and so about no request: those in a tunnel
// that is looked into have lines of their own, and of others nothing is known.
func (e *entry) Tunnel() bool { return e.Request.Method == http.MethodConnect }

// readEntry reads a line. One without a robots object, and an empty one, has a nil Robots.
func readEntry(line []byte) (e entry, err error) {
	front, line := objectOf(line)
	switch {
	case len(line) == 0:
		return e, nil
	case line[0] != '{':
		return e, errors.New("it is no JSON object")
	}
	if err := json.Unmarshal(line, &e); err != nil {
		if bytes.Contains(line, []byte(`"robots"`)) {
			return e, fmt.Errorf("it is no access-log line: %w", err)
		}
		// A line of another logger may have fields of the same names and other types.
		if json.Valid(line) {
			return entry{}, nil
		}
		return e, fmt.Errorf("it is no JSON object: %w", err)
	}
	if at, _, _ := bytes.Cut(front, []byte{'\t'}); len(at) > 0 && e.TS.IsZero() {
		_ = e.TS.UnmarshalJSON(at)
	}
	return e, nil
}

// objectOf gives the JSON object of a line and the text in front of it. Caddy's encoder console
// puts time, level, logger and message there, its encoder journald a level such as <6>.
func objectOf(line []byte) (front, object []byte) {
	line = bytes.TrimSpace(line)
	if len(line) > 3 && line[0] == '<' && line[2] == '>' {
		line = line[3:]
	}
	if i := bytes.Index(line, []byte("\t{")); i > 0 && line[0] != '{' {
		return line[:i], line[i+1:]
	}
	return nil, line
}

// Began is when the request came, at the earliest; zero if the line does not say. Of one that was
// sent, its wait and its connection are reckoned back from there: its end may be long after it, and
// Caddy logs a duration of 0 where a handler panicked.
func (e *entry) Began() time.Time {
	if at := sentAt(e.Robots); !at.IsZero() {
		return at.Add(-time.Duration(e.Robots.WaitMillis+e.Robots.DialMillis) * time.Millisecond)
	}
	if e.TS.IsZero() || !e.Duration.given || e.Duration.Duration == 0 && e.Robots.Decision == enforce.OutcomeError {
		return time.Time{}
	}
	return e.TS.Add(-e.Duration.Duration - e.TS.early)
}

// ended is when the request ended: where the line has no time with a zone, when it was sent, which
// is known for sure, or in the zone UTC.
func (e *entry) ended() (at time.Time, sure bool) {
	switch {
	case e.TS.zoned():
	case e.Robots != nil && e.Robots.SentAt > 0:
		return sentAt(e.Robots), true
	case e.Answer != nil && !e.Answer.At.IsZero():
		return e.Answer.At, true
	}
	return e.TS.Time, e.TS.zoned()
}

// vague says what the times of a line leave open; empty if nothing.
func (e *entry) vague() string {
	switch {
	case e.TS.IsZero():
		return "no time that is known"
	case e.TS.early > 0:
		return "no zone"
	case e.TS.late >= time.Second:
		return "whole seconds"
	case !e.Duration.given:
		return "no duration"
	case !e.Duration.exact:
		return "a duration without a unit"
	}
	return ""
}

// evidenceOf returns the evidence that a line records.
func evidenceOf(r *enforce.Record) Evidence {
	return Evidence{string(r.Reason), r.Group, r.Rule, r.Line, r.CrawlDelay, r.Form}
}

// stamp is the time of a line: a number of seconds (Caddy's default), milliseconds or nanoseconds
// since 1970, told apart by their size, or a text in one of the forms that Caddy's encoders write.
// The zero value is a line without a time, or with one in a form of the operator's own.
type stamp struct {
	time.Time
	// early and late are by how much the line may have been written earlier or later.
	early, late time.Duration
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *stamp) UnmarshalJSON(data []byte) error {
	n, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		s.read(strings.ReplaceAll(string(bytes.Trim(data, `"`)), `\/`, "/"))
		return nil //nolint:nilerror // it is a text
	}
	const seconds, millis = 1e11, 1e14 // beyond the year 5000 in their unit
	switch {
	case n >= millis:
		s.Time = time.Unix(0, int64(n))
	case n >= seconds:
		s.Time = time.UnixMicro(int64(n * 1e3))
	default:
		s.Time = fromSeconds(n)
	}
	return nil
}

// read takes a time as a text. Go cuts off what a layout does not hold.
func (s *stamp) read(text string) {
	for _, layout := range stampLayouts {
		t, err := time.Parse(layout, text)
		if err != nil {
			continue
		}
		s.Time, s.late = t, time.Second
		if _, fraction, ok := strings.Cut(text, "."); ok {
			for i := 0; i < len(fraction) && fraction[i] >= '0' && fraction[i] <= '9'; i++ {
				s.late /= 10
			}
		}
		if !strings.HasSuffix(layout, "0700") && !strings.HasSuffix(layout, "07:00") {
			s.early, s.late = 14*time.Hour, s.late+12*time.Hour // the zones that there are
		}
		return
	}
}

// zoned reports whether the time is known but for what its form cuts off.
func (s *stamp) zoned() bool { return !s.IsZero() && s.early == 0 }

// stampLayouts are the layouts of Caddy's time_format that name the day, and of others those that
// are usual. time.Parse takes a fraction of a second with each.
var stampLayouts = []string{
	time.RFC3339, "2006-01-02T15:04:05Z0700", "02/Jan/2006:15:04:05 -0700", time.RFC1123Z,
	"2006/01/02 15:04:05", time.DateTime, "2006-01-02T15:04:05",
}

// seconds is a duration: a number of seconds (Caddy's default), milliseconds or nanoseconds, or a
// text such as 1.5s.
type seconds struct {
	time.Duration // at the most, where the line does not tell the unit
	given, exact  bool
}

// UnmarshalJSON implements json.Unmarshaler. Only seconds have a fraction.
func (s *seconds) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		d, err := time.ParseDuration(text)
		s.Duration, s.given, s.exact = d, err == nil, true
		return nil //nolint:nilerror // a filter of the log has put another text there
	}
	n, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return fmt.Errorf("duration: %s is no number", data)
	}
	const mostSeconds, mostMillis = 1e5, 1e8 // a day is less: a larger number is of the next unit
	s.given, s.exact = true, bytes.ContainsAny(data, ".eE") || n == 0
	switch {
	case s.exact || n < mostSeconds:
	case n < mostMillis:
		n /= 1e3
	default:
		n /= 1e9
	}
	s.Duration = toDuration(n)
	return nil
}

// fromSeconds is a time in seconds since 1970, which a float64 holds to a quarter of a microsecond.
func fromSeconds(n float64) time.Time { return time.UnixMicro(int64(math.Round(n * 1e6))) }

// toDuration is a number of seconds, within what a Duration can hold.
func toDuration(n float64) time.Duration {
	const most = float64(1<<63-1024) / 1e9
	return time.Duration(min(max(n, -most), most) * 1e9)
}
