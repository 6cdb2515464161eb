package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/internal/pagestyle"
)

var noon = time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)

// asked returns the line of a request that was sent, and ended, the given number of minutes after
// noon.
func asked(minutes float64, change func(r *enforce.LogRecord)) string {
	at := noon.Add(time.Duration(minutes * float64(time.Minute)))
	r := enforce.LogRecord{
		Schema: 2, Decision: "allow", Reason: enforce.ReasonNoRule, Mode: "enforce", Agent: "news", Owner: "team news",
		Gateway: "gw1", Origin: "https://slow.example", PathVisible: true, SentAt: enforce.SecondsOf(at), EndedAt: enforce.SecondsOf(at), CrawlDelay: 60,
	}
	if change != nil {
		change(&r)
	}
	line, err := json.Marshal(map[string]any{
		"ts": float64(at.UnixMilli()) / 1e3, "request": map[string]any{"method": "GET", "uri": r.Origin + "/page"}, "robots": r,
	})
	if err != nil {
		panic(err)
	}
	return string(line)
}

func logs(lines ...string) [][]audit.Source {
	text := strings.Join(lines, "\n") + "\n"
	return [][]audit.Source{{{Name: "a.log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}}}
}

func reportOf(tb testing.TB, f Filter, lines ...string) Report {
	tb.Helper()
	r, err := Of(tb.Context(), logs(lines...), f, func(f audit.Fault) { tb.Errorf("%v: %v", f.Place, f.Err) })
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// sealed returns a line with its number in a sealed log.
func sealed(line string) string {
	return string(bytes.TrimSpace(evidence.Splice([]byte(line), "gw/access/1", 0)))
}

func day() []string {
	refused := func(reason enforce.Reason, more func(r *enforce.LogRecord)) func(r *enforce.LogRecord) {
		return func(r *enforce.LogRecord) {
			r.Decision, r.Reason, r.SentAt = "deny", reason, 0
			if more != nil {
				more(r)
			}
		}
	}
	return []string{
		sealed(asked(0, nil)),
		asked(1.5, func(r *enforce.LogRecord) { r.WaitMillis = 30_000 }),
		asked(2, nil),
		asked(61, refused(enforce.ReasonDisallowed, func(r *enforce.LogRecord) { r.Agent, r.Owner = "shop", "" })),
		asked(62, refused(enforce.ReasonUnreachable, func(r *enforce.LogRecord) { r.Origin, r.Cause = "http://gone.example:8080", "timeout" })),
		asked(63, refused(enforce.ReasonUnreachable, func(r *enforce.LogRecord) { r.Origin, r.Cause = "http://gone.example", "timeout" })),
		asked(64, func(r *enforce.LogRecord) { r.Decision, r.Reason, r.SentAt = "error", "reset", 0 }),
		asked(65, func(r *enforce.LogRecord) {
			r.Reason, r.Exception, r.CrawlDelay = enforce.ReasonException, "slow.example: ticket 7", 0
		}),
		asked(66, func(r *enforce.LogRecord) { r.Mode, r.SentAt = "report", 0 }),
		`{"msg":"no request"}`,
	}
}

// counts returns counts of requests.
func counts(asked, allowed, refused, failed, held int64, wait float64) Counts {
	return Counts{Counts: audit.Counts{Outcomes: audit.Outcomes{Asked: asked, Allowed: allowed, Refused: refused, Failed: failed}}, Held: held, WaitSeconds: wait}
}

// row returns a row whose only key is its name.
func row(name string, c Counts) Row { return Row{Name: name, Counts: c} }

func TestReport(t *testing.T) {
	t.Parallel()
	r := reportOf(t, Filter{}, day()...)
	gone := Row{Name: "gone.example", Cause: "timeout", Counts: counts(2, 0, 2, 0, 0, 0)}
	gone.First, gone.Last = noon.Add(62*time.Minute), noon.Add(63*time.Minute)
	want := Report{
		Statement: "In the period from 2026-11-23 12:00:00 UTC to 2026-11-23 13:06:00 UTC, by the access log, the gateway gw1 refused 3 (33.3%) of 9 requests of 2 crawlers: " +
			"1 (11.1%) by a rule of robots.txt, 2 (22.2%) because robots.txt could not be read, the rest for other reasons. " +
			"By these lines, no request that robots.txt forbids was sent, but for at most 1 that the operator let pass: 1 by an exception, 0 in mode report, 0 in mode off (see the tables of exceptions and modes). " +
			`Before anyone signs this, the first points of "What this report does not prove" need an explanation.`,
		Period: audit.Period{First: noon, Last: noon.Add(66 * time.Minute)}, Lines: 10, Foreign: 1, Sealed: 1, Untimed: 1,
		Total: counts(9, 5, 3, 1, 1, 30),
		Owners: []Row{
			row("team news", counts(8, 5, 2, 1, 1, 30)), row("", counts(1, 0, 1, 0, 0, 0)),
		},
		Crawlers: []Row{
			{Name: "", Agent: "shop", Counts: counts(1, 0, 1, 0, 0, 0)}, {Name: "team news", Agent: "news", Counts: counts(8, 5, 2, 1, 1, 30)},
		},
		Refusals: []Row{
			{Name: "", Cause: "disallowed", Counts: counts(1, 0, 1, 0, 0, 0)},
			{Name: "team news", Cause: "unreachable", Counts: counts(2, 0, 2, 0, 0, 0)},
			{Name: "team news", Cause: "reset", Counts: counts(1, 0, 0, 1, 0, 0)},
		},
		Agents: []Row{row("news", counts(8, 5, 2, 1, 1, 30)), row("shop", counts(1, 0, 1, 0, 0, 0))},
		Hosts:  []Row{row("slow.example", counts(7, 5, 1, 1, 1, 30)), row("gone.example", counts(2, 0, 2, 0, 0, 0))},
		Reasons: []Row{
			row("no_rule", counts(4, 4, 0, 0, 1, 30)),
			row("unreachable", counts(2, 0, 2, 0, 0, 0)),
			row("disallowed", counts(1, 0, 1, 0, 0, 0)),
			row("exception", counts(1, 1, 0, 0, 0, 0)),
			row("reset", counts(1, 0, 0, 1, 0, 0)),
		},
		Conflicts:   []Row{},
		Budgets:     []Row{},
		Gateways:    []Row{row("gw1", counts(9, 5, 3, 1, 1, 30))},
		Days:        []Row{row("2026-11-23", counts(9, 5, 3, 1, 1, 30))},
		Hours:       []Row{row("2026-11-23T12:00:00Z", counts(3, 3, 0, 0, 1, 30)), row("2026-11-23T13:00:00Z", counts(6, 2, 3, 1, 0, 0))},
		Exceptions:  []Row{{Name: "slow.example: ticket 7", Agent: "news", Counts: counts(1, 1, 0, 0, 0, 0)}},
		Modes:       []Row{{Name: "report", Agent: "news", Counts: counts(1, 1, 0, 0, 0, 0)}},
		Unreachable: []Row{gone},
		Gaps:        []WorstGap{{"slow.example", 60, 30, 3}},
	}
	if r.overTime = (timeline{}); !reflect.DeepEqual(r, want) {
		t.Errorf("got  %+v\nwant %+v", r, want)
	}
}

// TestTunnels checks that a CONNECT counts as a tunnel in each table, and never as a request.
func TestTunnels(t *testing.T) {
	t.Parallel()
	connect := func(change func(r *enforce.LogRecord)) string {
		return strings.Replace(asked(67, change), `"method":"GET"`, `"method":"CONNECT"`, 1)
	}
	r := reportOf(t, Filter{}, append(day(),
		connect(func(r *enforce.LogRecord) { r.Reason = enforce.ReasonIntercepted }),
		connect(func(r *enforce.LogRecord) { r.Reason, r.PathVisible = enforce.ReasonUnrestricted, false }),
		connect(func(r *enforce.LogRecord) {
			r.Decision, r.Reason, r.PathVisible, r.Cause, r.WaitMillis = "deny", enforce.ReasonUnreachable, false, "dns", 1000
		}),
		connect(func(r *enforce.LogRecord) { r.Decision, r.Reason, r.PathVisible = "error", "reset", false }))...)
	want := counts(9, 5, 3, 1, 1, 30)
	want.Tunnels = audit.Tunnels{Outcomes: audit.Outcomes{Asked: 4, Allowed: 2, Refused: 1, Failed: 1}, Blind: 1}
	if r.Total != want {
		t.Errorf("%+v, want %+v", r.Total, want)
	}
	for _, table := range tables {
		var sum Counts
		for _, row := range *table.rows(&r) {
			sum.Asked += row.Asked
			sum.Tunnels.Asked += row.Tunnels.Asked
		}
		all := table.by != "refusal" && table.by != "purpose" && table.by != "exception" && table.by != "mode" && table.by != budgets && table.by != "unreachable"
		if all && (sum.Asked != 9 || sum.Tunnels.Asked != 4) {
			t.Errorf("table of %s: total %+v", table.by, sum)
		}
	}
	if n := r.Unreachable; len(n) != 2 || n[1].Cause != "dns" || n[1].Asked != 0 || n[1].Tunnels.Refused != 1 {
		t.Errorf("unreachable hosts = %+v", n)
	}
	for _, s := range []string{
		"9 requests, 5 allowed, 3 refused, 1 failed", "4 tunnels (CONNECT), which are no requests: 2 opened, 1 refused, 1 failed.",
		"Opened and not looked into: 1 of the tunnels.",
	} {
		if !strings.Contains(fmt.Sprint(r.Parts()), s) {
			t.Errorf("the report lacks %q: %q", s, r.Parts())
		}
	}
	var out bytes.Buffer
	if err := r.CSV(&out); err != nil || !strings.Contains(out.String(), "\ntotal,,9,5,3,1,1,30.000,4,2,1,1,1,") {
		t.Errorf("CSV = %v:\n%s", err, &out)
	}
}

// TestBudgets checks that the report has the least known rest, by agent and day, and refusals.
func TestBudgets(t *testing.T) {
	t.Parallel()
	left := func(n int64) func(r *enforce.LogRecord) { return func(r *enforce.LogRecord) { r.BudgetLeft = &n } }
	r := reportOf(t, Filter{}, asked(0, left(1)), asked(1, left(0)), asked(2, left(5)), asked(3, nil), asked(4, func(r *enforce.LogRecord) {
		r.Decision, r.Reason, r.SentAt = "deny", enforce.ReasonBudget, 0
	}), asked(24*60, left(7)))
	if len(r.Budgets) != 2 || r.Budgets[0].Name != "2026-11-23" || *r.Budgets[0].BudgetLeft != 0 || r.Budgets[0].Refused != 1 || *r.Budgets[1].BudgetLeft != 7 {
		t.Errorf("budgets = %+v", r.Budgets)
	}
	for _, s := range r.Sections() {
		if s.Title == "Budgets" && (s.Heading[len(s.Heading)-1] != "least left" || s.Rows[1][len(s.Heading)-1] != "7") {
			t.Errorf("table of budgets = %+v", s)
		}
	}
	var out bytes.Buffer
	if err := r.CSV(&out); err != nil || !strings.Contains(out.String(), "\nbudget,2026-11-23,4,3,1,0,0,0.000,0,0,0,0,0,news,,-,-,0\n") {
		t.Errorf("CSV = %v:\n%s", err, &out)
	}
}

// TestStatement checks that what may have been sent against a robots.txt is an exception in the
// statement, and that what the log does not show has to be explained before it is signed.
func TestStatement(t *testing.T) {
	t.Parallel()
	with := func(change func(r *enforce.LogRecord)) string { return asked(70, change) }
	const explain = "need an explanation."
	for _, tt := range []struct {
		line string
		want string
	}{
		{with(nil), "By these lines, no request that robots.txt forbids was sent."},
		{with(func(r *enforce.LogRecord) {
			r.Mode, r.WouldDeny, r.Reason = "report", true, enforce.ReasonDisallowed
		}), "for at most 1 that the operator let pass: 0 by an exception, 1 in mode report, 0"},
		{with(func(r *enforce.LogRecord) {
			r.Mode, r.WouldDeny, r.Reason = "report", true, enforce.ReasonUnreachable
		}), "0 by an exception, 1 in mode report, 0"},
		{with(func(r *enforce.LogRecord) { r.Mode, r.WouldDeny, r.Reason = "report", true, enforce.ReasonUnidentified }), "was sent."},
		{with(func(r *enforce.LogRecord) { r.Mode, r.Decision, r.Reason = "report", "error", "reset" }), "0 by an exception, 1 in mode report, 0"},
		{with(func(r *enforce.LogRecord) { r.Mode, r.Reason = "off", enforce.ReasonRobotsOff }), "0 in mode report, 1 in mode off"},
		{with(func(r *enforce.LogRecord) {
			r.Exception, r.Decision, r.Reason = "ticket 7", "error", "reset"
		}), "1 by an exception, 0"},
		{with(func(r *enforce.LogRecord) {
			r.Exception, r.Decision, r.Reason = "ticket 7", "deny", enforce.ReasonBackoff
		}), "was sent."},
		{with(func(r *enforce.LogRecord) { r.Lost = 3 }), explain},
		{with(func(r *enforce.LogRecord) { r.Agent = "" }), "of 2 requests of 1 crawler and of senders without a name: 0"},
		{with(func(r *enforce.LogRecord) { r.Gateway = "gw2\nStatement" }), "the gateways gw1 and gw2 Statement refused 0 (0.0%)"},
		{strings.Replace(with(func(r *enforce.LogRecord) { r.Reason, r.PathVisible = enforce.ReasonUnrestricted, false }), `"GET"`, `"CONNECT"`, 1), explain},
	} {
		r := reportOf(t, Filter{}, sealed(asked(0, nil)), sealed(tt.line))
		if !strings.Contains(r.Statement, tt.want) || strings.Contains(r.Statement, explain) != (tt.want == explain) {
			t.Errorf("%s\n%s\nwant %s", tt.line, r.Statement, tt.want)
		}
	}
	filter := Filter{Agent: "shop", Host: "slow.example", Owner: "team news", From: noon, To: noon.Add(time.Hour)}
	r := reportOf(t, filter, day()...)
	if want := "The logs have no request of the crawler shop for the host slow.example of the team team news from 2026-11-23 12:00:00 UTC before 2026-11-23 13:00:00 UTC: there is nothing to state."; r.Statement != want {
		t.Errorf("%s\nwant %s", r.Statement, want)
	}
	if r, want := reportOf(t, Filter{Agent: "shop"}, day()...), " requests of the crawler shop: "; !strings.Contains(r.Statement, want) {
		t.Errorf("%s\nwant %s", r.Statement, want)
	}
	blind := asked(0, func(r *enforce.LogRecord) { r.Reason, r.PathVisible = enforce.ReasonUnrestricted, false })
	for name, lines := range map[string][]string{
		"unsealed":    {sealed(asked(0, nil)), asked(1, nil)},
		"only tunnel": {sealed(strings.Replace(blind, `"GET"`, `"CONNECT"`, 1))},
	} {
		if r := reportOf(t, Filter{}, lines...); !strings.HasSuffix(r.Statement, explain) {
			t.Errorf("%s: %s", name, r.Statement)
		}
	}
}

// TestOtherModes checks that agents beyond the limit of names may have been off.
func TestOtherModes(t *testing.T) {
	t.Parallel()
	r := Report{Total: counts(9, 9, 0, 0, 0, 0), Modes: []Row{row(audit.Others, counts(4, 3, 0, 1, 0, 0)), row("off", counts(2, 2, 0, 0, 0, 0)), row("report", counts(3, 2, 0, 1, 0, 0))}}
	const want = " for at most 7 that the operator let pass: 0 by an exception, 1 in mode report, 6 in mode off"
	if got := r.Parts()[0].Text[0]; !strings.Contains(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// TestLongTail checks that the rows beyond a table's limit are added up in its last row, and that
// many hours are shown as days.
func TestLongTail(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range 60 {
		lines = append(lines, asked(float64(60*i), func(r *enforce.LogRecord) { r.Origin = fmt.Sprintf("http://h%02d.example", i) }))
	}
	r := reportOf(t, Filter{}, lines...)
	found := map[string]Section{}
	for _, s := range r.Sections() {
		found[s.Title] = s
	}
	hosts, days := found["Hosts"], found["Days"]
	if n := len(hosts.Rows); n != 51 || fmt.Sprint(hosts.Rows[50]) != "[(10 more) 10 16.7% 10 0 0 0 0 s]" || hosts.Rows[0][2] != "1.7%" {
		t.Errorf("%d rows of hosts: %+v", n, hosts)
	}
	if fmt.Sprint(days.Rows) != "[[2026-11-23 12 20.0% 12 0 0 0 0 s] [2026-11-24 24 40.0% 24 0 0 0 0 s] [2026-11-25 24 40.0% 24 0 0 0 0 s]]" {
		t.Errorf("days = %+v", days)
	}
	if _, shown := found["Hours"]; shown {
		t.Error("60 hours are shown, want days")
	}
}

// TestPassedUnreachable checks that a request that mode report let pass is not counted as a
// refusal.
func TestPassedUnreachable(t *testing.T) {
	t.Parallel()
	r := reportOf(t, Filter{}, append(day(), asked(68, func(r *enforce.LogRecord) {
		r.Origin, r.Reason, r.Cause, r.Mode, r.WouldDeny = "http://gone.example", enforce.ReasonUnreachable, "timeout", "report", true
	}))...)
	if n := r.Unreachable; len(n) != 1 || n[0].Asked != 3 || n[0].Refused != 2 || n[0].Allowed != 1 {
		t.Errorf("unreachable hosts = %+v", n)
	}
}

// TestTimeline checks that bars become wider when the period becomes longer, and that no request is
// lost.
func TestTimeline(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		last  time.Duration
		width time.Duration
	}{{0, time.Second}, {90 * time.Second, time.Second}, {2 * time.Minute, 10 * time.Second}, {time.Hour, time.Minute}, {30 * 24 * time.Hour, 24 * time.Hour}, {1 << 62, 64 * 7 * 24 * time.Hour}} {
		var line timeline
		n := int64(0)
		for at := noon; !at.After(noon.Add(tt.last)); at = at.Add(max(tt.last/1000, 1)) {
			line.add(at, enforce.OutcomeAllow)
			n++
		}
		var all int64
		for at, o := range line.bars {
			if all += o.Allowed; at != at.Truncate(line.width) {
				t.Errorf("a bar begins at %v, want a multiple of the width", at)
			}
		}
		c, drawn := line.chart(), int64(0)
		for i := range c.Bars {
			drawn += int64(c.Layers[0].Values[i])
		}
		if all != n || drawn != n || c.Bars > mostBars+1 || len(line.bars) > mostBars+1 || line.width != tt.width || c.Width != tt.width {
			t.Errorf("%v: %d requests in %d bars of %v; %d in %d of the chart", tt.last, all, len(line.bars), line.width, drawn, c.Bars)
		}
	}
}

func TestGrouped(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -999: "-999", 1234567: "1,234,567"} {
		if got := number(n); got != want {
			t.Errorf("number(%d) = %s", n, got)
		}
	}
	for n, want := range map[float64]string{0: "0 s", 0.0625: "0.063 s", 999.9996: "1,000 s", -1234567.125: "-1,234,567.125 s", 12345: "12,345 s", 1.001: "1.001 s", 0.999: "0.999 s"} {
		if got := seconds(n); got != want {
			t.Errorf("%v is %s, want %s", n, got, want)
		}
	}
}

// TestConflicts checks that preferences are counted by the purpose that the site denies, whether
// the request passed or not. Answers that ask for payment are counted too.
func TestConflicts(t *testing.T) {
	t.Parallel()
	conflict := func(text string, denied bool) string {
		return asked(70, func(r *enforce.LogRecord) {
			if r.Conflict = text; denied {
				r.Decision, r.Reason = "deny", enforce.ReasonPreferenceDenied
			}
		})
	}
	r := reportOf(t, Filter{}, append(day(),
		conflict("train-ai=n;from=robots;line=3", false), conflict("train-ai=n;from=meta", true), conflict("search=unknown", true),
		asked(71, func(r *enforce.LogRecord) { r.PaymentRequired, r.Signed = true, "thumbprint" }))...)
	want := []Row{row("train-ai", counts(2, 1, 1, 0, 0, 0)), row("search", counts(1, 0, 1, 0, 0, 0))}
	if !reflect.DeepEqual(r.Conflicts, want) || r.PaymentRequired != 1 || r.Signed != 1 {
		t.Errorf("conflicts = %+v, %d answers ask for payment, %d requests are signed", r.Conflicts, r.PaymentRequired, r.Signed)
	}
	var table bytes.Buffer
	if err := r.CSV(&table); err != nil || !strings.Contains(table.String(), "\npurpose,train-ai,2,1,1,0,0,0.000,0,") {
		t.Errorf("CSV = %v:\n%s", err, &table)
	}
	if s := fmt.Sprint(r.Parts()); !strings.Contains(s, "1 answers asked for payment (402).") || !strings.Contains(s, "1 of 13 requests left with a signature") {
		t.Error(s)
	}
	if s := fmt.Sprint(r.Sections()); !strings.Contains(s, "{Against a preference of the site [purpose asked share") {
		t.Error(s)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		filter Filter
		want   int64
	}{
		{Filter{}, 9},
		{Filter{From: noon.Add(time.Hour)}, 6},
		{Filter{To: noon.Add(time.Hour)}, 3},
		{Filter{From: noon.Add(61 * time.Minute), To: noon.Add(62 * time.Minute)}, 1},
		{Filter{Agent: "SHOP"}, 1},
		{Filter{Owner: "team news"}, 8},
		{Filter{Host: "gone.example"}, 2},
		{Filter{Host: "gone.example", Agent: "shop"}, 0},
	} {
		if r := reportOf(t, tt.filter, day()...); r.Total.Asked != tt.want || r.Lines != 10 {
			t.Errorf("%+v: %d requests of %d lines", tt.filter, r.Total.Asked, r.Lines)
		}
	}
}

// TestLostBeyondFilter checks the number of lost lines, whose agents and hosts are unknown: a
// filter by agent, team or host keeps it, and a filter by time removes only lines that cannot be of
// its period.
func TestLostBeyondFilter(t *testing.T) {
	t.Parallel()
	lost := asked(30, func(r *enforce.LogRecord) {
		r.Agent, r.Owner, r.Lost, r.LostSince = "shop", "", 40, enforce.SecondsOf(noon.Add(20*time.Minute))
	})
	undated := asked(31, func(r *enforce.LogRecord) { r.Agent, r.Lost = "shop", 2 })
	at := func(minutes int) time.Time { return noon.Add(time.Duration(minutes) * time.Minute) }
	for _, tt := range []struct {
		filter Filter
		want   int64
	}{
		{Filter{}, 42},
		{Filter{Agent: "news"}, 42},
		{Filter{Owner: "team news", Host: "gone.example"}, 42},
		{Filter{To: at(10)}, 2},
		{Filter{To: at(25)}, 42},
		{Filter{From: at(30)}, 42},
		{Filter{From: at(31)}, 2},
		{Filter{From: at(32)}, 0},
	} {
		r := reportOf(t, tt.filter, append(day(), lost, undated)...)
		if r.Lost != tt.want || strings.Contains(fmt.Sprint(r.Parts()), " lines are missing") != (tt.want > 0) {
			t.Errorf("%+v: %d lost, want %d: %s", tt.filter, r.Lost, tt.want, r.Statement)
		}
	}
}

// TestGapsInAnyOrder checks that gaps are computed in the order of sending, although lines are in
// the order in which requests ended.
func TestGapsInAnyOrder(t *testing.T) {
	t.Parallel()
	for _, order := range [][]float64{{0, 1, 3}, {3, 1, 0}, {0, 3, 1}, {1, 3, 0}} {
		var lines []string
		for _, at := range order {
			lines = append(lines, asked(at, func(r *enforce.LogRecord) { r.CrawlDelay = 90 }))
		}
		if r := reportOf(t, Filter{}, lines...); len(r.Gaps) != 1 || r.Gaps[0].Least != 60 || r.Gaps[0].Delay != 90 || r.Gaps[0].Pairs != 2 {
			t.Errorf("order %v: gaps = %+v", order, r.Gaps)
		}
	}
}

func TestUnreadable(t *testing.T) {
	t.Parallel()
	var faults []string
	broken := audit.Source{Name: "b.log", Open: func() (io.ReadCloser, error) { return nil, errors.New("gone") }}
	r, err := Of(t.Context(), append(logs(asked(0, nil), "{"), []audit.Source{broken}), Filter{}, func(f audit.Fault) {
		faults = append(faults, fmt.Sprint(f.Place))
	})
	if err != nil || r.Unreadable != 2 || r.Total.Asked != 1 || strings.Join(faults, " ") != "b.log:0 a.log:2" {
		t.Errorf("report of damaged logs: %v, faults %v, %+v", err, faults, r)
	}
}

// A line that was cut off counts as unreadable, even if a request follows on the same line. Lines
// that the sealer says are lost are missing.
func TestTornAndLost(t *testing.T) {
	t.Parallel()
	cut := asked(0, nil)[:90]
	lost := `{"level":"error","ts":1,"logger":"crawlgate.evidence","msg":"lost","lines":7,"from":"2026-11-23T12:10:00Z","to":"2026-11-23T12:20:00Z","log":"gw1/access/1","seq":3}`
	known := `{"robots_txt":{"schema":1,"event":"known","at":"2026-11-21T12:00:00Z","origin":"http://a.example","state":"absent"}}`
	for _, tt := range []struct {
		lines                            []string
		filter                           Filter
		asked, unreadable, lost, foreign int64
	}{
		{[]string{cut + asked(1, nil), asked(2, nil)}, Filter{}, 2, 1, 0, 0},
		{[]string{cut, asked(2, nil)}, Filter{}, 1, 1, 0, 0},
		{[]string{cut + known, asked(2, nil)}, Filter{}, 1, 1, 0, 1},
		{[]string{asked(1, nil), lost}, Filter{}, 1, 0, 7, 1},
		{[]string{asked(30, nil), lost}, Filter{From: noon.Add(21 * time.Minute)}, 1, 0, 0, 1},
		{[]string{asked(1, nil), lost}, Filter{To: noon.Add(9 * time.Minute)}, 1, 0, 0, 1},
		{[]string{asked(1, nil), lost}, Filter{To: noon.Add(11 * time.Minute)}, 1, 0, 7, 1},
	} {
		r, err := Of(t.Context(), logs(tt.lines...), tt.filter, func(audit.Fault) {})
		if err != nil || r.Total.Asked != tt.asked || r.Unreadable != tt.unreadable || r.Lost != tt.lost || r.Foreign != tt.foreign {
			t.Errorf("%.200q: %v, %+v", tt.lines, err, r)
		}
	}
}

// TestBounds checks that names beyond the bound are counted together.
func TestBounds(t *testing.T) {
	t.Parallel()
	var lines []string
	for i := range mostNames + 10 {
		lines = append(lines, asked(0, func(r *enforce.LogRecord) { r.Origin = fmt.Sprintf("http://h%d.example", i) }))
	}
	r := reportOf(t, Filter{}, lines...)
	if r.Hosts[0].Name != audit.Others || r.Hosts[0].Asked != 10 || r.Beyond != 20 || r.Total.Asked != mostNames+10 {
		t.Errorf("first host = %+v, %d requests beyond the limit", r.Hosts[0], r.Beyond)
	}
}

// TestCSV checks that no cell is a formula, and that there are all rows.
func TestCSV(t *testing.T) {
	t.Parallel()
	r := reportOf(t, Filter{}, append(day(), asked(70, func(r *enforce.LogRecord) { r.Agent, r.Owner = "=cmd()", "+1" }))...)
	var out bytes.Buffer
	if err := r.CSV(&out); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&out).ReadAll()
	if err != nil || len(rows) != 1+3+1+10+3+3+3+3+2+5+1+1+1+1+1+2 {
		t.Fatalf("CSV has %d rows, %v", len(rows), err)
	}
	seen := ""
	for _, row := range rows[1:] {
		seen += row[1] + ";"
		if strings.ContainsAny(row[1][:min(1, len(row[1]))], "=+-@") {
			t.Errorf("a cell of %q is a formula", row)
		}
	}
	if !strings.Contains(seen, "'=cmd();") || !strings.Contains(seen, "'+1;") {
		t.Error(seen)
	}
	for _, text := range []string{"-1", "@x", "\t=1", "\r=1", "\n=1", "＝1"} {
		if got := cell(text); got != "'"+text {
			t.Errorf("cell(%q) = %q", text, got)
		}
	}
}

// TestHTML checks that the page is self-contained, and that no text of a log becomes markup.
func TestHTML(t *testing.T) {
	t.Parallel()
	const evil = `<script>alert(1)</script>"'&`
	r := reportOf(t, Filter{}, append(day(), asked(70, func(r *enforce.LogRecord) {
		r.Agent, r.Owner, r.Exception = evil, evil, evil
	}))...)
	var out bytes.Buffer
	if err := r.HTML(&out, evil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), pagestyle.Head) || !strings.Contains(html.UnescapeString(out.String()), pagestyle.Policy) {
		t.Error("the page does not have the common look and its policy")
	}
	page := strings.Replace(out.String(), pagestyle.Head, "", 1) // the icon contains a URL, the name of a format
	for _, s := range []string{"<script", "<style", "style=", "http://", "https://", "url(", "src=", "href=", "ZgotmplZ", "NaN"} {
		if strings.Contains(page, s) {
			t.Errorf("the page contains %q", s)
		}
	}
	for _, s := range []string{"<svg", "Teams", "ticket 7", "gone.example", "&lt;script&gt;", "class=\"refused\"", "60 s"} {
		if !strings.Contains(page, s) {
			t.Errorf("the page lacks %q", s)
		}
	}
	var empty bytes.Buffer
	if err := new(Report).HTML(&empty, "nothing"); err != nil || strings.Contains(empty.String(), "<rect") || !strings.Contains(empty.String(), "there is nothing to state.") {
		t.Errorf("the page of an empty report is wrong: error %v", err)
	}
}

// FuzzReport checks that whatever lines contain, each request is counted once, and the page and the
// CSV table are written.
func FuzzReport(f *testing.F) {
	f.Add(strings.Join(day(), "\n"))
	f.Add(`{"ts":1e300,"robots":{"schema":2,"sent_at":1e308,"crawl_delay_s":1e308,"origin":"%","decision":"x"}}`)
	f.Fuzz(func(t *testing.T, text string) {
		r, err := Of(t.Context(), logs(text), Filter{}, func(audit.Fault) {})
		if err != nil {
			t.Fatal(err)
		}
		var hosts int64
		for _, row := range r.Hosts {
			hosts += row.Asked
		}
		if c := r.Total; c.Asked != c.Allowed+c.Refused+c.Failed || c.Asked != hosts || r.Lines != c.Asked+c.Tunnels.Asked+r.Foreign+r.Again+r.Unreadable {
			t.Errorf("inconsistent totals in %+v", r)
		}
		if err := errors.Join(r.HTML(io.Discard, "x"), r.CSV(io.Discard)); err != nil {
			t.Error(err)
		}
	})
}
