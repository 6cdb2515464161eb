package audit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/internal/lines"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Line is a line of an access log, as [Read] returns it. All of it is exactly as in the log.
type Line struct {
	Place
	entry
	// Sealed says that the line has the seal of the evidence.
	Sealed bool
	// Again says that an earlier line is about the same request.
	Again bool

	text   []byte // nil if the line is not whole
	err    error  // why the line, or its file if it has no number, cannot be read
	torn   error  // the line, or its beginning, was cut off
	series int    // the list that it is from
	// histories has what the lines before this one say of robots.txt.
	histories *histories
}

// Time returns when the request ended or, for a line about a robots.txt, when its event happened.
// It is zero if the line does not say.
func (l *Line) Time() time.Time {
	switch {
	case l.Robots != nil:
		return l.Robots.EndedAt.Time()
	case l.Answer != nil:
		return l.Answer.At
	}
	return time.Time{}
}

// Lost returns how many lines before this one are missing, as the log itself says, and the times of
// the first and the last of them.
func (l *Line) Lost() (n int64, first, last time.Time) {
	if r := l.Robots; r != nil {
		return r.Lost, r.LostSince.Time(), l.Time()
	}
	if l.notice.Msg != "lost" {
		return 0, first, last
	}
	first, _ = time.Parse(time.RFC3339Nano, l.notice.From) // the zero time, which no filter excludes
	last, _ = time.Parse(time.RFC3339Nano, l.notice.To)
	return l.notice.Lines, first, last
}

// Client returns the address that Caddy took for the client's. It is empty if the line has none.
func (l *Line) Client() string { return cmp.Or(l.Request.ClientIP, l.Request.RemoteIP) }

// Header returns the values of a header field of the request, as the log shows them.
func (l *Line) Header(name string) []string {
	var fields map[string]json.RawMessage
	var values []string
	if json.Unmarshal(l.Request.Headers, &fields) != nil || json.Unmarshal(fields[name], &values) != nil {
		return nil // the field is missing, or the log's filter has replaced it
	}
	return values
}

// InTunnel reports whether the request came through a tunnel whose TLS was intercepted. A request
// that came through a tunnel as plain HTTP cannot be recognized.
func (l *Line) InTunnel() bool {
	return strings.HasPrefix(l.Request.URI, "https://") && len(l.Request.TLS) > 0
}

// Certified reports whether the client presented a certificate.
func (l *Line) Certified() bool {
	var tls struct {
		CommonName string `json:"client_common_name"`
		Serial     string `json:"client_serial"`
	}
	return json.Unmarshal(l.Request.TLS, &tls) == nil && tls.CommonName+tls.Serial != ""
}

// Read calls line for each line of the logs, in the same order as [Run], and fault for what cannot
// be read. It calls both for a line that begins with one that was cut off. The function may keep
// the line. Read ends early with the error of ctx. Its memory is bounded by the longest lines and
// a limited number of robots.txt files.
func Read(ctx context.Context, logs [][]Source, line func(*Line), fault func(Fault)) error {
	return each(ctx, logs, newHistories(defaultLimits.records), func(l *Line) {
		if l.torn != nil {
			fault(Fault{l.Place, l.torn, true})
		}
		switch {
		case l.err != nil:
			fault(Fault{Place: l.Place, Err: l.err})
		case l.torn == nil || l.Robots != nil || l.Answer != nil:
			_, _, l.Sealed = evidence.ReadSeal(l.text)
			l.text = nil // the next line overwrites it
			line(l)
		}
	})
}

// each calls f for each line of the logs, with the histories of robots.txt up to that line.
func each(ctx context.Context, logs [][]Source, h *histories, f func(*Line)) error {
	var seen twins
	h.series = len(logs)
	for l := range byTime(logs) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if n, _, _ := l.Lost(); n > 0 || l.torn != nil || l.err != nil {
			h.lost[l.series] = h.learned // some may have been about a robots.txt
		}
		if l.histories = h; l.Answer != nil && badAnswer(l.Answer) == "" {
			h.learn(l.series, l.Answer, l.Place)
		}
		l.Again = seen.again(&l)
		f(&l)
	}
	return context.Cause(ctx)
}

// maxLine is the longest line that is read, in bytes: by default Caddy accepts 1 MiB of header, and
// escaping may double it.
const maxLine = 4 << 20

// read returns the lines of consecutive files. The text of a line is valid until the next one is
// requested.
func read(series int, sources []Source) iter.Seq[Line] {
	return func(yield func(Line) bool) {
		for _, s := range sources {
			if !readFile(series, s, yield) {
				return
			}
		}
	}
}

// readFile yields the lines of a file, and reports whether to go on.
func readFile(series int, s Source, yield func(Line) bool) bool {
	at := Place{File: s.Name}
	for text, err := range s.lines() {
		if err != nil && at.Line == 0 && len(text) == 0 {
			return yield(Line{series: series, Place: at, err: err})
		}
		at.Line++
		var next []byte
		l := Line{series: series, Place: at}
		switch {
		case errors.Is(err, lines.ErrLong):
			l.err = fmt.Errorf("it is longer than %d bytes", maxLine)
		case err != nil: // it cut this line off
			l.err = fmt.Errorf("reading on: %w", err)
		default:
			l.text = text
			if l.entry, l.err = readEntry(text); l.err != nil {
				next = l.mend()
			}
		}
		if !yield(l) {
			return false
		}
		if next != nil {
			l = Line{series: series, Place: at}
			if l.entry, l.err = readEntry(next); !yield(l) {
				return false
			}
		}
	}
	return true
}

func (s Source) lines() iter.Seq2[[]byte, error] { return lines.Of(s.Open, maxLine) }

// mend reads a line that a crash, a full disk or a truncation cut. Caddy appends the next line
// directly to it. There may be zeros in between, left by the file system or by a program that
// truncated the file while it was written. If only the newline is lost, mend returns the next line.
func (l *Line) mend() (next []byte) {
	front, behind := l.text, []byte(nil)
	const most = 200 // the cut line may contain objects
	for i, n := 0, 0; n < most; n++ {
		begin := bytes.Index(l.text[i+1:], []byte(`{"`))
		if begin < 0 {
			break
		}
		if i += 1 + begin; json.Valid(l.text[i:]) {
			front, behind = withoutLevel(l.text[:i]), l.text[i:]
			break
		}
	}
	front = objectOf(bytes.Trim(front, "\x00\r\n"))
	none := len(front) <= len("<6>") && len(bytes.Trim(front, "<01234567>")) == 0 // or a part of a level
	switch {
	case behind != nil && json.Valid(front):
		l.entry, l.err = readEntry(front)
		return behind
	case behind != nil && (none || front[0] == '{'):
		l.entry, l.err = readEntry(behind)
		l.torn = errors.New("the line begins with one that was cut off")
	case behind != nil:
	case none, front[0] == '{' && errors.Is(json.NewDecoder(bytes.NewReader(front)).Decode(new(json.RawMessage)), io.ErrUnexpectedEOF),
		!bytes.HasSuffix(l.text, []byte("\n")): // the end of its file
		l.err, l.torn = nil, errors.New("the line was cut off")
	case l.Line == 1 && bytes.HasSuffix(front, []byte("}")):
		// The file was truncated between two parts of the line: a supervisor writes what its pipe has,
		// and a full disk takes a part.
		l.err, l.torn = nil, errors.New("the beginning of the line is missing")
	}
	return nil
}

// withoutLevel removes the level of the line that follows, as journald's encoder writes it.
func withoutLevel(front []byte) []byte {
	if n := len(front) - len("<6>"); n >= 0 && front[n] == '<' && front[n+2] == '>' {
		return front[:n]
	}
	return front
}

// byTime merges the lines of several lists by their times. A line without a time follows the line
// before it.
func byTime(logs [][]Source) iter.Seq[Line] {
	if len(logs) == 1 {
		return read(0, logs[0])
	}
	return func(yield func(Line) bool) {
		var heads []*head
		for i, sources := range logs {
			next, stop := iter.Pull(read(i, sources))
			defer stop()
			if h := (&head{next: next}); h.advance() {
				heads = append(heads, h)
			}
		}
		for len(heads) > 0 {
			first := slices.MinFunc(heads, func(a, b *head) int { return a.time.Compare(b.time) })
			if !yield(first.line) {
				return
			}
			if !first.advance() {
				heads = slices.DeleteFunc(heads, func(h *head) bool { return h == first })
			}
		}
	}
}

type head struct {
	next func() (Line, bool)
	line Line
	time time.Time // of the line, or of the last one that has a time
}

func (h *head) advance() (ok bool) {
	if h.line, ok = h.next(); ok {
		h.time = cmp.Or(h.line.Time(), h.time)
	}
	return ok
}

// entry are the fields of an access-log line that an audit reads.
type entry struct {
	Status number `json:"status"`
	// Request describes the request, in addition to the robots object.
	Request struct {
		Method   string `json:"method"`
		URI      string `json:"uri"`
		RemoteIP string `json:"remote_ip"`
		ClientIP string `json:"client_ip"`
		// RemotePort is the client's.
		RemotePort string `json:"remote_port"`
		// Headers and TLS are objects, unless the log's filter has replaced them.
		Headers json.RawMessage `json:"headers"`
		TLS     json.RawMessage `json:"tls"`
	} `json:"request"`
	// ResponseHeader is an object, unless the log's filter has replaced it.
	ResponseHeader json.RawMessage    `json:"resp_headers"`
	Robots         *enforce.LogRecord `json:"robots"`
	// Answer is set in lines about a robots.txt, which belong to no request.
	Answer *robotscache.Answer `json:"robots_txt"`

	notice evidence.Notice // of the sealer; empty for another line
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

// answeredByRoute reports whether the answer to a refused request may have the status of a route
// for errors (handle_errors), in place of the gateway's: its header still has the refusal, or the
// filter of the log has removed it.
func (e *entry) answeredByRoute() bool {
	var fields map[string][]string
	if json.Unmarshal(e.ResponseHeader, &fields) != nil {
		return true
	}
	said := fields[enforce.HeaderDecision]
	return len(said) == 1 && strings.HasPrefix(said[0], enforce.OutcomeDeny+";")
}

// readEntry parses a line. Robots is nil for an empty line, and for one without a robots object.
func readEntry(line []byte) (e entry, err error) {
	line = objectOf(line)
	switch {
	case len(line) == 0:
		return e, nil
	case line[0] != '{':
		return e, errors.New("it is not a JSON object")
	}
	if err := json.Unmarshal(line, &e); err != nil {
		if bytes.Contains(line, []byte(`"robots"`)) {
			return e, fmt.Errorf("it is not a line of an access log: %w", err)
		}
		// A line of another logger may have fields of the same names and other types.
		if json.Valid(line) {
			return entry{}, nil
		}
		return e, fmt.Errorf("it is not a JSON object: %w", err)
	}
	if e.Robots == nil {
		e.notice = evidence.ReadNotice(line)
	}
	return e, nil
}

// objectOf returns the JSON object of a line, without the prefix of Caddy's encoders: console
// writes time, level, logger and message, journald a level such as <6>. An editor may have put a
// byte order mark first.
func objectOf(line []byte) []byte {
	line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
	if len(line) > 3 && line[0] == '<' && line[2] == '>' {
		line = line[3:]
	}
	if i := bytes.Index(line, []byte("\t{")); i > 0 && line[0] != '{' {
		return line[i+1:]
	}
	return line
}

func evidenceOf(r *enforce.LogRecord) Verdict {
	return Verdict{string(r.Reason), r.Group, r.Rule, r.Line, r.CrawlDelay, r.Form}
}

// toDuration converts seconds, limited to the range of a Duration.
func toDuration(n float64) time.Duration {
	const most = float64(1<<63-1024) / 1e9
	return time.Duration(min(max(n, -most), most) * 1e9)
}
