//go:build slow

package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestAuditOfADay sends a day of traffic through the gateway, audits its log, and then tampers with
// the log and the store.
func TestAuditOfADay(t *testing.T) {
	t.Parallel()
	d := newDay(t)
	d.run()
	began := time.Now()
	rig.Audit(t, "--gateway", "unix/"+d.g.AdminSocket(), d.logs).Clean(t, "while the gateway runs")
	d.g.Stop()
	// Caddy removes a log after packing it. A gateway that stops in between leaves both files.
	for _, name := range rig.LogFiles(t, d.logs) {
		if _, err := os.Stat(name + ".gz"); err == nil {
			if err := os.Remove(name + ".gz"); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := rig.Audit(t, "--store", d.g.Store(), d.logs)
	r.Clean(t, "a day")
	t.Logf("%d lines in %d files, %d replayed, gaps %+v; two audits in %v", r.Totals.Checked, len(rig.LogFiles(t, d.logs)), r.Totals.Replayed,
		r.Totals.Gaps, time.Since(began))
	if r.Totals.Checked != d.asked.Load() {
		t.Errorf("the audit checked %d lines, want %d", r.Totals.Checked, d.asked.Load())
	}
	d.checkReasons(r)
	d.checkSimulation(d.agents)
	d.checkReport()
	if r.Totals.Gaps.Kept < 30 {
		t.Errorf("gaps %+v, want at least 30 kept", r.Totals.Gaps)
	}
	d.tamper()
}

// checkReasons checks that the day has every reason, that the report counts each, and that the
// audit's counts by agent agree with the lines.
func (d *day) checkReasons(r rig.AuditRun) {
	d.t.Helper()
	type outcomes struct {
		rig.AuditOutcomes
		Tunnels rig.AuditOutcomes `json:"tunnels"`
	}
	seen, byAgent, excepted := map[enforce.Reason]int64{}, map[string]outcomes{}, int64(0)
	for _, l := range d.readDay() {
		seen[l.reason()]++
		if l.robots()["exception"] != nil {
			excepted++
		}
		agent, _ := l.robots()["agent"].(string)
		of := byAgent[agent]
		counted := &of.AuditOutcomes
		if l.object["request"].(map[string]any)["method"] == http.MethodConnect {
			counted = &of.Tunnels
		}
		counted.Asked++
		*map[any]*int64{"allow": &counted.Allowed, "deny": &counted.Refused, "error": &counted.Failed}[l.robots()["decision"]]++
		byAgent[agent] = of
	}
	for _, a := range r.Totals.Agents {
		if got := (outcomes{a.AuditOutcomes, a.Tunnels.AuditOutcomes}); got != byAgent[a.Agent] {
			d.t.Errorf("agent %q: the audit counts %+v, the lines have %+v", a.Agent, got, byAgent[a.Agent])
		}
	}
	if len(r.Totals.Agents) != len(byAgent) {
		d.t.Errorf("the audit counts %d agents, the lines have %d", len(r.Totals.Agents), len(byAgent))
	}
	type row struct {
		Name string `json:"name"`
		outcomes
	}
	var report struct{ Reasons, Exceptions []row }
	out, err := rig.RunBinary(d.t, "robots", "report", "--format", "json", d.logs)
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
			d.t.Errorf("%s: %d lines, the report counts %d", reason, seen[reason], told[reason])
		}
	}
	if spared == 0 || exceptions != excepted || excepted < seen[enforce.ReasonException] {
		d.t.Errorf("%d requests spared by modes; %d requests passed by %d exceptions", spared, exceptions, excepted)
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

// rest returns the seconds that the request took besides being held, and turn the time at which its
// hold ended.
func (l dayLine) rest() float64 {
	wait, _ := l.robots()["wait_ms"].(float64)
	return l.object["duration"].(float64) - wait/1e3
}

func (l dayLine) turn() float64 { return l.object["ts"].(float64) - l.rest() }

// readDay reads all lines with a robots object.
func (d *day) readDay() (lines []dayLine) {
	d.t.Helper()
	packed := 0
	d.answers = map[string]int{}
	for _, file := range rig.LogFiles(d.t, d.logs) {
		if strings.HasSuffix(file, ".gz") {
			packed++
		}
		number := 0
		for line := range bytes.Lines(rig.Unpacked(d.t, file)) {
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

// tamper makes one change at a time to a copy of the log, and checks that the audit finds exactly
// that change.
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

	liberal := pick("of a site that permits everything", func(l dayLine) bool {
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
	r := rig.Audit(d.t, "--store", d.alteredStore(sha), d.logs)
	want := d.answers[sha]
	for _, l := range lines {
		if l.robots()["sha256"] == sha && l.reason() != enforce.ReasonRobotsTxt {
			want++
			if !slices.ContainsFunc(r.Findings, func(f rig.AuditFinding) bool {
				return f.File == l.file && f.Line == l.number && f.Kind == "text"
			}) {
				d.t.Errorf("an altered text at %s:%d: no finding of the kind text", l.file, l.number)
			}
		}
	}
	if r.Status != 1 || len(r.Findings) != want || want == 0 {
		d.t.Errorf("an altered text: status %d, want 1; %d findings, want %d", r.Status, len(r.Findings), want)
	}
}

// neighbours returns two successive requests to a site that were answered soon. The second was held
// for the Crawl-delay.
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
	d.t.Fatal("no two successive requests were answered soon")
	return before, held
}

// wantFound audits a folder of logs and wants exactly one finding.
func (d *day) wantFound(what, dir string, at dayLine, kind string) {
	d.t.Helper()
	r := rig.Audit(d.t, "--store", d.g.Store(), dir)
	if r.Status != 1 || len(r.Findings) != 1 || r.Findings[0].Kind != kind || r.Findings[0].Line != at.number ||
		filepath.Base(r.Findings[0].File) != filepath.Base(at.file) {
		d.t.Errorf("%s at %s:%d: status %d, findings %+v", what, at.file, at.number, r.Status, r.Findings)
	}
}

// changed copies the logs to another folder and changes one line of them.
func (d *day) changed(at dayLine, change func(map[string]any)) (dir string) {
	d.t.Helper()
	dir = rig.TempDir(d.t)
	for _, file := range rig.LogFiles(d.t, d.logs) {
		text := rig.Unpacked(d.t, file)
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
		// audit looks at the content, not at the name, to see whether a file is packed.
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o600); err != nil {
			d.t.Fatal(err)
		}
	}
	return dir
}

// alteredStore returns a copy of the store with another text under the given hash.
func (d *day) alteredStore(sha string) string {
	d.t.Helper()
	data, err := os.ReadFile(d.g.Store())
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
