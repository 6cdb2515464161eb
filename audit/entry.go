package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// entry has the fields of an access-log line that are read.
type entry struct {
	TS       stamp   `json:"ts"`
	Duration seconds `json:"duration"`
	Status   int     `json:"status"`
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
}

// readEntry reads a line. One without a robots object, and an empty one, has a nil Robots.
func readEntry(line []byte) (e entry, err error) {
	switch line = bytes.TrimSpace(line); {
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
	return e, nil
}

// began is when the request came, zero if the line does not say. Of one that was sent, its wait and
// its connection are reckoned back from there: its end may be long after it, and Caddy logs a
// duration of 0 where a handler panicked.
func (e *entry) began() time.Time {
	if at := sentAt(e.Robots); !at.IsZero() {
		return at.Add(-time.Duration(e.Robots.WaitMillis+e.Robots.DialMillis) * time.Millisecond)
	}
	if e.TS.IsZero() || !e.Duration.given || e.Duration.Duration == 0 && e.Robots.Decision == enforce.OutcomeError {
		return time.Time{}
	}
	return e.TS.Add(-e.Duration.Duration)
}

// evidenceOf returns the evidence that a line records.
func evidenceOf(r *enforce.Record) Evidence {
	return Evidence{string(r.Reason), r.Group, r.Rule, r.Line, r.CrawlDelay, r.Form}
}

// stamp is the time of a line: a number of seconds (Caddy's default), milliseconds or nanoseconds
// since 1970, told apart by their size, or a text in one of the forms that Caddy's encoders write.
// The zero value is a line without a time.
type stamp struct{ time.Time }

// UnmarshalJSON implements json.Unmarshaler.
func (s *stamp) UnmarshalJSON(data []byte) error {
	if data[0] != '"' {
		n, err := strconv.ParseFloat(string(data), 64)
		if err != nil {
			return fmt.Errorf("ts: %s is no time", data)
		}
		const seconds, millis = 1e11, 1e14 // beyond the year 5000 in their unit
		switch {
		case n >= millis:
			s.Time = time.Unix(0, int64(n))
		case n >= seconds:
			s.Time = time.UnixMicro(int64(n * 1e3))
		default:
			// A float64 of so many seconds is good for a quarter of a microsecond.
			s.Time = time.UnixMicro(int64(math.Round(n * 1e6)))
		}
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil {
		return fmt.Errorf("ts: %w", err)
	}
	for _, layout := range stampLayouts {
		if t, err := time.Parse(layout, text); err == nil {
			s.Time = t
			return nil
		}
	}
	return fmt.Errorf("ts: %q is in no known form", text)
}

// stampLayouts are the layouts of Caddy's time_format that name the day, the zone UTC where they
// have none.
var stampLayouts = []string{
	time.RFC3339Nano, "2006-01-02T15:04:05.000Z0700",
	"2006/01/02 15:04:05.000", "2006/01/02 15:04:05.000000000", "2006/01/02 15:04:05", "02/Jan/2006:15:04:05 -0700",
}

// seconds is a duration: a number of seconds (Caddy's default) or a text such as 1.5s.
type seconds struct {
	time.Duration
	given bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *seconds) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		d, err := time.ParseDuration(string(bytes.Trim(data, `"`)))
		s.Duration, s.given = d, err == nil
		return err
	}
	n, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return fmt.Errorf("duration: %s is no number of seconds", data)
	}
	s.Duration, s.given = toDuration(n), true
	return nil
}

// toDuration is a number of seconds, within what a Duration can hold.
func toDuration(n float64) time.Duration {
	const most = float64(1<<63-1024) / 1e9
	return time.Duration(min(max(n, -most), most) * 1e9)
}
