package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestReadEntry holds which lines are ours, which are others', and which are none.
func TestReadEntry(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		line      string
		ours, bad bool
	}{
		{`{"ts":1,"robots":{"schema":1}}`, true, false},
		{` {"robots":{}} ` + "\r\n", true, false},
		{`{"ts":1}`, false, false},
		{`{"robots":null}`, false, false},
		{`{"ts":"yesterday"}`, false, false},
		{`{"ts":true,"request":5}`, false, false},
		{`{"ts":"yesterday","robots":{}}`, true, false},
		{`{"robots":{"line":"5"}}`, false, true},
		{`{"robots":[]}`, false, true},
		{`{"robots":{"schema":1}`, false, true},
		{`{"robots":{"schema":1}}}`, false, true},
		{`{"duration":"a while","status":"REDACTED","robots":{}}`, true, false},
		{`{"duration":true,"robots":{}}`, false, true},
		{`[]`, false, true},
		{`null`, false, true},
		{`"robots"`, false, true},
		{`2026/11/21 12:00:00.000	INFO	handled request	{"robots":{}}`, true, false},
		{`2026/11/21 12:00:00.000	INFO	the robots are here`, false, true},
		{``, false, false},
		{" \r\n", false, false},
		{"\x00", false, true},
	} {
		e, err := readEntry([]byte(tt.line))
		if ours := e.Robots != nil && err == nil; ours != tt.ours || (err != nil) != tt.bad {
			t.Errorf("%q: ours %t, %v", tt.line, ours, err)
		}
	}
}

// TestTimes holds in which forms of Caddy's encoders the times are read.
func TestTimes(t *testing.T) {
	t.Parallel()
	want := time.Date(2026, 11, 21, 12, 0, 0, 250e6, time.UTC)
	for ts, off := range map[string]time.Duration{
		`1795262400.25`:                  0,
		`1795262400250`:                  0,
		`1795262400250.0`:                0,
		`1795262400250000000`:            0,
		`"2026-11-21T12:00:00.250Z"`:     0,
		`"2026-11-21T13:00:00.250+0100"`: 0,
		`"2026-11-21T13:00:00.25+01:00"`: 0,
		`"2026/11/21 12:00:00.250"`:      0,
		`"2026/11/21 12:00:00"`:          250 * time.Millisecond,
		`"21/Nov/2026:13:00:00 +0100"`:   250 * time.Millisecond,
		`"2026\/11\/21 12:00:00.250"`:    0,
	} {
		e, err := readEntry([]byte(`{"ts":` + ts + `,"duration":0.5,"robots":{}}`))
		if d := want.Sub(e.TS.Time) - off; err != nil || d.Abs() > time.Microsecond || e.Duration.Duration != 500*time.Millisecond {
			t.Errorf("%s: %v, %v", ts, e.TS, err)
		}
	}
	for _, line := range []string{"2026/11/21 12:00:00.250\tINFO\thttp\thandled request\t{%s}", "1.79526240025e+09\t\x1b[34mINFO\x1b[0m\thandled request\t{%s}\n", "<6>2026/11/21 12:00:00.250\tINFO\t{%s}"} {
		if e, err := readEntry(fmt.Appendf(nil, line, `"duration":0.5,"robots":{}`)); err != nil || !e.TS.Equal(want) {
			t.Errorf("%q: %v, %v", line, e.TS, err)
		}
	}
	for text, want := range map[string]time.Duration{
		`0`: 0, `1e-3`: time.Millisecond, `"1m0.5s"`: time.Minute + 500*time.Millisecond, `1e300`: 1<<63 - 1024, `-1`: -time.Second,
	} {
		if e, err := readEntry([]byte(`{"duration":` + text + `,"robots":{}}`)); err != nil || (e.Duration.Duration-want).Abs() > 2*time.Microsecond {
			t.Errorf("%s: %v, %v", text, e.Duration, err)
		}
	}
}

// FuzzReadEntry: no line stops an audit, what is no JSON is an error, and what is ours has been
// read.
func FuzzReadEntry(f *testing.F) {
	f.Add([]byte(`{"level":"info","ts":1795262400.25,"request":{"method":"GET","uri":"http://site.example/x"},"duration":0.02,"robots":{"schema":2,"decision":"allow","reason":"no_rule","mode":"enforce","origin":"http://site.example","robots_url":"http://site.example/robots.txt","state":"rules","sha256":"aa","path_visible":true,"tokens":["a"]}}`))
	f.Add([]byte(`{"ts":"2026/11/21 12:00:00","duration":"1s","robots":{"schema":2}}`))
	f.Add([]byte(`{"ts":"x"}`))
	f.Add([]byte(`{`))
	store := memory{}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := readEntry(line)
		if valid := json.Valid(line); err == nil && !valid && len(bytes.TrimSpace(line)) > 0 || err != nil && valid && !bytes.Contains(line, []byte("robots")) && bytes.TrimSpace(line)[0] == '{' {
			t.Fatalf("%q: valid JSON is %t, %v", line, valid, err)
		}
		r := auditLogs(t, Config{Texts: store}, string(line))
		if c := r.totals; c.Checked+c.Foreign+c.Unreadable != c.Lines || int64(len(r.faults)) != c.Errors+c.Torn {
			t.Errorf("%q: %+v", line, c)
		}
		if c := r.totals; e.Robots != nil && err == nil && !bytes.Contains(line, []byte{'\n'}) && c.Checked != 1 {
			t.Errorf("%q: %+v", line, c)
		}
	})
}

// TestTorn: what a crash, a full disk or the emptying of a file leaves is counted, and the line behind it is read. What
// nobody's crash leaves is an error.
func TestTorn(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	whole := strings.TrimSuffix(logOf(t, lines["absent"].with("sent_at", float64(noon.Unix()))), "\n")
	for name, tt := range map[string]struct {
		log           string
		checked, torn int64
		errors        int64
	}{
		"the last line, without its end":    {whole + "\n" + whole[:100], 1, 1, 0},
		"one in the middle":                 {whole + "\n" + whole[:400] + "\n" + whole + "\n", 2, 1, 0},
		"one with the next behind it":       {whole[:300] + whole + "\n" + whole + "\n", 2, 1, 0},
		"all but its last byte, then more":  {whole[:len(whole)-1] + whole + "\n", 1, 1, 0},
		"its first byte, then more":         {whole[:1] + whole + "\n", 1, 1, 0},
		"twice in one":                      {whole[:300] + whole[:200] + whole + "\n", 1, 1, 0},
		"of journald, and of console":       {"<6>" + whole[:300] + "<6>" + whole + "\n2026/11/21 12:00:00\tINFO\thandled request\t" + whole[:400] + "\n", 1, 2, 0},
		"zeros of a power cut":              {whole + "\n" + whole[:300] + strings.Repeat("\x00", 4096) + whole + "\n", 2, 1, 0},
		"zeros alone":                       {whole + "\n" + strings.Repeat("\x00", 4096), 1, 1, 0},
		"a hole of a file that was emptied": {strings.Repeat("\x00", 2*maxLine+5000) + whole + "\n" + whole + "\n", 2, 1, 0},
		"nothing but its end":               {whole + whole + "\n" + whole, 3, 0, 0},
		"an end without a beginning":        {whole[200:] + "\n", 0, 0, 1},
		"text":                              {"hello\n", 0, 0, 1},
		"text with an object behind it":     {"hello" + whole + "\n", 0, 0, 1},
	} {
		r := auditLogs(t, Config{Texts: store}, tt.log)
		if c := r.totals; len(r.findings) > 0 || c.Checked != tt.checked || c.Torn != tt.torn || c.Errors != tt.errors || c.Unproven() != tt.torn {
			t.Errorf("%s: %q %+v", name, r.brief(), c)
		}
	}
}
