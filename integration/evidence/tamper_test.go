//go:build slow

package evidence

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

var (
	sealOfLine = regexp.MustCompile(`,"log":"[^"]*","seq":[0-9]+}\n`)
	seqOfLine  = regexp.MustCompile(`"seq":[0-9]+}`)
)

// edits are ways to tamper with a file at a line. The finding is at that line, or shift lines after
// it.
var edits = []struct {
	name, kind string
	behind     int
	edit       func(l [][]byte, at int) [][]byte
}{
	{"a byte", "seal_changed", 0, replaceIn(`"level"`, `"Level"`)},
	{"the status", "seal_changed", 0, replaceIn(`"ts":`, `"ts":1`)},
	{"the logger", "seal_changed", 0, replaceIn(`"logger":"`, `"logger":"x`)},
	{"a member added", "seal_changed", 0, replaceIn(`{"level"`, `{"more":1,"level"`)},
	{"a blank in front", "seal_extra", 0, replaceIn(`{"level"`, ` {"level"`)},
	{"a line cut", "seal_missing", 0, func(l [][]byte, at int) [][]byte { return slices.Delete(l, at, at+1) }},
	{"six lines cut", "seal_missing", 0, func(l [][]byte, at int) [][]byte { return slices.Delete(l, at, at+6) }},
	{"a line emptied", "seal_extra", 0, func(l [][]byte, at int) [][]byte { l[at] = []byte("\n"); return l }},
	{"a line cut in half", "seal_extra", 0, func(l [][]byte, at int) [][]byte {
		l[at] = slices.Concat(l[at][:len(l[at])/2], []byte("\n"))
		return l
	}},
	{"a line in two", "seal_extra", 0, func(l [][]byte, at int) [][]byte {
		return slices.Insert(l, at, slices.Concat(l[at][:20], []byte("\n")))
	}},
	{"two lines in one", "seal_extra", 0, func(l [][]byte, at int) [][]byte {
		l[at] = bytes.TrimSuffix(l[at], []byte("\n"))
		return l
	}},
	{"another end of the line", "seal_extra", 0, replaceIn("}\n", "}\r\n")},
	{"a blank at the end", "seal_extra", 0, replaceIn("}\n", "} \n")},
	{"two lines swapped", "seal_order", 1, func(l [][]byte, at int) [][]byte { l[at], l[at+1] = l[at+1], l[at]; return l }},
	{"two lines far apart swapped", "seal_order", 10, func(l [][]byte, at int) [][]byte { l[at], l[at+10] = l[at+10], l[at]; return l }},
	{"lines turned round", "seal_order", 1, func(l [][]byte, at int) [][]byte { slices.Reverse(l[at : at+5]); return l }},
	{"a line twice", "seal_extra", 1, func(l [][]byte, at int) [][]byte { return slices.Insert(l, at+1, l[at]) }},
	{"a line from before again", "seal_extra", 0, func(l [][]byte, at int) [][]byte { return slices.Insert(l, at, l[3]) }},
	{"a line of another with its number", "seal_changed", 0, func(l [][]byte, at int) [][]byte {
		l[at] = seqOfLine.ReplaceAll(l[at-1], seqOfLine.Find(l[at]))
		return l
	}},
	{"an object without a seal", "seal_extra", 0, func(l [][]byte, at int) [][]byte { return slices.Insert(l, at, []byte("{}\n")) }},
	{"a seal taken off", "seal_extra", 0, func(l [][]byte, at int) [][]byte {
		l[at] = sealOfLine.ReplaceAll(l[at], []byte("}\n"))
		return l
	}},
	{"a number far on", "seal_extra", 0, renumber(`"seq":1}`)},
	{"a number without an end", "seal_extra", 0, renumber(`"seq":99999999999999999999}`)},
	{"a number with a nought in front", "seal_extra", 0, renumber(`"seq":01}`)},
	{"another generation", "seal_head", 0, replaceIn(`/access/1"`, `/access/9"`)},
	{"another gateway", "seal_head", 0, replaceIn(`"log":"gw1`, `"log":"gw2`)},
	{"another log", "seal_head", 0, replaceIn(`/access/1"`, `/other/1"`)},
}

func replaceIn(old, by string) func([][]byte, int) [][]byte {
	return func(l [][]byte, at int) [][]byte {
		l[at] = bytes.Replace(l[at], []byte(old), []byte(by), 1)
		return l
	}
}

func renumber(by string) func([][]byte, int) [][]byte {
	return func(l [][]byte, at int) [][]byte { l[at] = seqOfLine.ReplaceAll(l[at], []byte(by)); return l }
}

// TestMatrixOfDishonestLogs audits a gateway's log over rotation, packing, a kill and a restart. It
// passes the audit, and no longer does after any tampering. Where only a checkpoint from elsewhere
// shows the change, the audit gets one.
func TestMatrixOfDishonestLogs(t *testing.T) {
	rig.LoadsMachine(t)
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	s, early := rig.NewSealedLog(t), filepath.Join(t.TempDir(), "early")
	g := crawlOverAKill(s, site, 4, func() {
		if err := os.CopyFS(early, os.DirFS(s.Dir)); err != nil {
			t.Fatal(err)
		}
	})
	for bytes.Count(rig.Unpacked(t, filepath.Join(s.Dir, "access.log")), []byte("\n")) < 60 { // the log was rotated just before
		if err := g.Start(s.Config("every 200ms 100")); err != nil {
			t.Fatal(err)
		}
		for range 60 {
			rig.Get(t, g.Client("somebot"), site.URL("/"))
		}
		g.Stop()
	}
	m := &tampered{t, s, g.Store(), s.Files()}
	if r := m.audit(s.Dir); r.Status != 0 {
		t.Fatalf("unchanged log: status %d, findings %+v, errors %v", r.Status, r.Findings, r.Errors)
	}
	last := len(m.files) - 1
	for _, tt := range edits {
		const at = 11
		edit := func(l [][]byte) [][]byte { return tt.edit(l, at) }
		if tt.kind != "seal_head" {
			m.wantInEach(tt.name, []int{0, 1, last}, edit, tt.kind, at+1+tt.behind)
			continue
		}
		for _, file := range []int{0, 1, last} { // in an unknown log, only the first line is a finding
			m.want(tt.name, file, func(string) {}, edit, tt.kind, at+1)
		}
	}
	m.tamperFiles(last)
	m.tamperState(early)
}

// tampered is an unchanged log and its copies.
type tampered struct {
	t     *testing.T
	log   *rig.SealedLog
	store string
	files []string
}

func (m *tampered) audit(dir string, args ...string) rig.AuditRun {
	m.t.Helper()
	return rig.Audit(m.t, append([]string{"--seal", "--store", m.store, dir}, args...)...)
}

// copied returns a copy of the log with the same change in some of its files, and their names.
func (m *tampered) copied(files []int, edit func(l [][]byte) [][]byte) (dir string, names []string) {
	m.t.Helper()
	dir = filepath.Join(m.t.TempDir(), "log")
	if err := os.CopyFS(dir, os.DirFS(m.log.Dir)); err != nil {
		m.t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Join(dir, filepath.Base(m.files[file]))
		names = append(names, name)
		if edit == nil {
			continue
		}
		lines := slices.Collect(bytes.Lines(rig.Unpacked(m.t, name)))
		if err := os.WriteFile(name, bytes.Join(edit(lines), nil), 0o600); err != nil {
			m.t.Fatal(err)
		}
	}
	return dir, names
}

// wantInEach changes several files in a copy. It checks that the audit reports the finding at the
// line in each of them, and that the verifier reports one in each. An audit and its verifier take
// half a second, so one run covers all files.
func (m *tampered) wantInEach(what string, files []int, edit func(l [][]byte) [][]byte, kind string, line int) {
	m.t.Helper()
	dir, names := m.copied(files, edit)
	r := m.audit(dir)
	for _, name := range names {
		found := slices.ContainsFunc(r.Findings, func(f rig.AuditFinding) bool {
			return f.Kind == kind && f.Message != "" && f.File == name && f.Line == line
		})
		verified := slices.ContainsFunc(r.Verified.Findings, func(f rig.AuditFinding) bool { return f.File == name })
		if r.Status != 1 || !found || !verified {
			m.t.Errorf("%s, %s: status %d, want %s at line %d; the audit found %v, the verifier %v", what, name, r.Status, kind, line, r.Findings, r.Verified.Findings)
		}
	}
}

// want changes a copy and checks that the audit has a finding of the kind at the line of the file,
// where 0 is any line. For the kind incomplete it checks for an error.
func (m *tampered) want(what string, file int, folder func(dir string), edit func(l [][]byte) [][]byte, kind string, line int) {
	m.t.Helper()
	dir, names := m.copied([]int{file}, edit)
	folder(dir)
	name, r := names[0], m.audit(dir)
	if kind == "incomplete" {
		if r.Status != 2 || !strings.Contains(strings.Join(r.Errors, "\n"), "the log is incomplete") {
			m.t.Errorf("%s, file %d: status %d, findings %v, errors %v, want the error that the log is incomplete", what, file, r.Status, r.Findings, r.Errors)
		}
		return
	}
	found := slices.ContainsFunc(r.Findings, func(f rig.AuditFinding) bool {
		return f.Kind == kind && f.Message != "" && (line == 0 || f.File == name && f.Line == line)
	})
	if r.Status != 1 || !found {
		m.t.Errorf("%s, file %d: status %d, want %s at line %d, got %v", what, file, r.Status, kind, line, r.Findings)
	}
}

// tamperFiles removes files and their ends, and appends lines.
func (m *tampered) tamperFiles(last int) {
	none := func(string) {}
	remove := func(file int) func(string) {
		return func(dir string) { _ = os.Remove(filepath.Join(dir, filepath.Base(m.files[file]))) }
	}
	own := func(msg string) func(l [][]byte) [][]byte {
		return func(l [][]byte) [][]byte {
			return slices.DeleteFunc(l, func(line []byte) bool { return bytes.Contains(line, []byte(`"msg":"`+msg+`"`)) })
		}
	}
	behind := func(n int, log string) func(l [][]byte) [][]byte {
		return func(l [][]byte) [][]byte {
			var seq int
			_, _ = fmt.Sscanf(string(seqOfLine.Find(l[len(l)-1])), `"seq":%d}`, &seq)
			asked := l[slices.IndexFunc(l, func(line []byte) bool { return bytes.Contains(line, []byte(`"robots":{`)) })]
			for i := range n {
				line := sealOfLine.ReplaceAll(asked, fmt.Appendf(nil, `,"log":"%s","seq":%d}`+"\n", log, seq+1+i))
				if log == "" {
					line = sealOfLine.ReplaceAll(asked, []byte("}\n"))
				}
				l = append(l, line)
			}
			return l
		}
	}
	const id = "gw1.acme.example/access/1"
	lines := bytes.Count(rig.Unpacked(m.t, m.files[last]), []byte("\n"))
	m.want("the first file taken", 0, remove(0), nil, "seal_missing", 0)
	m.want("the first line taken", 0, none, func(l [][]byte) [][]byte { return l[1:] }, "seal_missing", 1)
	m.want("a file in the middle taken", 0, remove(1), nil, "seal_missing", 0)
	m.want("the last file taken", last-1, remove(last), nil, "seal_tail", len(bytes.SplitAfter(rig.Unpacked(m.t, m.files[last-1]), []byte("\n")))-1)
	m.want("a file emptied", 1, none, func([][]byte) [][]byte { return nil }, "seal_missing", 0)
	m.want("the first line of a file taken", 1, none, func(l [][]byte) [][]byte { return l[1:] }, "seal_missing", 1)
	m.want("the end of a file taken", 1, none, func(l [][]byte) [][]byte { return l[:len(l)-3] }, "seal_missing", 0)
	m.want("the end of the log taken", last, none, func(l [][]byte) [][]byte { return l[:len(l)-3] }, "seal_tail", 0)
	m.want("half of the log taken", last, none, func(l [][]byte) [][]byte { return l[:len(l)/2] }, "seal_tail", 0)
	m.want("a file twice, with a change", 0, func(dir string) { // one without is left out, and named
		text := bytes.Replace(rig.Unpacked(m.t, m.files[1]), []byte(`"level"`), []byte(`"Level"`), 1)
		_ = os.WriteFile(filepath.Join(dir, "access-2099-01-01T00-00-00.000-size.log"), text, 0o600)
	}, nil, "seal_extra", 0)
	for _, msg := range []string{"opened", "closed", "checkpoint"} {
		for file := range m.files {
			if bytes.Contains(rig.Unpacked(m.t, m.files[file]), []byte(`"msg":"`+msg+`"`)) {
				m.want("lines taken: "+msg, file, none, own(msg), "seal_missing", 0)
				break
			}
		}
	}
	m.want("lines about robots.txt changed", 0, none, func(l [][]byte) [][]byte {
		for i, line := range l {
			l[i] = bytes.Replace(line, []byte(`"robots_txt":{`), []byte(`"robots_txt":{"x":1,`), 1)
		}
		return l
	}, "seal_changed", 0)
	m.want("lines behind the end", last, none, behind(1000, id), "seal_unsealed", lines+1)
	m.want("a line behind the end", last, none, behind(1, id), "seal_unsealed", lines+1)
	m.want("lines behind the end without a seal", last, none, behind(1000, ""), "seal_extra", 0)
	m.want("lines behind the end of a later generation", last, none, behind(3, "gw1.acme.example/access/2"), "seal_head", 0)
}

// tamperState changes the evidence, alone and together with the log.
func (m *tampered) tamperState(early string) {
	t := m.t
	t.Helper()
	in := func(dir string, name ...string) string {
		return filepath.Join(append([]string{dir, "evidence", "access", "1"}, name...)...)
	}
	heads, err := os.ReadFile(in(m.log.Dir, "heads"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := strings.SplitAfter(string(heads), "\n--\n")
	write := func(name, text string) func(string) {
		return func(dir string) { _ = os.WriteFile(in(dir, name), []byte(text), 0o600) }
	}
	m.want("checkpoints of an earlier time", 0, write("heads", blocks[0]), nil, "seal_head", 0)
	m.want("no checkpoints", 0, write("heads", ""), nil, "seal_head", 0)
	m.want("a checkpoint changed", 0, write("heads", strings.Replace(string(heads), "access/1\n", "access/1\n1", 1)), nil, "seal_head", 0)
	m.want("leaves changed", 0, func(dir string) { _ = os.WriteFile(in(dir, "tile", "0", "000"), make([]byte, 256*32), 0o600) }, nil, "seal_leaves", 0)
	m.want("leaves gone, and a line changed", 0, func(dir string) { _ = os.RemoveAll(in(dir, "tile")) }, func(l [][]byte) [][]byte {
		return replaceIn(`"level"`, `"Level"`)(l, 11)
	}, "seal_changed", 0)

	// An earlier copy of everything is consistent. Only a checkpoint kept elsewhere shows it.
	kept := filepath.Join(t.TempDir(), "heads")
	if err := os.WriteFile(kept, heads, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := m.audit(early); r.Status != 0 {
		t.Errorf("set back, alone: status %d, findings %+v, errors %v", r.Status, r.Findings, r.Errors)
	}
	if r := m.audit(early, "--head", kept); r.Status != 1 || len(r.Findings) != 1 || r.Findings[0].Kind != "seal_tail" {
		t.Errorf("set back: status %d, findings %+v", r.Status, r.Findings)
	}
}
