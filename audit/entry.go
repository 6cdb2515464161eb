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

// entry are the fields of an access-log line that an audit reads.
type entry struct {
	Status number `json:"status"`
	// Request describes the request, in addition to the robots object.
	Request struct {
		Method   string `json:"method"`
		URI      string `json:"uri"`
		RemoteIP string `json:"remote_ip"`
		ClientIP string `json:"client_ip"`
		// Headers and TLS are objects, unless the log's filter has replaced them.
		Headers json.RawMessage `json:"headers"`
		TLS     json.RawMessage `json:"tls"`
	} `json:"request"`
	Robots *enforce.LogRecord `json:"robots"`
	// Answer is set in lines about a robots.txt, which belong to no request.
	Answer *robotscache.Answer `json:"robots_txt"`
}

// number is 0 if a filter of the log has replaced it by a string.
type number int

// UnmarshalJSON implements json.Unmarshaler.
func (n *number) UnmarshalJSON(data []byte) error {
	if data[0] == '"' {
		return nil
	}
	return json.Unmarshal(data, (*int)(n))
}

// Tunnel reports whether the line is about a tunnel instead of a request. The requests in an
// intercepted tunnel have their own lines; those in other tunnels are unknown.
func (e *entry) Tunnel() bool { return e.Request.Method == http.MethodConnect }

// readEntry parses a line. Robots is nil for an empty line, and for one without a robots object.
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

// objectOf returns the JSON object of a line, without the prefix of Caddy's encoders: console
// writes time, level, logger and message, journald a level such as <6>.
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
func evidenceOf(r *enforce.LogRecord) Verdict {
	return Verdict{string(r.Reason), r.Group, r.Rule, r.Line, r.CrawlDelay, r.Form}
}

// toDuration converts seconds, limited to the range of a Duration.
func toDuration(n float64) time.Duration {
	const most = float64(1<<63-1024) / 1e9
	return time.Duration(min(max(n, -most), most) * 1e9)
}
