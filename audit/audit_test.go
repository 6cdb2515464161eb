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

// TestTotals holds what is counted of honest lines of each kind.
// TestTunnelTotals: a CONNECT is a tunnel that was opened or refused, and no request. A request in one
// that was looked into has its own line.
func TestTunnelTotals(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	looked := lineOf(t, (&enforce.Enforcer{}).DecideIntercept(enforce.Authentication{}, target(t, "https://site.example/").Origin).Record(), "CONNECT", "site.example:443", noon)
	looked = looked.with("decision", "allow").with("reason", "intercepted").with("path_visible", true).with("agent", "AcmeBot")
	inside := lines["disallowed"]
	r := auditLogs(t, Config{Texts: store}, logOf(t, looked, inside, inside, inside, lines["tunnel to absent"], lines["tunnel"]))
	a := r.totals.Agents[0]
	if len(r.findings) > 0 || a.Checked != 6 || a.Allowed != 0 || a.Denied[enforce.ReasonDisallowed] != 3 || len(a.Denied) != 1 ||
		a.Tunnels.Allowed != 2 || a.Tunnels.Blind != 1 || a.Tunnels.Denied[enforce.ReasonTunnelRestricted] != 1 || len(a.Tunnels.Denied) != 1 {
		t.Errorf("%v, %+v", r.findings, a)
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
		t.Errorf("%+v", c)
	}
	if len(c.Agents) != 3 || c.Agents[0].Agent != "AcmeBot" || c.Agents[1].Agent != "Free" || c.Agents[2].Agent != "Reporter" {
		t.Fatalf("%+v", c.Agents)
	}
	acme, reporter := c.Agents[0], c.Agents[2]
	want := fmt.Sprint(map[enforce.Reason]int64{
		enforce.ReasonDisallowed: 2, enforce.ReasonUnreachable: 2, enforce.ReasonOperatorDeny: 2,
		enforce.ReasonRateLimited: 2,
	})
	if n := acme.Tunnels; n.Allowed != 0 || n.Denied[enforce.ReasonTunnelRestricted] != 2 || n.Blind != 0 {
		t.Errorf("%+v", n)
	}
	if acme.Checked != 22 || acme.Allowed != 10 || fmt.Sprint(acme.Denied) != want || acme.Failed["reset"] != 2 ||
		acme.Exceptions["site.example: ticket 7"] != 2 || len(acme.WouldDeny) != 0 {
		t.Errorf("%+v", acme)
	}
	if reporter.Allowed != 2 || reporter.WouldDeny[enforce.ReasonDisallowed] != 2 || len(reporter.Denied) != 0 {
		t.Errorf("%+v", reporter)
	}
}

// TestCaps: what is counted by name is bounded, what is beyond is counted together.
func TestCaps(t *testing.T) {
	t.Parallel()
	store := memory{}
	lines := sampleLines(t, store)
	exception, missing := lines["exception"], lines["allowed"]
	cfg := Config{Texts: store, limits: limits{agents: 2, exceptions: 1, texts: 1, hosts: 10}}
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Hour) }
	r := auditLogs(t, cfg, logOf(t,
		exception.at(at(1)), exception.with("exception", "b").at(at(2)), exception.with("exception", "c").at(at(3)),
		exception.with("agent", "B").at(at(4)), exception.with("agent", "C").at(at(5)), exception.with("agent", "D").at(at(6)),
		missing.with("sha256", strings.Repeat("a", 64)).at(at(7)), missing.with("sha256", strings.Repeat("b", 64)).at(at(8)),
		missing.with("sha256", strings.Repeat("a", 64)).at(at(9)),
	))
	long := exception.with("agent", strings.Repeat("x", maxLabel+1)).with("exception", strings.Repeat("y", maxLabel+1))
	if c := auditLogs(t, Config{Texts: store}, logOf(t, long)).totals; len(c.Agents) != 1 || c.Agents[0].Agent != Others || c.Agents[0].Exceptions[Others] != 1 {
		t.Errorf("names that no log has: %+v", c.Agents)
	}
	if c := r.totals; c.Caps != (CapTotals{Agents: 2, Exceptions: 2, Texts: 1}) || len(c.Agents) != 3 || c.Agents[0].Agent != Others ||
		c.Agents[0].Checked != 2 || c.Agents[1].Exceptions[Others] != 2 || len(c.Texts) != 1 || c.Texts[0].Lines != 2 {
		t.Errorf("%+v", c)
	}
}

// TestOwners: the last line that names an owner or a contact tells who answers for an agent.
func TestOwners(t *testing.T) {
	t.Parallel()
	store := memory{}
	line := sampleLines(t, store)["allowed"]
	at := func(i int) time.Time { return noon.Add(time.Duration(i) * time.Hour) }
	r := auditLogs(t, Config{Texts: store}, logOf(t,
		line.with("agent", "A").with("owner", "team a").with("contact", "a@acme.example").at(at(1)),
		line.with("agent", "A").with("contact", "b@acme.example").at(at(2)),
		line.with("agent", "A").at(at(3)),
		line.with("agent", "B").with("owner", strings.Repeat("x", maxLabel+1)).at(at(4)), // no log of ours has it
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

// TestFaults: a log that cannot be read, or not to its end, does not keep the others from being
// read.
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
	totals, err := Run(t.Context(), Config{Texts: store}, [][]Source{sources}, Report{Fault: func(f Fault) error {
		faults = append(faults, fmt.Sprintf("%s:%d: %v", f.File, f.Line, f.Err))
		return nil
	}})
	want := []string{
		"gone:0: broken", "cut:2: reading on: broken", "no gzip:0: unpacking: gzip: invalid header",
		"half gzip:2: reading on: unexpected EOF", fmt.Sprintf("long:1: it is longer than %d bytes", maxLine),
	}
	if err != nil || !slices.Equal(faults, want) {
		t.Errorf("%v\n%s", err, strings.Join(faults, "\n"))
	}
	if totals.Checked != 4 || totals.Lines != 7 || totals.Unreadable != 3 || totals.Errors != 5 {
		t.Errorf("%+v", totals)
	}
}

// TestRunEnds: a report that fails and a context that ends are the end of it, and leave nothing
// behind.
func TestRunEnds(t *testing.T) {
	t.Parallel()
	store := memory{}
	log := strings.Repeat(logOf(t, sampleLines(t, store)["disallowed"].with("group", "b")), 3000)
	stop := errors.New("stop")
	source := Source{"a", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(log)), nil }}
	for range 4 {
		n := 0
		_, err := Run(t.Context(), Config{Texts: store}, [][]Source{{source}}, Report{Finding: func(Finding) error {
			if n++; n == 100 {
				return stop
			}
			return nil
		}})
		if !errors.Is(err, stop) || n != 100 {
			t.Fatalf("%d findings, %v", n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err = Run(ctx, Config{Texts: store}, [][]Source{{source}}, Report{Finding: func(Finding) error { cancel(); return nil }}); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		cancel()
	}
	if _, err := Run(t.Context(), Config{}, nil, Report{}); err == nil {
		t.Error("an audit without texts")
	}
}

// TestFilesOfOneLog: folders that hold one sealed log are one list, in the order of its lines, whatever their times are.
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
	logs, err := Files(append(args, "-"), strings.NewReader("once\n"))
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
		t.Errorf("standard input has %q, %v", text, err)
	}
}

// TestFiles holds which logs an argument stands for, and their order.
func TestFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{
		"access.log", "access-2026-05-02T10-30-00.000-size.log.gz", "access-2026-05-01T10-30-00.000.log",
		"access-2026-05-02T10-30-00.500-time_1.log.zst", "access.log-2026-04-01T00-00-00.000-manual", "z.json", "robots.db", "access.log.bak", "sub.log/x.log",
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	inTime := []string{
		"access.log-2026-04-01T00-00-00.000-manual", "access-2026-05-01T10-30-00.000.log", "access-2026-05-02T10-30-00.000-size.log.gz",
		"access-2026-05-02T10-30-00.500-time_1.log.zst", "access.log",
	}
	for _, tt := range []struct {
		args []string
		want []string
	}{
		{[]string{dir}, append(slices.Clone(inTime), "z.json")},
		{[]string{filepath.Join(dir, "access*")}, append(slices.Clone(inTime), "access.log.bak")},
		{[]string{filepath.Join(dir, "z.json"), "-", filepath.Join(dir, "access.log")}, []string{"z.json", "access.log", "-"}},
		{[]string{filepath.Join(dir, "robots.db")}, []string{"robots.db"}},
		{[]string{filepath.Join(dir, "none.log")}, nil},
		{[]string{filepath.Join(dir, "none*")}, nil},
		{[]string{filepath.Join(dir, "[")}, nil},
		{[]string{filepath.Join(dir, "sub.log", "*")}, []string{"x.log"}},
		{[]string{t.TempDir()}, nil},
	} {
		logs, err := Files(tt.args, strings.NewReader(""))
		var got []string
		for _, s := range slices.Concat(logs...) {
			got = append(got, filepath.Base(s.Name))
		}
		if !slices.Equal(got, tt.want) || (err == nil) != (tt.want != nil) {
			t.Errorf("%q: %q, %v; want %q", tt.args, got, err, tt.want)
		}
	}
}

// TestPacked: logs are read whatever Caddy packs them with, and by their content, not by their
// names.
func TestPacked(t *testing.T) {
	t.Parallel()
	store := memory{}
	log := logOf(t, sampleLines(t, store)["absent"])
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
	if r := auditLogs(t, Config{Texts: store}, gz.String(), zst.String(), log, ""); r.totals.ByState != 3 || r.totals.Lines != 3 || r.totals.Files != 4 {
		t.Errorf("%+v", r.totals)
	}
}

// TestProgress is told of each stretch, in order.
func TestProgress(t *testing.T) {
	t.Parallel()
	store := memory{}
	log := strings.Repeat(logOf(t, sampleLines(t, store)["absent"]), 3000)
	var told []int64
	_, err := Run(t.Context(), Config{Texts: store}, [][]Source{{{"a", func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(log)), nil }}}},
		Report{Progress: func(n int64) { told = append(told, n) }})
	if err != nil || len(told) < 5 || !slices.IsSorted(told) || told[len(told)-1] != 3000 {
		t.Errorf("%v %v", told, err)
	}
}

// TestLogsOfSeveralGateways: their lines are taken in the order of their times, so that a gap between
// two gateways is seen, and a line without a time stays behind the one before it.
func TestLogsOfSeveralGateways(t *testing.T) {
	t.Parallel()
	store := memory{}
	at := func(began int) object { return request{began: began, took: 10}.line(t, store) }
	source := func(name string, lines ...object) Source {
		text := logOf(t, lines...)
		return Source{name, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	}
	untimed := at(0)
	delete(untimed, "ts")
	var findings, places []string
	texts := [][]Source{
		{source("east-1", at(0), at(4000)), source("east-2", at(8000), untimed, at(9000))},
		{source("west", at(2000), at(6000), at(8500), at(12000))},
		nil,
	}
	totals, err := Run(t.Context(), Config{Texts: store, Tolerance: 100 * time.Millisecond}, texts, Report{
		Finding: func(f Finding) error { findings = append(findings, fmt.Sprint(f.Place, f.Kind)); return nil },
		Fault:   func(f Fault) error { return f.Err },
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"west:3gap", "east-2:3gap"}; !slices.Equal(findings, want) {
		t.Errorf("%v, want %v", findings, want)
	}
	if totals.Files != 3 || totals.Checked != 9 || totals.Gaps.Late != 0 || totals.Gaps.Pairs != 7 {
		t.Errorf("%+v", totals)
	}
	for l := range byTime(texts) {
		places = append(places, fmt.Sprint(l.at))
	}
	want := "east-1:1 west:1 east-1:2 :0 west:2 east-2:1 east-2:2 west:3 east-2:3 :0 west:4 :0"
	if got := strings.Join(places, " "); got != want {
		t.Errorf("order %s, want %s", got, want)
	}
}
