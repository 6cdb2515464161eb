package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/robotscache"
)

// entry has the fields of an access-log line that are read.
type entry struct {
	Status number `json:"status"`
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
	line = objectOf(line)
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
	return e, nil
}

// objectOf gives the JSON object of a line, without what Caddy's encoders put in front of it:
// console has time, level, logger and message there, journald a level such as <6>.
func objectOf(line []byte) []byte {
	line = bytes.TrimSpace(line)
	if len(line) > 3 && line[0] == '<' && line[2] == '>' {
		line = line[3:]
	}
	if i := bytes.Index(line, []byte("\t{")); i > 0 && line[0] != '{' {
		return line[i+1:]
	}
	return line
}

// evidenceOf returns the evidence that a line records.
func evidenceOf(r *enforce.Record) Evidence {
	return Evidence{string(r.Reason), r.Group, r.Rule, r.Line, r.CrawlDelay, r.Form}
}

// toDuration is a number of seconds, within what a Duration can hold.
func toDuration(n float64) time.Duration {
	const most = float64(1<<63-1024) / 1e9
	return time.Duration(min(max(n, -most), most) * 1e9)
}
