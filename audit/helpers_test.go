package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
)

// noon is the time at which the lines of the tests end.
var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// memory is a store of texts by hash, which may be wrong.
type memory map[[32]byte]memoryText

type memoryText struct {
	body []byte
	err  error
}

func (m memory) Body(_ context.Context, sha [32]byte) ([]byte, error) {
	t, ok := m[sha]
	if !ok {
		return nil, robotscache.ErrNotFound
	}
	return t.body, t.err
}

// keep adds a text under its hash, and returns the hash as in the log.
func (m memory) keep(text string) string {
	sha := sha256.Sum256([]byte(text))
	m[sha] = memoryText{body: []byte(text)}
	return hex.EncodeToString(sha[:])
}

// sites is a fetcher with the robots.txt of each host by name.
type sites map[string]fetch.Outcome

func (s sites) Fetch(_ context.Context, k fetch.Key, _ fetch.Gate) fetch.Outcome {
	return s[k.Origin.Host]
}

// rulesOf returns a cache over sites.
func rulesOf(tb testing.TB, s sites, p fetch.Policy) *robotscache.Cache {
	tb.Helper()
	c, err := robotscache.New(robotscache.Config{Store: memstore.New(0), Fetcher: s, Policy: p})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

func goodText(text string) fetch.Outcome {
	return fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte(text)}
}

// crawler returns the identity of a crawler without configuration.
func crawler(tb testing.TB, token string) enforce.Identity {
	tb.Helper()
	id, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{})
	if err != nil {
		tb.Fatal(err)
	}
	identity, ok := id.Named(token)
	if !ok {
		tb.Fatalf("%q is not the token of an agent", token)
	}
	return identity
}

func target(tb testing.TB, rawURL string) origin.Target {
	tb.Helper()
	o, err := origin.Parse(rawURL)
	if err != nil {
		tb.Fatal(err)
	}
	to, err := origin.ParseTarget(rawURL)
	if err != nil { // a request cannot have this path
		return origin.Target{Origin: o, Path: strings.TrimPrefix(rawURL, o.String())}
	}
	return to
}

// object is a JSON line that tests change.
type object map[string]any

// lineOf returns the access-log line of a decision on a request that ended at a time, 20 ms after
// it was made.
func lineOf(tb testing.TB, rec enforce.LogRecord, method, uri string, end time.Time) object {
	tb.Helper()
	rec.DecidedAt, rec.EndedAt = enforce.SecondsOf(end.Add(-20*time.Millisecond)), enforce.SecondsOf(end)
	data, err := json.Marshal(rec)
	if err != nil {
		tb.Fatal(err)
	}
	robots := object{}
	if err := json.Unmarshal(data, &robots); err != nil {
		tb.Fatal(err)
	}
	status := http.StatusOK
	if rec.Decision == enforce.OutcomeDeny {
		status = rec.Reason.Info().Status
	}
	return object{
		"level": "info", "ts": float64(end.UnixMicro()) / 1e6, "logger": "http.log.access.log0", "msg": "handled request",
		"request": object{
			"remote_ip": "127.0.0.1", "proto": "HTTP/1.1", "method": method, "host": "x", "uri": uri,
			"headers": object{"User-Agent": []string{"AcmeBot/1.0"}, "Accept": []string{"*/*"}},
		},
		"bytes_read": 0, "user_id": "", "duration": 0.02, "size": 4711, "status": status,
		"resp_headers": object{"Content-Type": []string{"text/html; charset=utf-8"}, "Via": []string{"1.1 crawlgate"}},
		"robots":       robots,
	}
}

// with returns the line with a field of its robots object changed; nil removes the field.
func (o object) with(field string, value any) object {
	changed, robots := maps.Clone(o), maps.Clone(o["robots"].(object))
	if robots[field] = value; value == nil {
		delete(robots, field)
	}
	changed["robots"] = robots
	return changed
}

// at returns the line with another end time.
func (o object) at(end time.Time) object {
	changed := o.with("decided_at", enforce.SecondsOf(end.Add(-20*time.Millisecond))).with("ended_at", enforce.SecondsOf(end))
	changed["ts"] = float64(end.UnixMicro()) / 1e6
	return changed
}

// asked returns the line with another URL.
func (o object) asked(uri string) object {
	changed, request := maps.Clone(o), maps.Clone(o["request"].(object))
	request["uri"] = uri
	changed["request"] = request
	return changed
}

// logOf writes lines like Caddy.
func logOf(tb testing.TB, lines ...object) string {
	tb.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, l := range lines {
		if err := e.Encode(l); err != nil {
			tb.Fatal(err)
		}
	}
	return b.String()
}

// told is the result of an audit.
type told struct {
	findings []Finding
	faults   []Fault
	totals   Totals
}

// brief returns one line per finding.
func (r told) brief() string {
	var b strings.Builder
	for _, f := range r.findings {
		fmt.Fprintf(&b, "%s:%d %s\n", f.File, f.Line, f.Kind)
	}
	for _, f := range r.faults {
		fmt.Fprintf(&b, "%s:%d error\n", f.File, f.Line)
	}
	return b.String()
}

// auditLogs audits logs, which are named a, b and so on.
func auditLogs(tb testing.TB, cfg Config, logs ...string) told {
	tb.Helper()
	var sources []Source
	for i, log := range logs {
		sources = append(sources, Source{string(rune('a' + i)), func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(log)), nil
		}})
	}
	var r told
	var err error
	answers := answersFor(strings.Join(logs, "\n"))
	if answers != "" {
		sources = append([]Source{{"answers", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(answers)), nil }}}, sources...)
	}
	r.totals, err = Run(tb.Context(), cfg, [][]Source{sources}, func(f Finding) {
		if f.File != "answers" {
			r.findings = append(r.findings, f)
		}
	}, func(f Fault) { r.faults = append(r.faults, f) })
	if err != nil {
		tb.Fatal(err)
	}
	if answers != "" {
		r.totals.Files, r.totals.Lines, r.totals.Answers = r.totals.Files-1, r.totals.Lines-r.totals.Answers, 0
	}
	return r
}

// answersFor returns lines about each robots.txt that the lines of logs are based on, or nothing if
// logs has such lines itself. They are later than the others, so they also stand for the earlier
// content of each site.
func answersFor(logs string) string {
	var b strings.Builder
	if strings.Contains(logs, "robots_txt\"") {
		return ""
	}
	log := Source{"a", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(logs)), nil }}
	for l := range read(0, []Source{log}) {
		if r := l.Robots; l.err == nil && r != nil && (r.SHA256 != "" || r.State == stateAbsent || r.Reason == enforce.ReasonUnreachableExpired) {
			a := robotscache.Answer{
				Schema: robotscache.AnswerSchema, At: noon.AddDate(99, 0, 0), Event: robotscache.EventKnown, Origin: r.Origin, FetchedAs: r.FetchedAs, State: r.State, SHA256: r.SHA256,
				Gateway: r.Gateway,
			}
			if r.State == stateUnreachable {
				a.UnreachableSince = noon
			}
			if badAnswer(&a) != "" {
				continue // the line contradicts itself
			}
			known, _ := json.Marshal(object{"robots_txt": a})
			if !strings.Contains(b.String(), string(known)) {
				b.Write(append(known, '\n'))
			}
		}
	}
	return b.String()
}
