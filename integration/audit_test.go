package integration

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/lines"
)

// auditRun is what `crawlgate robots audit --json` said.
type auditRun struct {
	status   int
	findings []auditFinding
	errors   []string
	totals   struct {
		Checked     int64            `json:"checked"`
		Torn        int64            `json:"torn"`
		Foreign     int64            `json:"not_ours"`
		Replayed    int64            `json:"replayed"`
		NotProvable map[string]int64 `json:"not_provable"`
		Gaps        struct{ Pairs, Kept, Short int64 }
		Agents      []struct {
			Agent   string `json:"agent"`
			Owner   string `json:"owner"`
			Contact string `json:"contact"`
			auditOutcomes
			Tunnels struct {
				auditOutcomes
				Blind int64 `json:"blind"`
			} `json:"tunnels"`
		} `json:"agents"`
	}
	stderr string
}

// auditOutcomes is what an audit, or a report, counts of requests, or of tunnels.
type auditOutcomes struct {
	Asked   int64 `json:"asked"`
	Allowed int64 `json:"allowed"`
	Refused int64 `json:"refused"`
	Failed  int64 `json:"failed"`
}

type auditFinding struct {
	File, Kind, Message string
	Line                int
}

// audit runs the command.
func audit(t *testing.T, args ...string) (r auditRun) {
	t.Helper()
	// A gap is judged with more tolerance than by default: in CI tests of all packages share two processors.
	cmd := exec.CommandContext(t.Context(), binary, append([]string{"robots", "audit", "--json", "--tolerance", "300ms", "--crawl-delay-max", "5s"}, args...)...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		r.status = exit.ExitCode()
	} else if err != nil {
		t.Fatal(err)
	}
	r.stderr = stderr.String()
	s := bufio.NewScanner(&out)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		var head struct{ Type string }
		if err := json.Unmarshal(s.Bytes(), &head); err != nil {
			t.Fatalf("%v: %s", err, s.Text())
		}
		switch head.Type {
		case "finding":
			var f auditFinding
			if err := json.Unmarshal(s.Bytes(), &f); err != nil {
				t.Fatal(err)
			}
			r.findings = append(r.findings, f)
		case "error":
			r.errors = append(r.errors, s.Text())
		case "totals":
			if err := json.Unmarshal(s.Bytes(), &r.totals); err != nil {
				t.Fatal(err)
			}
		}
	}
	if slices.Contains(args, "--seal") {
		r.agree(t, args)
	}
	return r
}

// clean fails the test if there is anything to find.
func (r auditRun) clean(t *testing.T, what string) {
	t.Helper()
	if r.status != 0 || len(r.findings) > 0 || len(r.errors) > 0 || len(r.totals.NotProvable) > 0 {
		t.Errorf("%s: status %d, %d findings, %d errors, %v: %s", what, r.status, len(r.findings), len(r.errors), r.totals.NotProvable, r.stderr)
		for _, f := range r.findings[:min(len(r.findings), 10)] {
			t.Errorf("%s:%d: %s: %s", f.File, f.Line, f.Kind, f.Message)
		}
	}
}

// TestAuditOfADay sends a day of traffic through the gateway, audits its log, and then tampers with log and store.
func TestAuditOfADay(t *testing.T) {
	t.Parallel()
	d := newDay(t)
	d.run()
	began := time.Now()
	audit(t, "--gateway", "unix/"+d.g.adminSocket(), d.logs).clean(t, "while the gateway runs")
	d.g.stop()
	// A log is removed only after it was packed: a gateway that stops in between leaves both.
	for _, name := range logFiles(t, d.logs) {
		if _, err := os.Stat(name + ".gz"); err == nil {
			if err := os.Remove(name + ".gz"); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := audit(t, "--store", d.g.store(), d.logs)
	r.clean(t, "a day")
	t.Logf("%d lines in %d files, %d replayed, gaps %+v; two audits in %v", r.totals.Checked, len(logFiles(t, d.logs)), r.totals.Replayed,
		r.totals.Gaps, time.Since(began))
	if r.totals.Checked != d.asked.Load() {
		t.Errorf("%d lines for %d requests", r.totals.Checked, d.asked.Load())
	}
	d.checkReasons(r)
	d.checkSimulation(d.agents)
	d.checkReport()
	if r.totals.Gaps.Kept < 30 {
		t.Errorf("gaps: %+v", r.totals.Gaps)
	}
	d.tamper()
}

// checkReasons holds that the day had all reasons, that the report tells of them, and that the audit counts by agent what
// the lines say.
func (d *day) checkReasons(r auditRun) {
	d.t.Helper()
	type outcomes struct {
		auditOutcomes
		Tunnels auditOutcomes `json:"tunnels"`
	}
	seen, byAgent, excepted := map[enforce.Reason]int64{}, map[string]outcomes{}, int64(0)
	for _, l := range d.readDay() {
		seen[l.reason()]++
		if l.robots()["exception"] != nil {
			excepted++
		}
		agent, _ := l.robots()["agent"].(string)
		of := byAgent[agent]
		counted := &of.auditOutcomes
		if l.object["request"].(map[string]any)["method"] == http.MethodConnect {
			counted = &of.Tunnels
		}
		counted.Asked++
		*map[any]*int64{"allow": &counted.Allowed, "deny": &counted.Refused, "error": &counted.Failed}[l.robots()["decision"]]++
		byAgent[agent] = of
	}
	for _, a := range r.totals.Agents {
		if got := (outcomes{a.auditOutcomes, a.Tunnels.auditOutcomes}); got != byAgent[a.Agent] {
			d.t.Errorf("agent %q: %+v, the lines have %+v", a.Agent, got, byAgent[a.Agent])
		}
	}
	if len(r.totals.Agents) != len(byAgent) {
		d.t.Errorf("%d agents, the lines have %d", len(r.totals.Agents), len(byAgent))
	}
	type row struct {
		Name string `json:"name"`
		outcomes
	}
	var report struct{ Reasons, Exceptions []row }
	out, err := runBinary(d.t, "robots", "report", "--format", "json", d.logs)
	if err := errors.Join(err, json.Unmarshal([]byte(out), &report)); err != nil {
		d.t.Fatal(err)
	}
	told, spared, exceptions := map[enforce.Reason]int64{}, int64(0), int64(0)
	for _, r := range report.Reasons {
		told[enforce.Reason(r.Name)] = r.Asked + r.Tunnels.Asked
		if !enforce.Reason(r.Name).Allows() {
			spared += r.Allowed + r.Tunnels.Allowed
		}
	}
	for _, r := range report.Exceptions {
		exceptions += r.Asked + r.Tunnels.Asked
	}
	for _, reason := range dayReasons {
		if seen[reason] == 0 {
			d.t.Errorf("no line has the reason %s", reason)
		}
	}
	var missing []enforce.Reason
	for _, reason := range enforce.Reasons() {
		if seen[reason] == 0 {
			missing = append(missing, reason)
		} else if told[reason] != seen[reason] {
			d.t.Errorf("%s: %d lines, the report has %d", reason, seen[reason], told[reason])
		}
	}
	if spared == 0 || exceptions != excepted || excepted < seen[enforce.ReasonException] {
		d.t.Errorf("%d spared, %d of %d exceptions", spared, exceptions, excepted)
	}
	d.t.Logf("reasons that this day did not have: %v", missing)
}

// dayLine is a line of the day's logs.
type dayLine struct {
	file   string
	number int
	object map[string]any
}

func (l dayLine) robots() map[string]any { return l.object["robots"].(map[string]any) }

func (l dayLine) ts() float64 { return l.object["ts"].(float64) }

func (l dayLine) reason() enforce.Reason { return enforce.Reason(l.robots()["reason"].(string)) }

func (l dayLine) url() string { return l.object["request"].(map[string]any)["uri"].(string) }

// rest is the time, in seconds, that the request took besides being held, and turn the time at which that ended.
func (l dayLine) rest() float64 {
	wait, _ := l.robots()["wait_ms"].(float64)
	return l.object["duration"].(float64) - wait/1e3
}

func (l dayLine) turn() float64 { return l.object["ts"].(float64) - l.rest() }

// logFiles are the files of a log. While a file is packed it has a copy that ends in .tmp, which
// stays if the gateway ends before that: all of its lines are in the file itself.
func logFiles(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "access*"))
	files = slices.DeleteFunc(files, func(name string) bool { return strings.HasSuffix(name, ".tmp") })
	if err != nil || len(files) == 0 {
		t.Fatalf("no logs: %v", err)
	}
	return files
}

// unpacked is the text of a log.
func unpacked(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	z, err := lines.Unpack(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = z.Close() }()
	if data, err = io.ReadAll(z); err != nil {
		t.Fatal(err)
	}
	return data
}

// readDay reads all lines with a robots object.
func (d *day) readDay() (lines []dayLine) {
	d.t.Helper()
	packed := 0
	d.answers = map[string]int{}
	for _, file := range logFiles(d.t, d.logs) {
		if strings.HasSuffix(file, ".gz") {
			packed++
		}
		number := 0
		for line := range bytes.Lines(unpacked(d.t, file)) {
			number++
			l := dayLine{file: file, number: number}
			if err := json.Unmarshal(line, &l.object); err != nil {
				d.t.Fatal(err)
			}
			if answer, ok := l.object["robots_txt"].(map[string]any); ok {
				sha, _ := answer["sha256"].(string)
				d.answers[sha]++
			}
			if l.object["robots"] != nil {
				lines = append(lines, l)
			}
		}
	}
	if packed == 0 {
		d.t.Error("no log was rotated and packed")
	}
	return lines
}

// tamper changes one thing at a time, in a copy, and wants exactly that found.
func (d *day) tamper() {
	lines := d.readDay()
	pick := func(what string, fits func(l dayLine) bool) dayLine {
		d.t.Helper()
		for _, l := range lines {
			if fits(l) {
				return l
			}
		}
		d.t.Fatalf("no line is %s", what)
		return dayLine{}
	}
	began := map[any]float64{} // by origin
	for _, l := range slices.Backward(lines) {
		began[l.robots()["origin"]] = l.ts()
	}
	refused := pick("refused, in a packed log, when the robots.txt was known", func(l dayLine) bool {
		return l.ts() > began[l.robots()["origin"]]+1 && l.reason() == enforce.ReasonDisallowed && l.robots()["decision"] == "deny" && strings.HasSuffix(l.file, ".gz")
	})
	flipped := maps.Clone(refused.robots())
	flipped["decision"], flipped["reason"] = "allow", "no_rule"
	delete(flipped, "rule")
	delete(flipped, "line")
	d.wantFound("a flipped verdict", d.changed(refused, func(o map[string]any) { o["robots"] = flipped }), refused, "verdict")

	liberal := pick("of a site that lets all pass", func(l dayLine) bool {
		return l.robots()["origin"] == d.special["liberal"].Origin().String()
	})
	borrowed := maps.Clone(flipped)
	borrowed["sha256"], borrowed["group"] = liberal.robots()["sha256"], "*"
	delete(borrowed, "crawl_delay_s")
	d.wantFound("the text of another site", d.changed(refused, func(o map[string]any) { o["robots"], o["status"] = borrowed, 200 }), refused, "history")

	before, held := d.neighbours(lines)
	sent := maps.Clone(held.robots())
	sent["sent_at"] = before.robots()["sent_at"].(float64) + 0.02
	d.wantFound("a shortened gap", d.changed(held, func(o map[string]any) { o["robots"] = sent }), held, "gap")
	soon := before.turn() + 0.02 + held.rest()
	ended := maps.Clone(held.robots())
	ended["ended_at"] = soon
	d.wantFound("an end before the sending", d.changed(held, func(o map[string]any) { o["robots"] = ended }), held, "impossible")

	sha := refused.robots()["sha256"].(string)
	r := audit(d.t, "--store", d.alteredStore(sha), d.logs)
	want := d.answers[sha]
	for _, l := range lines {
		if l.robots()["sha256"] == sha && l.reason() != enforce.ReasonRobotsTxt {
			want++
			if !slices.ContainsFunc(r.findings, func(f auditFinding) bool {
				return f.File == l.file && f.Line == l.number && f.Kind == "text"
			}) {
				d.t.Errorf("an altered text: %s:%d was not found", l.file, l.number)
			}
		}
	}
	if r.status != 1 || len(r.findings) != want || want == 0 {
		d.t.Errorf("an altered text: status %d, %d findings for %d lines", r.status, len(r.findings), want)
	}
}

// neighbours returns two requests that were both answered soon; the second was held for the Crawl-delay after the first.
func (d *day) neighbours(lines []dayLine) (before, held dayLine) {
	d.t.Helper()
	byURL := map[string]dayLine{}
	for _, l := range lines {
		if l.robots()["crawl_delay_s"] == slowDelay.Seconds() && l.robots()["decision"] == "allow" && l.rest() < 0.1 {
			byURL[l.url()] = l
		}
	}
	for _, s := range d.slow {
		for n := range 15 {
			one, ok := byURL[s.URL(fmt.Sprintf("/page/%d", n))]
			next, okNext := byURL[s.URL(fmt.Sprintf("/page/%d", n+1))]
			if ok && okNext {
				return one, next
			}
		}
	}
	d.t.Fatal("no two requests in a row were answered soon")
	return before, held
}

// wantFound audits a folder of logs for one finding.
func (d *day) wantFound(what, dir string, at dayLine, kind string) {
	d.t.Helper()
	r := audit(d.t, "--store", d.g.store(), dir)
	if r.status != 1 || len(r.findings) != 1 || r.findings[0].Kind != kind || r.findings[0].Line != at.number ||
		filepath.Base(r.findings[0].File) != filepath.Base(at.file) {
		d.t.Errorf("%s at %s:%d: status %d, %+v", what, at.file, at.number, r.status, r.findings)
	}
}

// changed copies the logs into another folder, one line changed.
func (d *day) changed(at dayLine, change func(map[string]any)) (dir string) {
	d.t.Helper()
	dir = tempDir(d.t)
	for _, file := range logFiles(d.t, d.logs) {
		text := unpacked(d.t, file)
		if file == at.file {
			lines := bytes.SplitAfter(text, []byte{'\n'})
			var object map[string]any
			if err := json.Unmarshal(lines[at.number-1], &object); err != nil {
				d.t.Fatal(err)
			}
			change(object)
			line, err := json.Marshal(object)
			if err != nil {
				d.t.Fatal(err)
			}
			lines[at.number-1] = append(line, '\n')
			text = bytes.Join(lines, nil)
		}
		// The content tells whether it is packed, not the name.
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	return dir
}

// alteredStore is a copy of the store in which another text is kept under a hash.
func (d *day) alteredStore(sha string) string {
	d.t.Helper()
	data, err := os.ReadFile(d.g.store())
	if err != nil {
		d.t.Fatal(err)
	}
	path := filepath.Join(d.t.TempDir(), "altered.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		d.t.Fatal(err)
	}
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	key, err := hex.DecodeString(sha)
	if err != nil {
		d.t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		texts := tx.Bucket([]byte("texts"))
		c := texts.Cursor()
		for other, value := c.First(); other != nil; other, value = c.Next() {
			if !bytes.Equal(other, key) {
				return texts.Put(key, bytes.Clone(value))
			}
		}
		return errors.New("there is no other text")
	})
	if err := errors.Join(err, db.Close()); err != nil {
		d.t.Fatal(err)
	}
	return path
}
