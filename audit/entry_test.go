package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// TestReadEntry checks lines of the gateway, lines of other loggers, and lines that are not JSON.
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
		{`{"duration":true,"robots":{"decided_at":"REDACTED","sent_at":[1],"ended_at":1e999}}`, true, false},
		{`[]`, false, true},
		{`null`, false, true},
		{`"robots"`, false, true},
		{`2026/11/21 12:00:00.000	INFO	handled request	{"robots":{}}`, true, false},
		{"1.79526240025e+09\t\x1b[34mINFO\x1b[0m\thandled request\t{\"robots\":{}}\n", true, false},
		{"<6>2026/11/21 12:00:00.250\tINFO\t{\"robots\":{}}", true, false},
		{"\ufeff{\"robots\":{}}\r\n", true, false},
		{`2026/11/21 12:00:00.000	INFO	the robots are here`, false, true},
		{``, false, false},
		{" \r\n", false, false},
		{"\x00", false, true},
	} {
		e, err := readEntry([]byte(tt.line))
		if ours := e.Robots != nil && err == nil; ours != tt.ours || (err != nil) != tt.bad {
			t.Errorf("%q: is a line of ours: %t, error %v", tt.line, ours, err)
		}
	}
}

// FuzzReadEntry checks that no line stops an audit, that a line that is not JSON is an error, and
// that a line of the gateway is read.
func FuzzReadEntry(f *testing.F) {
	f.Add([]byte(`{"level":"info","ts":1795262400.25,"request":{"method":"GET","uri":"http://site.example/x"},"duration":0.02,"robots":{"schema":2,"decision":"allow","reason":"no_rule","mode":"enforce","origin":"http://site.example","robots_url":"http://site.example/robots.txt","state":"rules","sha256":"aa","path_visible":true,"tokens":["a"]}}`))
	f.Add([]byte(`{"ts":"2026/11/21 12:00:00","duration":"1s","robots":{"schema":2}}`))
	f.Add([]byte(`{"ts":"x"}`))
	f.Add([]byte(`{`))
	store := memory{}
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := readEntry(line)
		if valid := json.Valid(line); err == nil && !valid && len(bytes.TrimSpace(line)) > 0 || err != nil && valid && !bytes.Contains(line, []byte("robots")) && bytes.TrimSpace(line)[0] == '{' {
			t.Fatalf("%q: valid JSON: %t, error %v", line, valid, err)
		}
		r := auditLogs(t, Config{Texts: store}, string(line))
		if c := r.totals; c.Checked+c.Foreign+c.Unreadable != c.Lines || int64(len(r.faults)) != c.Errors+c.Torn {
			t.Errorf("%q: inconsistent totals %+v", line, c)
		}
		if c := r.totals; e.Robots != nil && err == nil && !bytes.Contains(line, []byte{'\n'}) && c.Checked != 1 {
			t.Errorf("%q: totals %+v, want one line checked", line, c)
		}
	})
}

// TestTorn checks that an incomplete line, as a crash, a full disk or a truncated file leaves it,
// is counted and that the next line is read. Other incomplete lines are errors.
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
		"no newline after one of journald":  {"<6>" + whole + "<6>" + whole + "\n", 2, 0, 0},
		"an end without a beginning":        {whole[200:] + "\n" + whole + "\n", 1, 1, 0},
		"an end that is not at the start":   {whole + "\n" + whole[200:] + "\n", 1, 0, 1},
		"text":                              {"hello\n", 0, 0, 1},
		"text with an object behind it":     {"hello" + whole + "\n", 0, 0, 1},
	} {
		r := auditLogs(t, Config{Texts: store}, tt.log)
		if c := r.totals; len(r.findings) > 0 || c.Checked != tt.checked || c.Torn != tt.torn || c.Errors != tt.errors || c.Unproven() != tt.torn {
			t.Errorf("%s: findings %q, totals %+v", name, r.brief(), c)
		}
	}
}

// A file may be copied and truncated after any byte of a line, because a supervisor writes it in
// parts. The parts are counted, and all other lines are read.
func TestTruncated(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	whole := logOf(t, lines["absent"].with("sent_at", float64(noon.Unix())))
	for _, front := range []string{"", "<6>", "2026/11/21 12:00:00.000\tINFO\thttp.log.access\thandled request\t", "<6>INFO\thandled request\t"} {
		line := front + whole
		for cut := 1; cut < len(line)-1; cut++ {
			if cut > len(front)+10 && cut < len(line)-10 && cut%13 > 0 { // some of those in the object
				continue
			}
			for hole := range 2 {
				r := auditLogs(t, Config{Texts: store}, line+line[:cut], strings.Repeat("\x00", 4096*hole)+line[cut:]+line)
				if c := r.totals; len(r.findings) > 0 || c.Errors > 0 || c.Checked < 2 || c.Checked+c.Foreign != c.Lines {
					t.Fatalf("%q, cut after %q: %q %+v", front, line[:cut], r.brief(), c)
				}
			}
		}
	}
}
