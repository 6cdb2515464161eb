package audit

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
)

// Line is a line of an access log, as [Read] gives it. All of it is as it stands in the log.
type Line struct {
	Place
	entry
	// Sealed says that the line has the seal of the evidence.
	Sealed bool

	file   bool   // it says of the file that all of it was read or, by err, that it cannot be
	text   []byte // nil of a line that is not whole
	err    error  // why it cannot be read
	torn   error  // what the line begins with, or is, was cut off
	series int    // of the list that it is from
	// histories are those of the lines before it.
	histories *histories
}

// Then gives what the log says of the robots.txt of the line's origin, fetched in the name of an
// agent or, without one, of the gateway, while the request was under way: the newest first. It is
// for the function that [Read] calls with the line.
func (l *Line) Then(agent string) iter.Seq[*Version] {
	return l.histories.then(&l.entry, l.series, agent)
}

// Time is when the request ended, zero if the line does not say.
func (l *Line) Time() time.Time {
	at, _ := l.ended()
	return at
}

// Client is the address that Caddy took for the client's, empty if the line does not say.
func (l *Line) Client() string { return cmp.Or(l.Request.ClientIP, l.Request.RemoteIP) }

// Header returns the values of a header field of the request, as the log shows them.
func (l *Line) Header(name string) []string {
	var fields map[string]json.RawMessage
	var values []string
	if json.Unmarshal(l.Request.Headers, &fields) != nil || json.Unmarshal(fields[name], &values) != nil {
		return nil // there is none, or the log's filter has made something else of it
	}
	return values
}

// InTunnel reports whether the request came through a tunnel that was looked into, where its TLS
// was ended. One that came by plain HTTP in a tunnel does not show.
func (l *Line) InTunnel() bool {
	return strings.HasPrefix(l.Request.URI, "https://") && len(l.Request.TLS) > 0
}

// Certified reports whether the client showed a certificate on its connection.
func (l *Line) Certified() bool {
	var tls struct {
		CommonName string `json:"client_common_name"`
		Serial     string `json:"client_serial"`
	}
	return json.Unmarshal(l.Request.TLS, &tls) == nil && tls.CommonName+tls.Serial != ""
}

// Read gives the lines of logs, in the order in which [Run] takes them, to a function, and what
// cannot be read to another one. The line may be kept. Read ends early with the error of ctx or of
// one of the functions. It needs no more memory than the longest lines, and some for each robots.txt
// that they tell of.
func Read(ctx context.Context, logs [][]Source, line func(*Line) error, fault func(Fault) error) error {
	histories := newHistories(defaultLimits.records)
	for l := range byTime(logs) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		if l.err != nil {
			err = fault(Fault{Place: l.Place, Err: l.err})
		} else if l.torn != nil && l.Robots == nil {
			err = fault(Fault{l.Place, l.torn, true})
		} else if !l.file {
			if l.Answer != nil && badAnswer(l.Answer) == "" {
				histories.learn(l.series, l.Answer, l.Place)
			}
			_, _, l.Sealed = evidence.ReadSeal(l.text)
			l.histories, l.text = histories, nil // the next line takes its place
			err = line(&l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
