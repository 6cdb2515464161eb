package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
)

// Line is a line of an access log, as [Read] returns it. All of it is exactly as in the log.
type Line struct {
	Place
	entry
	// Sealed says that the line has the seal of the evidence.
	Sealed bool

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
// be read. The function may keep the line. Read ends early with the error of ctx. Its memory is
// bounded by the longest lines and a limited number of robots.txt files.
func Read(ctx context.Context, logs [][]Source, line func(*Line), fault func(Fault)) error {
	return each(ctx, logs, newHistories(defaultLimits.records), func(l *Line) {
		switch {
		case l.err != nil:
			fault(Fault{Place: l.Place, Err: l.err})
		case l.torn != nil && l.Robots == nil:
			fault(Fault{l.Place, l.torn, true})
		default:
			_, _, l.Sealed = evidence.ReadSeal(l.text)
			l.text = nil // the next line overwrites it
			line(l)
		}
	})
}

// each calls f for each line of the logs, with the histories of robots.txt up to that line.
func each(ctx context.Context, logs [][]Source, h *histories, f func(*Line)) error {
	for l := range byTime(logs) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if l.Robots != nil && l.Robots.Lost > 0 {
			h.forget(l.series)
		}
		if l.histories = h; l.Answer != nil && badAnswer(l.Answer) == "" {
			h.learn(l.series, l.Answer, l.Place)
		}
		f(&l)
	}
	return context.Cause(ctx)
}
