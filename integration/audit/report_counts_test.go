//go:build slow

package audit

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"maps"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// rowNumbers are the numbers of a row of a report: requests, allowed, refused, failed, held, and
// seconds held; tunnels asked for, opened, refused, failed, and opened without interception.
type rowNumbers [11]float64

// countedTable has the rows of a table by their keys, and the times of their first and last lines.
type countedTable struct {
	rows  map[string]*rowNumbers
	first map[string]string
	last  map[string]string
}

// counted has the content that a report must have, counted from the raw lines.
type counted struct {
	tables map[string]*countedTable // by the names that CSV gives them
	total  *rowNumbers
	sums   map[string]float64 // by the names that JSON gives them
	gaps   map[string][3]float64
	left   map[string][]float64 // of budgets, by day and agent
	passed map[string]float64   // requests that may have passed against robots.txt, by what permitted them
	first  string
	last   string
}

// tablesOf has, for each table, its name in JSON, its title, and the heading of its keys.
var tablesOf = map[string][3]string{
	"crawler": {"crawlers", "Crawlers by team", "team agent"}, "refusal": {"refusals", "Refusals and failures by team", "team reason code"},
	"gateway": {"gateways", "Gateways", "gateway"}, "day": {"days", "Days", "day"},
	"owner": {"owners", "Teams", "team"}, "agent": {"agents", "Crawlers", "agent"}, "reason": {"reasons", "Reasons", "reason code"},
	"host": {"hosts", "Hosts", "host"}, "purpose": {"conflicts", "Against a preference of the site", "purpose"},
	"exception": {"exceptions", "Exceptions in use", "exception agent"}, "mode": {"modes", "Modes other than enforce in use", "mode agent"},
	"unreachable": {"unreachable", "Sites whose robots.txt was unreachable", "host cause"}, "hour": {"hours", "Hours", "hour"},
	"budget": {"budgets", "Budgets", "day agent"},
}

// field returns a field of the robots object, as text.
func field(robots map[string]any, name string) string {
	text, _ := robots[name].(string)
	return text
}

// keysOf returns the keys of a line by table. A key of two parts has a newline between them.
func keysOf(robots map[string]any) map[string]string {
	keys := map[string]string{"owner": field(robots, "owner"), "agent": field(robots, "agent"), "reason": field(robots, "reason"), "host": ""}
	if u, err := url.Parse(field(robots, "origin")); err == nil {
		keys["host"] = u.Hostname()
	}
	if purpose, _, ok := strings.Cut(field(robots, "preference_conflict"), "="); ok {
		keys["purpose"] = purpose
	}
	if label := field(robots, "exception"); label != "" {
		keys["exception"] = label + "\n" + keys["agent"]
	}
	if mode := field(robots, "mode"); mode != "enforce" {
		keys["mode"] = mode + "\n" + keys["agent"]
	}
	if keys["reason"] == "unreachable" {
		keys["unreachable"] = keys["host"] + "\n" + field(robots, "cause")
	}
	keys["crawler"], keys["gateway"] = keys["owner"]+"\n"+keys["agent"], field(robots, "gateway")
	if field(robots, "decision") != "allow" {
		keys["refusal"] = keys["owner"] + "\n" + keys["reason"]
	}
	keys["hour"] = time.Unix(int64(robots["ended_at"].(float64))/3600*3600, 0).UTC().Format(time.RFC3339)
	keys["day"] = keys["hour"][:len(time.DateOnly)]
	if robots["budget_left"] != nil || keys["reason"] == "budget" {
		keys["budget"] = keys["day"] + "\n" + keys["agent"]
	}
	return keys
}

// numbersOf returns the numbers that a line adds to a row.
func numbersOf(line, robots map[string]any) (n rowNumbers) {
	base := 0
	if line["request"].(map[string]any)["method"] == "CONNECT" {
		base = 6
	}
	n[base] = 1
	n[base+map[string]int{"allow": 1, "deny": 2, "error": 3}[field(robots, "decision")]] = 1
	if base > 0 {
		if n[base+1] == 1 && robots["path_visible"] == false {
			n[10] = 1
		}
		return n
	}
	if wait, ok := robots["wait_ms"].(float64); ok && wait > 0 {
		n[4], n[5] = 1, wait/1e3
	}
	return n
}

func (n *rowNumbers) add(other rowNumbers) {
	for i := range n {
		n[i] += other[i]
	}
}

func countLines(t *testing.T, texts ...[]byte) *counted {
	t.Helper()
	c := &counted{tables: map[string]*countedTable{}, total: new(rowNumbers), sums: map[string]float64{"beyond": 0, "untimed": 0, "lost": 0, "signed": 0}, gaps: map[string][3]float64{}, left: map[string][]float64{}, passed: map[string]float64{}}
	for by := range tablesOf {
		c.tables[by] = &countedTable{map[string]*rowNumbers{}, map[string]string{}, map[string]string{}}
	}
	sent, requests := map[string][][2]float64{}, map[string]bool{}
	for _, text := range texts {
		for raw := range bytes.Lines(text) {
			c.sums["lines"]++
			var line map[string]any
			if json.Unmarshal(raw, &line) != nil {
				c.sums["unreadable"]++
				continue
			}
			robots, ok := line["robots"].(map[string]any)
			if !ok {
				c.sums["not_ours"]++
				continue
			}
			request := fmt.Sprint(line["request"].(map[string]any)["remote_port"], robots["decided_at"], robots["sent_at"], robots["ended_at"])
			if requests[request] {
				c.sums["again"]++
				continue
			}
			requests[request] = true
			if line["seq"] != nil {
				c.sums["sealed"]++
			}
			if robots["payment_required"] == true {
				c.sums["payment_required"]++
			}
			if robots["signed"] != nil {
				c.sums["signed"]++
			}
			lost, _ := robots["lost"].(float64)
			c.sums["lost"] += lost
			c.passed[letPass(line, robots)]++
			numbers, at := numbersOf(line, robots), time.UnixMicro(int64(math.Round(robots["ended_at"].(float64)*1e6))).UTC().Format(time.RFC3339Nano)
			c.total.add(numbers)
			c.first, c.last = least(c.first, at), greatest(c.last, at)
			keys := keysOf(robots)
			for by, key := range keys {
				table := c.tables[by]
				if table.rows[key] == nil {
					table.rows[key] = new(rowNumbers)
				}
				table.rows[key].add(numbers)
				table.first[key], table.last[key] = least(table.first[key], at), greatest(table.last[key], at)
				if left, ok := robots["budget_left"].(float64); ok && by == "budget" {
					c.left[key] = append(c.left[key], left)
				}
			}
			if leftForItsHost(line, robots) {
				at, timed := robots["sent_at"].(float64)
				if !timed {
					c.sums["untimed"]++
					continue
				}
				delay, _ := robots["crawl_delay_s"].(float64)
				sent[keys["host"]] = append(sent[keys["host"]], [2]float64{at, delay})
			}
		}
	}
	for host, all := range sent {
		slices.SortFunc(all, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
		for i := 1; i < len(all); i++ {
			delay, gap := max(all[i-1][1], all[i][1]), all[i][0]-all[i-1][0]
			known, ok := c.gaps[host]
			if delay == 0 {
				continue
			}
			if known[2]++; !ok || gap-delay < known[1]-known[0] {
				known[0], known[1] = delay, gap
			}
			c.gaps[host] = known
		}
	}
	return c
}

// letPass returns what permitted a request that robots.txt may have forbidden, or "" for other
// requests.
func letPass(line, robots map[string]any) string {
	decision, mode := field(robots, "decision"), field(robots, "mode")
	switch {
	case line["request"].(map[string]any)["method"] == "CONNECT", decision == "deny":
	case field(robots, "exception") != "":
		return "exception"
	case mode == "off":
		return mode
	case mode == "report" && (decision == "error" || robots["would_deny"] == true &&
		slices.Contains([]string{"disallowed", "unreachable", "robots_forbidden", "pending"}, field(robots, "reason"))):
		return mode
	}
	return ""
}

// leftForItsHost reports whether a line counts for gaps by docs/cli.md. These are requests and
// tunnels that have sent_at or that were allowed and should have it, except requests for
// robots.txt.
func leftForItsHost(line, robots map[string]any) bool {
	reason, visible := field(robots, "reason"), robots["path_visible"] == true
	switch {
	case reason == "robots_txt_itself", reason == "intercepted":
		return false
	case visible && robots["robots_url"] == line["request"].(map[string]any)["uri"]:
		return false
	case robots["sent_at"] != nil:
		return true
	}
	return robots["decision"] == "allow" && (visible || field(robots, "address") != "")
}

func least(a, b string) string {
	if a == "" {
		return b
	}
	return min(a, b)
}

func greatest(a, b string) string { return max(a, b) }

// checkReport compares each number of a report, in each format, with a count of the lines.
func (d *day) checkReport() {
	t := d.t
	t.Helper()
	extra := filepath.Join(t.TempDir(), "extra.log")
	lines := d.readDay()
	other := lines[len(lines)/2].object
	other["request"].(map[string]any)["remote_port"] = "1"
	one, err := json.Marshal(other)
	if err != nil {
		t.Fatal(err)
	}
	sealed := evidence.Splice(slices.Clone(one), "gw/access/1", 0)
	texts := [][]byte{slices.Concat(sealed, one, []byte("\n{\"msg\":\"of another logger\"}\n{\"msg\":\"so too\"}\nbroken\n"))}
	if err := os.WriteFile(extra, texts[0], 0o600); err != nil {
		t.Fatal(err)
	}
	for _, file := range rig.LogFiles(t, d.logs) {
		texts = append(texts, rig.Unpacked(t, file))
	}
	want := countLines(t, texts...)
	for name, n := range map[string]float64{
		"again": 1, "sealed": 1, "unreadable": 1, "not_ours": 2, "payment_required": 1, "untimed": 0, "beyond": 0,
	} {
		if want.sums[name] < n {
			t.Errorf("the log has %v %s, want at least %v", want.sums[name], name, n)
		}
	}
	for by, table := range want.tables {
		if len(table.rows) == 0 {
			t.Errorf("the log has no row by %s", by)
		}
	}
	made := map[string]string{}
	for _, format := range []string{"json", "csv", "text", "html"} {
		cmd := exec.CommandContext(t.Context(), rig.Binary, "robots", "report", "--format", format, d.logs, extra)
		var out, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &stderr
		if err := cmd.Run(); err == nil || cmd.ProcessState.ExitCode() != 2 || strings.Count(stderr.String(), "\n") != 1 {
			t.Fatalf("%s: %v: %s", format, err, &stderr)
		}
		made[format] = out.String()
	}
	if want.passed["exception"] == 0 || want.passed["report"] == 0 || want.passed["off"] == 0 {
		t.Errorf("the log lacks requests that passed against robots.txt: %v", want.passed)
	}
	want.checkJSON(t, made["json"])
	want.checkCSV(t, made["csv"])
	statement, rest, _ := strings.Cut(made["text"], "\n")
	want.checkStatement(t, "text", statement)
	want.checkPeople(t, "text", textTables(made["text"]), strings.Join(strings.SplitN(rest, "\n\n", textParts+1)[:textParts], "\n"))
	_, statement, _ = strings.Cut(made["html"], `<p class="lead">`)
	statement, _, _ = strings.Cut(statement, "</p>")
	want.checkStatement(t, "html", html.UnescapeString(statement))
	want.checkPeople(t, "html", htmlTables(made["html"]), html.UnescapeString(made["html"]))
	want.checkPlots(t, made["html"])
}

// sameNumbers compares the numbers of a row; times are rounded to a millisecond.
func sameNumbers(t *testing.T, where string, got, want rowNumbers) {
	t.Helper()
	for i := range want {
		if math.Abs(got[i]-want[i]) > 0.0006 {
			t.Errorf("%s: got %v, counted %v", where, got, want)
			return
		}
	}
}

// jsonNumbers returns the numbers of a row in JSON.
func jsonNumbers(row map[string]any) (n rowNumbers) {
	tunnels, _ := row["tunnels"].(map[string]any)
	for i, name := range []string{"asked", "allowed", "refused", "failed", "held", "wait_s"} {
		n[i], _ = row[name].(float64)
	}
	for i, name := range []string{"asked", "allowed", "refused", "failed", "blind"} {
		n[6+i], _ = tunnels[name].(float64)
	}
	return n
}

func (c *counted) checkJSON(t *testing.T, text string) {
	t.Helper()
	var report map[string]any
	if err := json.Unmarshal([]byte(text), &report); err != nil {
		t.Fatal(err)
	}
	total, _ := report["total"].(map[string]any)
	sameNumbers(t, "json: total", jsonNumbers(total), *c.total)
	known := []string{"total", "gaps", "first", "last", "statement", "made", "version", "filter"}
	c.checkStatement(t, "json", report["statement"].(string))
	if version, at := report["version"], report["made"].(string); version == "" || at < c.last[:19] || !strings.HasSuffix(at, "Z") {
		t.Errorf("json: made at %s by version %v", at, version)
	}
	for name, n := range c.sums {
		if known = append(known, name); report[name] != n {
			t.Errorf("json: %s is %v, counted %v", name, report[name], n)
		}
	}
	for by, names := range tablesOf {
		known = append(known, names[0])
		rows, _ := report[names[0]].([]any)
		if table := c.tables[by]; len(rows) != len(table.rows) {
			t.Errorf("json: %d rows of %s, counted %d", len(rows), names[0], len(table.rows))
		}
		for _, r := range rows {
			row := r.(map[string]any)
			key := row["name"].(string)
			if keyParts(names[2]) > 1 {
				key += "\n" + field(row, "agent") + field(row, "cause")
			}
			table := c.tables[by]
			if table.rows[key] == nil {
				t.Errorf("json: %s has the unknown key %q", names[0], key)
				continue
			}
			sameNumbers(t, "json: "+names[0]+" "+key, jsonNumbers(row), *table.rows[key])
			if by == "budget" && row["budget_left"] != slices.Min(c.left[key]) {
				t.Errorf("json: %q has %v left, counted %v", key, row["budget_left"], slices.Min(c.left[key]))
			}
			if by == "unreachable" && (row["first"] != table.first[key] || row["last"] != table.last[key]) {
				t.Errorf("json: %q from %v to %v, counted %s to %s", key, row["first"], row["last"], table.first[key], table.last[key])
			}
		}
	}
	if report["first"] != c.first || report["last"] != c.last {
		t.Errorf("json: from %v to %v, counted %s to %s", report["first"], report["last"], c.first, c.last)
	}
	gaps, _ := report["gaps"].([]any)
	for _, g := range gaps {
		row := g.(map[string]any)
		c.sameGap(t, "json", row["host"].(string), row["crawl_delay_s"].(float64), row["least_s"].(float64), row["pairs"].(float64))
	}
	if len(gaps) != len(c.gaps) || len(gaps) == 0 {
		t.Errorf("json: %d gaps, counted %d", len(gaps), len(c.gaps))
	}
	for name := range report {
		if !slices.Contains(known, name) {
			t.Errorf("json: unknown sum %s", name)
		}
	}
}

func (c *counted) sameGap(t *testing.T, form, host string, delay, gap, pairs float64) {
	t.Helper()
	if n := c.gaps[host]; n[0] != delay || math.Abs(n[1]-gap) > 0.0006 || n[2] != pairs {
		t.Errorf("%s: gaps of %s are %v %v %v, counted %v", form, host, delay, gap, pairs, n)
	}
}

// keyParts returns the number of parts of a key. A code and its words count as one.
func keyParts(heading string) int { return len(strings.Fields(strings.TrimSuffix(heading, " code"))) }

// share returns a percentage, as reports write it.
func share(n, of float64) string { return fmt.Sprintf("%.1f%%", 100*n/of) }

// checkStatement compares each number of the sentence at the start of a report.
func (c *counted) checkStatement(t *testing.T, form, statement string) {
	t.Helper()
	people := func(n float64) string {
		text := strconv.FormatFloat(n, 'f', -1, 64)
		for i := len(text) - 3; i > 0; i -= 3 {
			text = text[:i] + "," + text[i:]
		}
		return text
	}
	all, reasons := c.total[0], c.tables["reason"].rows
	refused := func(names ...string) (n float64) {
		for _, name := range names {
			if reasons[name] != nil {
				n += reasons[name][2]
			}
		}
		return n
	}
	part := func(n float64) string { return people(n) + " (" + share(n, all) + ")" }
	crawlers := 0.0
	for name, row := range c.tables["agent"].rows {
		if name != "" && row[0] > 0 {
			crawlers++
		}
	}
	moment := func(at string) string { return strings.Replace(at[:19], "T", " ", 1) + " UTC" }
	var gateway string
	for gateway = range c.tables["gateway"].rows {
	}
	p := c.passed
	want := fmt.Sprintf("In the period from %s to %s, by the access log, the gateway %s refused %s of %s requests of %s crawlers and of senders without a name: "+
		"%s by a rule of robots.txt, %s because robots.txt could not be read, the rest for other reasons. By these lines, no request that robots.txt forbids was sent, "+
		"but for at most %s that the operator let pass: %s by an exception, %s in mode report, %s in mode off (see the tables of exceptions and modes). "+
		"Before anyone signs this, the first points of \"What this report does not prove\" need an explanation.",
		moment(c.first), moment(c.last), gateway, part(c.total[2]), people(all), people(crawlers), part(refused("disallowed")),
		part(refused("unreachable", "robots_forbidden", "pending")), people(p["exception"]+p["report"]+p["off"]), people(p["exception"]), people(p["report"]), people(p["off"]))
	if statement != want {
		t.Errorf("%s:\n%s\nwant\n%s", form, statement, want)
	}
}

func (c *counted) checkCSV(t *testing.T, text string) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, row := range rows[1:] {
		seen[row[0]]++
		var n rowNumbers
		for i := range n {
			n[i], _ = strconv.ParseFloat(row[2+i], 64)
		}
		names, isTable := tablesOf[row[0]]
		switch {
		case row[0] == "statement":
			c.checkStatement(t, "csv", row[1])
		case row[0] == "made" || row[0] == "version":
		case row[0] == "total":
			sameNumbers(t, "csv: total", n, *c.total)
		case row[0] == "count":
			if n[0] != c.sums[row[1]] {
				t.Errorf("csv: %q, counted %v", row, c.sums[row[1]])
			}
		case isTable:
			key := row[1]
			if keyParts(names[2]) > 1 {
				key += "\n" + row[13] + row[14]
			}
			if known := c.tables[row[0]].rows[key]; known == nil {
				t.Errorf("csv: unknown key in %q", row)
			} else {
				sameNumbers(t, "csv: "+row[0]+" "+key, n, *known)
			}
		default:
			t.Errorf("csv: unknown table in %q", row)
		}
	}
	for by, table := range c.tables {
		if seen[by] != len(table.rows) {
			t.Errorf("csv: %d rows by %s, counted %d", seen[by], by, len(table.rows))
		}
	}
	if seen["count"] != len(c.sums) {
		t.Errorf("csv: %d sums, counted %v", seen["count"], c.sums)
	}
}

// textParts is the number of parts before the tables: statement, counts, method, limits.
const textParts = 4

// textTables returns the rows of the tables in the text by their titles, with the headings first.
func textTables(text string) map[string][][]string {
	tables, columns := map[string][][]string{}, regexp.MustCompile(` {2,}`)
	for _, part := range strings.Split(strings.TrimSpace(text), "\n\n")[textParts:] {
		title, rest, _ := strings.Cut(part, "\n")
		for line := range strings.Lines(rest) {
			tables[title] = append(tables[title], columns.Split(strings.TrimSpace(line), -1))
		}
	}
	return tables
}

var (
	htmlSection = regexp.MustCompile(`(?s)<h2>([^<]*)</h2>\s*<div[^>]*: table">\s*<table>(.*?)</table>`)
	htmlRow     = regexp.MustCompile(`(?s)<tr>(.*?)</tr>`)
	htmlCell    = regexp.MustCompile(`(?s)<t[hd][^>]*>(.*?)</t[hd]>`)
)

func htmlTables(page string) map[string][][]string {
	tables := map[string][][]string{}
	for _, m := range htmlSection.FindAllStringSubmatch(page, -1) {
		for _, row := range htmlRow.FindAllStringSubmatch(m[2], -1) {
			var cells []string
			for _, cell := range htmlCell.FindAllStringSubmatch(row[1], -1) {
				cells = append(cells, html.UnescapeString(cell[1]))
			}
			tables[html.UnescapeString(m[1])] = append(tables[html.UnescapeString(m[1])], cells)
		}
	}
	return tables
}

// number parses a number with separators.
func number(t *testing.T, text string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(strings.NewReplacer(",", "", " s", "").Replace(text), 64)
	if err != nil {
		t.Errorf("%q is not a number: %v", text, err)
	}
	return n
}

// checkPeople checks the tables and the sentences of a readable format.
func (c *counted) checkPeople(t *testing.T, form string, tables map[string][][]string, sentences string) {
	t.Helper()
	for by, names := range tablesOf {
		for _, part := range []struct {
			title    string
			from, to int // of the numbers
			counts   string
		}{
			{names[1], 0, 6, " asked share allowed refused failed held waited"},
			{"Tunnels: " + names[1], 6, 11, " tunnels share opened refused failed not looked into"},
		} {
			c.checkTable(t, form+": "+part.title, c.tables[by], tables[part.title], strings.Fields(names[2]), part.from, part.to)
			if rows := tables[part.title]; len(rows) > 0 && !strings.HasPrefix(strings.Join(rows[0], " "), names[2]+part.counts) {
				t.Errorf("%s: %s has the headings %q", form, part.title, rows[0])
			}
			delete(tables, part.title)
		}
	}
	for i, row := range tables["Least gaps under a Crawl-delay"] {
		if i > 0 {
			c.sameGap(t, form, row[0], number(t, row[1]), number(t, row[2]), number(t, row[3]))
		}
	}
	if n := len(tables["Least gaps under a Crawl-delay"]); n != len(c.gaps)+1 {
		t.Errorf("%s: %d gaps, counted %d", form, n-1, len(c.gaps))
	}
	if delete(tables, "Least gaps under a Crawl-delay"); len(tables) > 0 {
		t.Errorf("%s: unknown tables %v", form, slices.Collect(maps.Keys(tables)))
	}
	lines := c.total[0] + c.total[6]
	for sentence, want := range map[string][]float64{
		`: (\S+) requests, (\S+) allowed, (\S+) refused, (\S+) failed; (\S+) were held for (\S+) s in all\.`: c.total[:6],
		`(\S+) tunnels \(CONNECT\), which are no requests: (\S+) opened, (\S+) refused, (\S+) failed\.`:      c.total[6:10],

		`not looked into: (\S+) of the tunnels`: c.total[10:],
		`(\S+) lines were read; about no request through a gateway: (\S+); about a request of an earlier line, and not counted: (\S+)\.`: {
			c.sums["lines"], c.sums["not_ours"], c.sums["again"],
		},
		`(\S+) of (\S+) lines have a seal`: {c.sums["sealed"], lines},
		`(\S+) lines could not be read`:    {c.sums["unreadable"]},
		`(\S+) answers asked for payment`:  {c.sums["payment_required"]},
		`(\S+) requests are in no gap`:     {c.sums["untimed"]},
	} {
		m := regexp.MustCompile(sentence).FindStringSubmatch(sentences)
		if m == nil {
			if want[0] != 0 {
				t.Errorf("%s: no sentence matches %s", form, sentence)
			}
			continue
		}
		for i, n := range want {
			if got := number(t, strings.TrimPrefix(m[i+1], "<p>")); math.Abs(got-n) > 0.0006 {
				t.Errorf("%s: %q, counted %v", form, m[0], want)
			}
		}
	}
}

// checkTable compares the first rows of a table, which have the greatest numbers, and its last row,
// which sums up the others.
func (c *counted) checkTable(t *testing.T, where string, table *countedTable, rows [][]string, heading []string, from, to int) {
	t.Helper()
	all, others := 0, new(rowNumbers)
	for _, row := range table.rows {
		if row[from] > 0 {
			all++
			others.add(*row)
		}
	}
	const shown = 50
	keys := len(heading)
	if got := max(len(rows)-1, 0); got != min(all, shown+1) {
		t.Errorf("%s: %d rows, counted %d", where, got, all)
		return
	}
	for i, row := range rows {
		if i == 0 {
			continue
		}
		var parts []string
		for k, part := range row[:keys] {
			if heading[k] == "reason" { // the reason's words; the code follows
				if title := enforce.Reason(row[k+1]).Info().Title; part != title {
					t.Errorf("%s: %s is %q, want %q", where, row[k+1], part, title)
				}
				continue
			}
			if heading[k] == "hour" {
				part = strings.NewReplacer(" UTC", "Z", " ", "T").Replace(part)
			}
			parts = append(parts, strings.Replace(part, "(not named)", "", 1))
		}
		key := strings.Join(parts, "\n")
		known := table.rows[key]
		if i > shown {
			if known = others; row[0] != fmt.Sprintf("(%d more)", all-shown) {
				t.Errorf("%s: %d of %d rows are not shown, but the last row is %q", where, all-shown, all, row[0])
			}
		}
		if known == nil {
			t.Errorf("%s: unknown key in %q", where, row)
			continue
		}
		if want := share(known[from], c.total[from]); row[keys+1] != want {
			t.Errorf("%s: %q, counted %s", where, row, want)
		}
		var got, want rowNumbers
		for n, text := range slices.Delete(slices.Clone(row[keys:keys+to-from+1]), 1, 2) {
			got[from+n], want[from+n] = number(t, text), known[from+n]
		}
		sameNumbers(t, fmt.Sprintf("%s: %q", where, row), got, want)
		switch times := row[keys+to-from+1:]; {
		case len(times) == 1 && i <= shown: // the least budget left; "-" if no line has one
			if left := c.left[key]; len(left) > 0 && number(t, times[0]) != slices.Min(left) {
				t.Errorf("%s: %q, counted %v", where, row, slices.Min(left))
			}
		case len(times) > 1 && i <= shown: // of whole seconds
			if spaced := strings.NewReplacer("T", " "); times[0][:19] != spaced.Replace(table.first[key][:19]) || times[1][:19] != spaced.Replace(table.last[key][:19]) {
				t.Errorf("%s: %q, counted %s to %s", where, row, table.first[key], table.last[key])
			}
		}
		for n := range known {
			others[n] -= known[n]
		}
	}
}

var plotted = regexp.MustCompile(`<title>[^<]* ([0-9,]+) allowed, ([0-9,]+) refused, ([0-9,]+) failed</title>`)

// checkPlots checks that the bars of the plot over time count all requests.
func (c *counted) checkPlots(t *testing.T, page string) {
	t.Helper()
	_, plot, _ := strings.Cut(page, "<h2>Requests over time</h2>")
	plot, _, _ = strings.Cut(plot, "</section>")
	var got [3]float64
	bars := plotted.FindAllStringSubmatch(plot, -1)
	for _, m := range bars {
		for i := range got {
			got[i] += number(t, m[1+i])
		}
	}
	if want := [3]float64(c.total[1:4]); got != want {
		t.Errorf("the bars count %v, want %v", got, want)
	}
	if len(bars) < 10 {
		t.Errorf("a day of half a minute has %d bars", len(bars))
	}
}
