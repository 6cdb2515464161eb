package audit

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/klauspost/compress/zstd"
	"go.uber.org/goleak"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTotals checks how honest lines of each kind are counted.
// TestTunnelTotals checks that a CONNECT counts as an opened or refused tunnel, not as a request. A
// request in an intercepted tunnel has its own line.
func TestTunnelTotals(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	looked := lineOf(t, (&enforce.Enforcer{}).DecideIntercept(enforce.Authentication{}, target(t, "https://site.example/").Origin).Record(), "CONNECT", "site.example:443", noon)
	looked = looked.with("decision", "allow").with("reason", "intercepted").with("path_visible", true).with("agent", "AcmeBot")
	inside := lines["disallowed"]
	r := auditLogs(t, Config{Texts: store}, logOf(t, looked, inside, inside, inside, lines["tunnel to absent"], lines["tunnel"]))
	a := r.totals.Agents[0]
	want := Counts{Outcomes{Asked: 3, Refused: 3}, Tunnels{Outcomes{Asked: 3, Allowed: 2, Refused: 1}, 1}}
	if len(r.findings) > 0 || a.Checked != 6 || a.Counts != want {
		t.Errorf("findings %v, totals %+v, want none and 6 lines checked", r.findings, a)
	}
}

func TestTotals(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	log := logOf(t, lines["allowed"], lines["by rule"].at(noon.Add(time.Minute)), lines["disallowed"], lines["report"], lines["off"],
		lines["exception"], lines["absent"], lines["unreachable"], lines["operator"], lines["robots.txt"], lines["tunnel"],
		lines["paced"], lines["failed"], object{"level": "info", "msg": "something else"}, object{"ts": "today", "msg": "so too"},
		object{"request": object{"method": "GET", "uri": "http://x.example/"}}, object{"request": object{"method": "CONNECT", "uri": "x.example:443"}},
		object{"request": object{"method": "GET", "uri": "/"}})
	r := auditLogs(t, Config{Texts: store}, log+"no JSON\n\n", log)
	c := r.totals
	if c.Files != 2 || c.Lines != 38 || c.Foreign != 11 || c.Unjudged != 4 || c.Unreadable != 1 || c.Errors != 1 || c.Checked != 26 || c.Replayed != 14 ||
		c.ByState != 4 || c.AsRecorded != 8 || !c.First.Equal(noon) || !c.Last.Equal(noon.Add(time.Minute)) {
		t.Errorf("totals = %+v", c)
	}
	if len(c.Agents) != 3 || c.Agents[0].Agent != "AcmeBot" || c.Agents[1].Agent != "Free" || c.Agents[2].Agent != "Reporter" {
		t.Fatalf("agents = %+v, want AcmeBot, Free and Reporter", c.Agents)
	}
	acme, reporter := c.Agents[0], c.Agents[2]
	want := Counts{Outcomes{Asked: 20, Allowed: 10, Refused: 8, Failed: 2}, Tunnels{Outcomes: Outcomes{Asked: 2, Refused: 2}}}
	if acme.Checked != 22 || acme.Counts != want {
		t.Errorf("totals of AcmeBot = %+v", acme)
	}
	if reporter.Counts != (Counts{Outcomes: Outcomes{Asked: 2, Allowed: 2}}) { // mode report refuses nothing
		t.Errorf("totals of Reporter = %+v", reporter)
	}
}

// TestCaps checks that the number of names is limited, and that all others are counted together.
func TestCaps(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	exception, missing := lines["exception"], lines["allowed"]
	cfg := Config{Texts: store, limits: limits{agents: 2, texts: 1, hosts: 10, records: 10}}
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Hour) }
	r := auditLogs(t, cfg, logOf(t,
		exception.at(at(1)),
		exception.with("agent", "B").at(at(4)), exception.with("agent", "C").at(at(5)), exception.with("agent", "D").at(at(6)),
		missing.with("sha256", strings.Repeat("a", 64)).at(at(7)), missing.with("sha256", strings.Repeat("b", 64)).at(at(8)),
		missing.with("sha256", strings.Repeat("a", 64)).at(at(9)),
	))
	long := exception.with("agent", strings.Repeat("x", maxLabel+1))
	if c := auditLogs(t, Config{Texts: store}, logOf(t, long)).totals; len(c.Agents) != 1 || c.Agents[0].Agent != Others || c.Agents[0].Asked != 1 {
		t.Errorf("agents with invalid names = %+v, want Others", c.Agents)
	}
	if c := r.totals; c.Caps != (CapTotals{Agents: 2, Texts: 1}) || len(c.Agents) != 3 || c.Agents[0].Agent != Others ||
		c.Agents[0].Checked != 2 || len(c.Texts) != 2 || c.Texts[0].SHA256 != Others || c.Texts[0].Lines != 1 || c.Texts[1].Lines != 2 {
		t.Errorf("totals = %+v, want most names counted as Others", c)
	}
}

// TestOwners checks that the owner and contact of an agent come from the last line that has one.
func TestOwners(t *testing.T) {
	t.Parallel()
	store := memory{}
	line := sampleLines(t, store)["allowed"]
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Hour) }
	r := auditLogs(t, Config{Texts: store}, logOf(t,
		line.with("agent", "A").with("owner", "team a").with("contact", "a@acme.example").at(at(1)),
		line.with("agent", "A").with("contact", "b@acme.example").at(at(2)),
		line.with("agent", "A").at(at(3)),
		line.with("agent", "B").with("owner", strings.Repeat("x", maxLabel+1)).at(at(4)), // longer than a gateway logs
		line.with("agent", strings.Repeat("x", maxLabel+1)).with("owner", "team c").at(at(5)),
	))
	got := make(map[string][2]string)
	for _, a := range r.totals.Agents {
		got[a.Agent] = [2]string{a.Owner, a.Contact}
	}
	if want := (map[string][2]string{"A": {"", "b@acme.example"}, "B": {}, Others: {}}); !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFaults checks that if a log cannot be read completely, the others are still read.
func TestFaults(t *testing.T) {
	t.Parallel()
	store := memory{}
	log := logOf(t, sampleLines(t, store)["absent"])
	broken := errors.New("broken")
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	_, _ = z.Write([]byte(log))
	_ = z.Close()
	sources := []Source{
		{"gone", func() (io.ReadCloser, error) { return nil, broken }},
		{"cut", func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader(log+"{\"half\":"), iotest.ErrReader(broken))), nil
		}},
		{"no gzip", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("\x1f\x8b nonsense")), nil }},
		{"half gzip", func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(packed.Bytes()[:packed.Len()-9])), nil
		}},
		{"long", func() (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(strings.Repeat("x", maxLine+2) + "\n" + log)), nil
		}},
		{"no end of line", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(strings.TrimSpace(log))), nil }},
	}
	var faults []string
	totals, err := Run(t.Context(), Config{Texts: store}, [][]Source{sources}, nil, func(f Fault) {
		faults = append(faults, fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err))
	})
	want := []string{
		"gone:0: broken", "cut:2: reading on: broken", "no gzip:0: unpacking: gzip: invalid header",
		"half gzip:2: reading on: unexpected EOF", fmt.Sprintf("long:1: it is longer than %d bytes", maxLine),
	}
	if err != nil || !slices.Equal(faults, want) {
		t.Errorf("Run = %v with faults:\n%s", err, strings.Join(faults, "\n"))
	}
	if totals.Checked != 4 || totals.Lines != 7 || totals.Unreadable != 3 || totals.Errors != 5 {
		t.Errorf("totals = %+v", totals)
	}
}

// TestLost checks that a log with a notice of requests without lines is incomplete
// (docs/access-log.md, "A log that takes no lines").
func TestLost(t *testing.T) {
	t.Parallel()
	store := memory{}
	whole := logOf(t, sampleLines(t, store)["absent"])
	log := strings.Replace(whole, `"robots":{`, `"robots":{"lost":12,"lost_since":1764000000.5,`, 1)
	var faults []string
	totals, err := Run(t.Context(), Config{Texts: store}, [][]Source{{{"a.log", func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(whole + log)), nil
	}}}}, nil, func(f Fault) {
		faults = append(faults, fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err))
	})
	want := "a.log:2: the log is incomplete: 12 lines are missing, because it took none from 2025-11-24T16:00:00Z until this line"
	if err != nil || !slices.Equal(faults, []string{want}) || totals.Checked != 2 || totals.Errors != 1 || log == whole {
		t.Errorf("Run = %v with faults %q and totals %+v", err, faults, totals)
	}
}

// TestRunEnds checks that Run ends when the context ends, after the current line, and leaves
// nothing running.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	store := memory{}
	log := strings.Repeat(logOf(t, sampleLines(t, store)["disallowed"].with("group", "b")), 3000)
	stop := errors.New("stop")
	source := Source{"a", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(log)), nil }}
	for range 4 {
		n := 0
		ctx, cancel := context.WithCancelCause(t.Context())
		_, err := Run(ctx, Config{Texts: store}, [][]Source{{source}}, func(Finding) {
			if n++; n == 100 {
				cancel(stop)
			}
		}, nil)
		if !errors.Is(err, stop) || n != 100 {
			t.Fatalf("Run = %[2]v after %[1]d findings, want the context's error after 100", n, err)
		}
	}
	if _, err := Run(t.Context(), Config{}, nil, nil, nil); err == nil {
		t.Error("Run without texts gives no error")
	}
}

// TestFilesOfOneLog checks that the files of one sealed log in several folders are one list, in the
// order of the log's lines, whatever the times of the files.
func TestFilesOfOneLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var args []string
	for folder, lines := range map[string][]string{
		"a-new": {"torn", "gw1/access/1 7"}, "b-old": {"gw1/access/1 2"}, "c-other": {"gw2/access/1 0"}, "d-next": {"gw1/access/2 0"}, "e": {"{}"}, "f": {"{}"},
	} {
		var text []byte
		for _, l := range lines {
			id, n, ok := strings.Cut(l, " ")
			line := []byte(l + "\n")
			if l == "{}" {
				line = []byte(`{"robots":{},"of":"` + folder + `"}` + "\n")
			}
			if seq, err := strconv.ParseInt(n, 10, 64); ok && err == nil {
				line = evidence.Splice([]byte("{}"), id, seq)
			}
			text = append(text, line...)
		}
		path := filepath.Join(dir, folder, "access.log")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
		args = append(args, filepath.Dir(path))
	}
	slices.Sort(args)
	logs, _, err := Files(append(args, "-"), strings.NewReader("once\n"))
	var got []string
	for _, list := range logs {
		var names []string
		for _, s := range list {
			names = append(names, filepath.Base(filepath.Dir(s.Name)))
		}
		got = append(got, strings.Join(names, " "))
	}
	if want := []string{"b-old a-new d-next", "c-other", "e", "f", "."}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	in, err := logs[4][0].Open()
	if err != nil {
		t.Fatal(err)
	}
	if text, err := io.ReadAll(in); string(text) != "once\n" || err != nil {
		t.Errorf("standard input = %q, %v, want once", text, err)
	}
}

// sealedLine returns a sealed notice with the given number.
func sealedLine(seq int64) string {
	return strings.TrimSuffix(string(evidence.Splice([]byte(`{"logger":"crawlgate.evidence"}`), "gw1/access/1", seq)), "\n")
}

// fileLines are the lines of files by name: a number is an access-log line at that minute,
// compressed according to the name.
func fileLines(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		var text []byte
		for word := range strings.FieldsSeq(content) {
			if minute, err := strconv.Atoi(word); err == nil {
				word = fmt.Sprintf(`{"request":{"method":"GET"},"robots":{"ended_at":%d,"log":%q}}`, noon.Unix()+int64(minute)*60, strings.SplitN(name, "/", 2)[0][:1])
			}
			text = append(text, word+"\n"...)
		}
		var b bytes.Buffer
		switch filepath.Ext(name) {
		case ".gz", ".tmp":
			z := gzip.NewWriter(&b)
			_, _ = z.Write(text)
			_ = z.Close()
			text = b.Bytes()
		case ".zst":
			z, err := zstd.NewWriter(&b)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = z.Write(text)
			_ = z.Close()
			text = b.Bytes()
		case ".xz":
			text = append([]byte("\xfd7zXZ\x00"), text...)
		case ".gpg":
			text = append([]byte("\x85\x01\xff\xfe"), text...)
		case ".db":
			text = append([]byte("\x00\x00\xed\xda\x0c\xed\xff\xff"), text...)
		}
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, text, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFiles checks which logs an argument refers to, whatever their names, their order, and which
// files are left out.
func TestFiles(t *testing.T) {
	t.Parallel()
	const none, processLine = `{"level":"info"}`, `{"level":"error","logger":"http.log.error","request":{"method":"GET"},"status":502,"err_id":"x"}`
	for _, tt := range []struct {
		name  string
		files map[string]string
		args  string // files of the folder; empty for the folder itself
		logs  string // the files of a log, joined by spaces; logs by " | "
		left  string
	}{
		{"Caddy's names", map[string]string{
			"access.log": "30", "access-2026-05-02T10-30-00.000-size.log.gz": "2", "access-2026-05-01T10-30-00.000.log": "1",
			"access-2026-05-02T10-30-00.500-time_1.log.zst": "3 4",
		}, "", "access-2026-05-01T10-30-00.000.log access-2026-05-02T10-30-00.000-size.log.gz access-2026-05-02T10-30-00.500-time_1.log.zst access.log", ""},
		{
			"numbers",
			map[string]string{"access.log": "30", "access.log.1": "20", "access.log.2.gz": "10", "access.log.10.gz": "5"},
			"",
			"access.log.10.gz access.log.2.gz access.log.1 access.log", "",
		},
		{
			"days",
			map[string]string{"access.log": "30", "access.log-20261126.gz": "20", "access.log-20261125-1795262400.zst": "10"},
			"",
			"access.log-20261125-1795262400.zst access.log-20261126.gz access.log", "",
		},
		{
			"days in front of the extension",
			map[string]string{"access.log": "30", "access-20261126.log": "20", "access-2026-11-25.log": "10"},
			"",
			"access-2026-11-25.log access-20261126.log access.log", "",
		},
		{"a name of somebody's own", map[string]string{"crawl": "1"}, "", "crawl", ""},
		{
			"two logs",
			map[string]string{"access.log": "3", "access.log.1": "1", "beta.log": "4", "beta.log.1": "2"},
			"",
			"access.log.1 access.log | beta.log.1 beta.log", "",
		},
		{"a clock that was set back", map[string]string{"access.log": "1", "access.log.1": "30"}, "", "access.log access.log.1", ""},
		{"the first lines have no times", map[string]string{
			"access.log": strings.Repeat(`{"ts":1,"robots":{"ended_at":"x"}} `, 20) + "20", "access.log.1": "10",
		}, "", "access.log.1 access.log", ""},
		{"a sealed log of the encoder console", map[string]string{
			"access.log.1": sealedLine(0) + strings.Repeat(" 1", 20), "access.log": strings.Repeat("1 ", 2000) + sealedLine(21),
		}, "", "access.log.1 access.log", ""},
		{"no logs", map[string]string{
			"access.log": "1", "blocks.json": `{"a":1}`, "caddy.log": none + " " + processLine, "robots.db": "1", "evidence/heads": "x", "evidence/tile.gpg": "1", "notes.txt": "hello",
		}, "", "access.log", "blocks.json caddy.log evidence notes.txt robots.db"},
		{"a process log with lines of requests", map[string]string{"caddy.log": strings.Repeat(none+" ", 300) + "1"}, "", "caddy.log", ""},
		{"what cannot be read", map[string]string{"access.log": "2", "access.log.1.xz": "1", "access.log.2.gpg": "1"}, "", "access.log.1.xz access.log.2.gpg access.log", ""},
		{"a line that was cut, alone", map[string]string{"access.log": "2", "access.log.1": `{"lev`}, "", "access.log.1 access.log", ""},
		{"packing under way", map[string]string{"access.log": "3", "access.log.1": "1 2", "access.log.1.gz.tmp": "1"}, "", "access.log.1 access.log", "access.log.1.gz.tmp"},
		{"packed", map[string]string{"access.log": "3", "access.log.1": "1 2", "access.log.1.gz": "1 2"}, "", "access.log.1 access.log", "access.log.1.gz"},
		{"copied, not emptied yet", map[string]string{"access.log": "1 2 3", "access.log.1": "1 2"}, "", "access.log", "access.log.1"},
		{"the same beginning", map[string]string{"access.log": "1 2 3", "access.log.1": "1 3"}, "", "access.log access.log.1", ""},
		{"a pattern", map[string]string{"access.log": "2", "access.log.1": "1", "other.log": "3"}, "access*", "access.log.1 access.log", ""},
		{"given by name", map[string]string{"notes.txt": "hello"}, "notes.txt", "notes.txt", ""},
		{"one that has just begun", map[string]string{"access.log": ""}, "", "access.log", ""},
		{"none", map[string]string{"notes.txt": "hello"}, "", "", "notes.txt"},
		{"none of that name", nil, "none.log", "", ""},
		{"none of a pattern", nil, "none*", "", ""},
		{"no pattern", nil, "[", "", ""},
	} {
		dir := t.TempDir()
		fileLines(t, dir, tt.files)
		logs, left, err := Files([]string{filepath.Join(dir, tt.args)}, nil)
		var all, out []string
		for _, log := range logs {
			var names []string
			for _, s := range log {
				names = append(names, filepath.Base(s.Name))
			}
			all = append(all, strings.Join(names, " "))
		}
		for _, f := range left {
			out = append(out, filepath.Base(f.File))
		}
		if got := strings.Join(all, " | "); got != tt.logs || strings.Join(out, " ") != tt.left || (err == nil) != (tt.logs != "") {
			t.Errorf("%s: %q, left out %q, %v; want %q, %q", tt.name, got, left, err, tt.logs, tt.left)
		}
	}
}

// TestUnreadableFiles checks that a file that may contain lines but cannot be read is an error with
// its name.
func TestUnreadableFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	fileLines(t, dir, map[string]string{"access.log": "2", "access.log.1.xz": "1", "access.log.2.gpg": "1", "old/access.log": "0"})
	logs, _, err := Files([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if all, left, err := Files([]string{dir, filepath.Join(dir, "old") + "/"}, nil); err != nil || len(left) > 0 || len(all) != 2 || len(all[1]) != 1 {
		t.Errorf("Files with an inner folder = %v, left out %v, %v", all, left, err)
	}
	var said []string
	_, err = Run(t.Context(), Config{Texts: memory{}}, logs, func(Finding) {}, func(f Fault) {
		said = append(said, filepath.Base(f.File)+": "+f.Err.Error())
	})
	if want := []string{"access.log.1.xz: it is compressed with xz: decompress it first", "access.log.2.gpg: it is not text: it may be compressed or encrypted", "old: it is a folder with access logs: name it too"}; err != nil || !slices.Equal(said, want) {
		t.Errorf("Files reports %q, %v", said, err)
	}
}

// TestNoObject checks that a log whose filter removed the robots object is not skipped.
func TestNoObject(t *testing.T) {
	t.Parallel()
	store := memory{}
	l := sampleLines(t, store)["allowed"]
	delete(l, "robots")
	if r := auditLogs(t, Config{Texts: store}, logOf(t, l, l)); r.brief() != "a:0 error\n" || r.totals.Unjudged != 2 {
		t.Errorf("audit of lines without the object: findings %q, totals %+v", r.brief(), r.totals)
	}
	// The gateway answers for this host itself, but not for another host whose name contains it.
	own := object{"request": object{"method": "GET", "uri": "https://crawlgate.invalid/agent"}}
	other := object{"request": object{"method": "GET", "uri": "http://example.com/?u=http://crawlgate.invalid/agent"}}
	if r := auditLogs(t, Config{Texts: store}, logOf(t, own, own, other)); r.totals.Foreign != 3 || r.totals.Unjudged != 1 {
		t.Errorf("audit with the gateway's own lines: findings %q, totals %+v", r.brief(), r.totals)
	}
}

// TestPacked checks that logs are read in each compression of Caddy, which is detected by content,
// not by name.
func TestPacked(t *testing.T) {
	t.Parallel()
	store := memory{}
	line := sampleLines(t, store)["absent"]
	log := answersFor(logOf(t, line)) + logOf(t, line)
	var gz, zst bytes.Buffer
	g := gzip.NewWriter(&gz)
	_, _ = g.Write([]byte(log))
	z, err := zstd.NewWriter(&zst)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = z.Write([]byte(log))
	if err := errors.Join(g.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	if r := auditLogs(t, Config{Texts: store}, gz.String(), zst.String(), log, ""); r.totals.ByState != 3 || r.totals.Lines != 6 || r.totals.Files != 4 {
		t.Errorf("totals of compressed logs = %+v", r.totals)
	}
}

// TestLogsOfSeveralGateways checks that lines of several gateways are read in the order of their
// times, so that a gap between two gateways is noticed. A line without a time stays after the line
// before it.
func TestLogsOfSeveralGateways(t *testing.T) {
	t.Parallel()
	store := memory{}
	at := func(began int) object { return request{began: began, took: 10}.line(t, store) }
	source := func(name string, lines ...object) Source {
		text := logOf(t, lines...)
		return Source{name, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	untimed := request{took: 10, sent: -1}.line(t, store).with("ended_at", nil)
	var findings, places []string
	texts := [][]Source{
		{source("east-1", at(0), at(4000)), source("east-2", at(8000), untimed, at(9000))},
		{source("west", at(2000), at(6000), at(8500), at(12000))},
		nil,
	}
	totals, err := Run(t.Context(), Config{Texts: store, Tolerance: 100 * time.Millisecond}, texts, func(f Finding) {
		findings = append(findings, fmt.Sprint(f.Place, f.Kind))
	}, func(f Fault) { t.Error(f.Err) })
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"west:3gap", "east-2:3gap"}; !slices.Equal(findings, want) {
		t.Errorf("%v, want %v", findings, want)
	}
	if totals.Files != 3 || totals.Checked != 9 || totals.Gaps.Late != 0 || totals.Gaps.Pairs != 7 {
		t.Errorf("totals of several gateways = %+v", totals)
	}
	for l := range byTime(texts) {
		places = append(places, fmt.Sprint(l.Place))
	}
	want := "east-1:1 west:1 east-1:2 west:2 east-2:1 east-2:2 west:3 east-2:3 west:4"
	if got := strings.Join(places, " "); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}
