package audit

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/modules/logging"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// encoded is what Caddy's encoder makes of the end of a request and of how long it took.
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

// TestFormats: whatever form Caddy gives to times and durations, an honest line is no finding, and a sending after the
// end is one where the form can show it.
func TestFormats(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	const took = 20 * time.Millisecond
	end := noon.Add(987654 * time.Microsecond)
	for _, format := range []struct{ time, vague string }{
		{"", ""},
		{"unix_seconds_float", ""},
		{"unix_milli_float", ""},
		{"unix_nano", ""},
		{"iso8601", ""},
		{"rfc3339_nano", ""},
		{"2006-01-02T15:04:05.000Z07:00", ""},
		{"rfc3339", "whole seconds"},
		{"common_log", "whole seconds"},
		{time.RFC1123Z, "whole seconds"},
		{"wall", "no zone"},
		{"wall_milli", "no zone"},
		{"wall_nano", "no zone"},
		{time.DateTime, "no zone"},
		{"unix_seconds_int", "no time that is known"},
		{time.Kitchen, "no time that is known"},
		{time.DateOnly, "no time that is known"},
		{"20060102150405", "no time that is known"},
	} {
		for _, duration := range []struct{ format, vague string }{
			{"", ""}, {"s", ""}, {"string", ""}, {"ns", "a duration without a unit"}, {"ms", "a duration without a unit"},
		} {
			for _, local := range []bool{false, true} {
				c := logging.LogEncoderConfig{TimeFormat: format.time, DurationFormat: duration.format, TimeLocal: local}
				in := func(l object, end time.Time) object {
					l = l.at(end)
					l["ts"], l["duration"] = encoded(t, c, end, took)
					return l
				}
				sent := lines["allowed"].with("sent_at", float64(end.Add(-took/2).UnixMicro())/1e6)
				a := &archive{memory: store}
				a.versions = append(a.versions, version(sample, -1, 1))
				r := auditLogs(t, Config{Texts: a}, logOf(t, in(sent, end), in(lines["disallowed"], end.Add(time.Second))))
				vague := format.vague
				if vague == "" {
					vague = duration.vague
				}
				if r.brief() != "" || r.totals.Checked != 2 || vague != "" && r.totals.Vague[vague] != 2 || vague == "" && len(r.totals.Vague) > 0 {
					t.Errorf("%+v: %q %+v", c, r.brief(), r.totals)
				}
				late := lines["allowed"].with("sent_at", float64(end.Add(25*time.Hour).UnixMicro())/1e6)
				if r := auditLogs(t, Config{Texts: store}, logOf(t, in(late, end))); r.totals.Findings[KindImpossible] != 1 && format.vague != "no time that is known" {
					t.Errorf("%+v: a sending after the end: %q", c, r.brief())
				}
			}
		}
	}
}
