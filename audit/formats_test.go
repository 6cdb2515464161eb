package audit

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/robotscache"
)

// encoded returns the end and the duration of a request in the formats of Caddy's encoder.
func encoded(tb testing.TB, c logging.LogEncoderConfig, end time.Time, took time.Duration) (ts, duration json.RawMessage) {
	tb.Helper()
	line, err := zapcore.NewJSONEncoder(c.ZapcoreEncoderConfig()).EncodeEntry(zapcore.Entry{Time: end}, []zapcore.Field{zap.Duration("duration", took)})
	if err != nil {
		tb.Fatal(err)
	}
	var fields struct{ TS, Duration json.RawMessage }
	if err := json.Unmarshal(line.Bytes(), &fields); err != nil {
		tb.Fatal(err)
	}
	return fields.TS, fields.Duration
}

// TestFilters checks that a line that Caddy's filters changed is not a finding. If they hide its
// URL, it is not proven.
func TestFilters(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	request := func(l object, field string, value any) object {
		l = l.asked("")
		if l["request"].(object)[field] = value; value == nil {
			delete(l["request"].(object), field)
		}
		return l
	}
	asks := store.keep("User-agent: *\nDisallow: /page?b\n")
	query := lines["allowed"].with("sha256", asks).with("crawl_delay_s", nil).with("decision", "deny").with("reason", "disallowed").
		with("rule", "/page?b").with("line", 2).with("path_sum", enforce.PathSum("/page?b=1&a=2"))
	query["status"] = 403
	for name, tt := range map[string]struct {
		line  object
		cause Unprovable
	}{
		"the URL is deleted":                  {request(lines["allowed"], "uri", nil), CauseURL},
		"the URL is hashed":                   {lines["disallowed"].asked("3fa2b1c0"), CauseURL},
		"the URL is replaced":                 {lines["disallowed"].asked("nothing to see"), CauseURL},
		"the authority of a tunnel is hashed": {lines["tunnel"].asked("3fa2b1c0"), CauseURL},
		"the path is redacted":                {lines["disallowed"].asked("http://site.example/REDACTED"), CauseURL},
		"robots.txt itself is redacted":       {lines["robots.txt"].asked("http://site.example/REDACTED"), ""},
		"the host is redacted":                {lines["disallowed"].asked("http://REDACTED/private/x"), CauseURL},
		"no query is left":                    {query.asked("http://site.example/page"), CauseQuery},
		"a part of the query is left":         {query.asked("http://site.example/page?a=2"), CauseQuery},
		"the query is in another order":       {query.asked("http://site.example/page?a=2&b=1"), CauseQuery},
		"the query is as it was":              {query.asked("http://site.example/page?b=1&a=2"), ""},
		"a query that no rule asks for": {lines["disallowed"].asked("http://site.example/private/x?a=1").with("path_sum", enforce.PathSum("/private/x?b=1&a=1")).
			with("sha256", store.keep("User-agent: *\nDisallow: /private/\n")).with("crawl_delay_s", nil), ""},
		"the time of the decision is deleted":  {lines["disallowed"].with("decided_at", nil), CauseHistory},
		"the time of the decision is replaced": {lines["disallowed"].with("decided_at", "REDACTED"), CauseHistory},
		"the time of the end is replaced":      {lines["disallowed"].with("ended_at", "x"), ""},
		"another path, of the same verdict":    {lines["disallowed"].asked("http://site.example/private/y"), CauseURL},
		"the method is deleted": {func() object {
			l := request(lines["robots.txt"], "method", nil)
			l["request"].(object)["uri"] = "http://site.example/robots.txt"
			return l
		}(), ""},
	} {
		r := auditLogs(t, Config{Texts: store, Redacted: "REDACTED"}, logOf(t, tt.line))
		if c := r.totals; r.brief() != "" || c.Checked != 1 || len(c.NotProvable) != min(len(tt.cause), 1) || tt.cause != "" && c.NotProvable[tt.cause] != 1 {
			t.Errorf("%s: %q %v, want %q", name, r.brief(), c.NotProvable, tt.cause)
		}
	}
}

// TestFormats checks that with each of Caddy's formats of times and durations, and without them, an
// honest line is not a finding, while a line that is based on an older text, or whose request was
// sent after its end, is one. The robots object has its own times.
func TestFormats(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	other := store.keep("User-agent: *\nDisallow:\n")
	const took = 20 * time.Millisecond
	end := noon.Add(987654 * time.Microsecond)
	for _, format := range []string{
		"", "unix_seconds_float", "unix_milli_float", "unix_nano", "unix_seconds_int", "iso8601", "rfc3339_nano", "rfc3339",
		"2006-01-02T15:04:05.000Z07:00", "common_log", time.RFC1123Z, "wall", "wall_milli", "wall_nano", time.DateTime, time.Kitchen,
		time.DateOnly, "20060102150405",
	} {
		for _, duration := range []string{"", "s", "string", "ns", "ms", "deleted"} {
			for _, local := range []bool{false, true} {
				c := logging.LogEncoderConfig{TimeFormat: format, DurationFormat: duration, TimeLocal: local}
				in := func(l object, end time.Time) object {
					l = l.at(end)
					if l["ts"], l["duration"] = encoded(t, c, end, took); duration == "deleted" {
						delete(l, "ts")
						delete(l, "duration")
					}
					return l
				}
				sent := lines["allowed"].with("sent_at", float64(end.Add(-took/2).UnixMicro())/1e6)
				site := lines["allowed"]["robots"].(object)["origin"].(string)
				text := func(second int, sha string) object {
					a := answered(second, robotscache.Answer{Origin: site, Status: 200, State: stateRules, SHA256: sha})
					a["ts"], _ = encoded(t, c, noon.Add(time.Duration(second)*time.Second), 0)
					return a
				}
				honest := []object{text(-60, other), text(0, store.keep(sample)), in(sent, end), in(lines["disallowed"], end.Add(time.Second))}
				if r := auditLogs(t, Config{Texts: store}, logOf(t, honest...)); r.brief() != "" || r.totals.Replayed != 2 {
					t.Errorf("%+v: honest lines: findings %q, totals %+v", c, r.brief(), r.totals)
				}
				older := in(lines["disallowed"], noon.Add(11*time.Second))
				if r := auditLogs(t, Config{Texts: store}, logOf(t, append(honest, text(10, other), older)...)); r.totals.Findings[KindHistory] != 1 {
					t.Errorf("%+v: an older text: findings %q, want one", c, r.brief())
				}
				late := in(lines["allowed"].with("sent_at", float64(end.Add(2*time.Second).UnixMicro())/1e6), end)
				if r := auditLogs(t, Config{Texts: store}, logOf(t, late)); r.totals.Findings[KindImpossible] != 1 {
					t.Errorf("%+v: a request sent after its end: findings %q, want one", c, r.brief())
				}
			}
		}
	}
}
