package sealer

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/crawlgate/crawlgate/evidence"
)

const lateMessage = "lines that were not sealed when the gateway ended are sealed now"

// TestKilled checks that lines that are in the log but not in the tree are sealed late, and that
// the log reports it.
func TestKilled(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.open()
	b.write(l, entry(1))
	b.flush(l)
	b.write(l, entry(2), entry(3))
	b.kill(l)
	torn := entry(4)[:40]
	appendFile(b.config.File, []byte(torn))
	l = b.open()
	b.write(l, entry(5))
	b.close(l)
	lines := b.lines()
	// opened, checkpoint, 1, checkpoint, 2, 3, torn, opened, checkpoint, 5, closed, checkpoint
	if len(lines) != 12 || lines[6] != torn || !strings.Contains(lines[7], `,"late":{"from":3,"to":7,"torn":1,"file":"access.log"},"log":"gw1.example/access/1","seq":7}`) {
		t.Errorf("got %d lines, want 12 with a late notice:\n%s", len(lines), strings.Join(lines, "\n"))
	}
	if e, told := b.told(lateMessage); !told || e.Detail != "lines 3 to 6, torn: 1" {
		t.Errorf("reported %+v, want the late lines", e)
	}
	if signed := b.verify(1, 0); signed != 11 {
		t.Errorf("%d lines are signed, want 11", signed)
	}
}

// TestNewGenerations checks when another generation begins, which reason it states, and that it
// begins after the lines of the one before.
func TestNewGenerations(t *testing.T) {
	t.Parallel()
	state := func(b *bench, name string) string { return filepath.Join(b.config.State, "access", "1", name) }
	edit := func(name string, change func([]byte) []byte) {
		if err := os.WriteFile(name, change(must(os.ReadFile(name))), 0o600); err != nil {
			panic(err)
		}
	}
	for name, tt := range map[string]struct {
		change func(b *bench)
		reason string // the beginning of the reason in the log
	}{
		"new key":      {func(b *bench) { os.Remove(filepath.Join(b.config.State, "access", "key")) }, "new key"},
		"new gateway":  {func(b *bench) { b.config.Gateway = "gw2.example" }, "the gateway has a new name"},
		"state gone":   {func(b *bench) { os.RemoveAll(b.config.State) }, "the state is lost"},
		"position":     {func(b *bench) { os.Remove(state(b, "position")) }, "the file position of the state is missing"},
		"bad position": {func(b *bench) { edit(state(b, "position"), func([]byte) []byte { return []byte("{}") }) }, "the state is damaged: the file position should be a number of lines, and is "},
		"position of 0.1": {
			func(b *bench) {
				edit(state(b, "position"), func([]byte) []byte { return []byte(`{"size":12,"offset":6500}`) })
			},
			"release 0.1 sealed the lines before, and its state has another form",
		},
		"leaves gone": {func(b *bench) { os.RemoveAll(state(b, "tile")) }, "reading 12 hashes of tile/0/000: no such file or directory"},
		"leaves cut":  {func(b *bench) { os.Truncate(state(b, "tile/0/000.p/12"), 64) }, "reading 12 hashes of tile/0/000: unexpected EOF"},
		"other leaf": {func(b *bench) {
			edit(state(b, "tile/0/000.p/12"), func(data []byte) []byte { data[0]++; return data })
		}, "the first 11 lines are not those that were signed"},
		"vkey gone": {func(b *bench) { os.Remove(state(b, "vkey")) }, "the file vkey of the state is missing"},
		"foreign line": {func(b *bench) {
			edit(b.config.File, func(text []byte) []byte {
				return append(text, `{"log":"gw1.example/access/1","seq":13}`+"\n"...)
			})
		}, "access.log: the line behind leaf 11 is 13 of gw1.example/access/1"},
		"line of a later generation": {func(b *bench) {
			edit(b.config.File, func(text []byte) []byte {
				return append(text, `{"log":"gw1.example/access/7","seq":0}`+"\n"...)
			})
		}, "access.log: the line behind leaf 11 is 0 of gw1.example/access/7"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			l := b.open()
			b.write(l, entry(1), entry(2), entry(3), entry(4), entry(5), entry(6), entry(7), entry(8))
			b.close(l)
			tt.change(b)
			before := b.lines()
			l = b.open()
			generation := 2
			if strings.Contains(name, "later") {
				generation = 8
			}
			b.write(l, entry(9))
			b.close(l)
			reason := tt.reason
			line := b.lines()[len(before)]
			if strings.Contains(line, b.dir) {
				t.Errorf("the log contains a folder of the machine: %s", line)
			}
			// The notice has the last checkpoint of the generation before, if the state has it.
			checkpoint := fmt.Sprintf(`,"size":%d,"root":"`, 11)
			if known := name != "state gone" && name != "vkey gone" && generation == 2; strings.Contains(line, checkpoint) != known {
				t.Errorf("the last checkpoint of the generation before: want %t: %s", known, line)
			}
			if !strings.Contains(line, `,"reason":"`+reason) || !strings.Contains(line, fmt.Sprintf(`access/%d","seq":0}`, generation)) {
				t.Errorf("got line %s\nwant reason %s", line, reason)
			}
			if e, told := b.told("evidence begins a new generation"); !told || !e.Failure || !strings.Contains(e.Detail, reason) {
				t.Errorf("reported %+v, want a failure with the reason", e)
			}
			if signed := b.verify(generation, len(before)); signed != 4 {
				t.Errorf("%d lines are signed, want 4", signed)
			}
			l = b.open() // it continues the generation
			if want := fmt.Sprintf("/%d", generation); !strings.HasSuffix(l.id, want) {
				t.Errorf("then it is %s, want %s", l.id, want)
			}
			b.close(l)
		})
	}
}

// TestGoesOn checks that if signed lines were changed or removed while the gateway was off, the log
// continues after them, and the audit finds that. A renamed log is read under its new name.
func TestGoesOn(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(b *bench){
		"gone": func(b *bench) { os.Remove(b.config.File) },
		"cut":  func(b *bench) { os.Truncate(b.config.File, 700) },
		"changed": func(b *bench) {
			os.WriteFile(b.config.File, append([]byte("x\n"), must(os.ReadFile(b.config.File))...), 0o600)
		},
		"renamed":          func(b *bench) { os.Rename(b.config.File, b.config.File+".1") },
		"renamed by date":  func(b *bench) { os.Rename(b.config.File, b.config.File+"-20260101") },
		"renamed and more": func(b *bench) { os.Rename(b.config.File, b.config.File+".2"); packFile(b.config.File + ".2") },
		"renamed, of many": func(b *bench) {
			for i := range 12 {
				os.WriteFile(fmt.Sprint(b.config.File, ".", i+2), evidence.Splice([]byte(entry(1)), "gw1.example/access/1", 0), 0o600)
			}
			os.Rename(b.config.File, b.config.File+".1")
		},
	} {
		for _, late := range []int{0, 3} {
			b := newBench(t)
			l := b.open()
			b.write(l, entry(1), entry(2), entry(3))
			b.flush(l)
			if late > 0 && strings.HasPrefix(name, "renamed") {
				b.write(l, entry(4), entry(5), entry(6))
				b.kill(l)
			} else {
				b.close(l)
			}
			change(b)
			l = b.open()
			b.write(l, entry(7))
			size := l.Status().Size
			b.close(l)
			if e, more := b.told("evidence begins a new generation"); more && e.Failure {
				t.Errorf("%s: a new generation begins: %s", name, e.Detail)
			}
			lines := b.lines()
			if !strings.Contains(strings.Join(lines, "\n"), fmt.Sprintf(`"ts":1700000000.7,"logger":"http.log.access","msg":"handled request","status":200,"log":"gw1.example/access/1","seq":%d}`, size-1)) {
				t.Errorf("%s: want line %d: %s", name, size-1, strings.Join(lines, "\n"))
			}
			if !slices.ContainsFunc(lines, func(s string) bool { return strings.HasPrefix(s, `{"level":"info","ts":1700000000.7,`) }) {
				t.Errorf("%s: the first line is not separate: %s", name, strings.Join(lines, "\n"))
			}
			if e, told := b.told(lateMessage); told != (late > 0 && strings.HasPrefix(name, "renamed")) {
				t.Errorf("%s: reported %+v", name, e)
			}
		}
	}
}

// TestRolledBack checks that with yesterday's state, the lines since then are sealed late if they
// are the signed ones. Otherwise another generation begins.
func TestRolledBack(t *testing.T) {
	t.Parallel()
	for _, changed := range []bool{false, true} {
		for _, copied := range []bool{false, true} {
			b := newBench(t)
			b.rot.most, b.rot.pack = 1500, true
			if copied {
				b.config.Checkpoints = filepath.Join(t.TempDir(), "heads")
			}
			l := b.open()
			b.write(l, entry(1), entry(2))
			b.close(l)
			yesterday := b.snapshot()
			maps.DeleteFunc(yesterday, func(name string, _ []byte) bool { return !strings.HasPrefix(name, "/evidence") })
			l = b.open()
			for i := range 50 {
				b.write(l, entry(i))
			}
			b.close(l)
			count := len(b.lines())
			now := b.snapshot()
			for name := range now {
				if strings.HasPrefix(name, "/evidence") {
					delete(now, name)
				}
			}
			maps.Copy(now, yesterday)
			if changed { // before the newest checkpoint
				text := now["/access.log"]
				i := bytes.Index(text, []byte("handled"))
				text[i] = 'H'
			}
			b.restore(now)
			l = b.open()
			b.write(l, entry(1))
			b.close(l)
			if changed {
				if e, _ := b.told("evidence begins a new generation"); !strings.Contains(e.Detail, "lines are not those that were signed") {
					t.Errorf("with a changed line: reported %+v", e)
				}
				b.verify(2, count)
				continue
			}
			// A copy shows that they were signed in time.
			if e, told := b.told(lateMessage); told == copied || told && !strings.HasPrefix(e.Detail, "lines 5 to ") {
				t.Errorf("reported %+v", e)
			}
			if signed := b.verify(1, 0); int(signed) != count+4 {
				t.Errorf("%d lines are signed, and %d were there before", signed, count)
			}
		}
	}
}

// TestLaundered checks that a start seals no more lines than a crash leaves. If there are more, a
// generation begins that says how many there were and in which file they begin. They stay without a
// checkpoint.
func TestLaundered(t *testing.T) {
	t.Parallel()
	for _, lines := range []int{7999, 8000} {
		b := newBench(t)
		b.config.Terms.Lines = 1000
		l := b.open()
		b.close(l)
		var made []byte // forged while the gateway was off
		for i := range lines {
			made = append(made, evidence.Splice([]byte(entry(i)), l.id, int64(4+i))...)
		}
		appendFile(b.config.File, made)
		b.close(b.open())
		if _, late := b.told(lateMessage); late != (lines == 7999) {
			t.Errorf("%d lines and the notice of the last checkpoint: sealed late = %t", lines, late)
		}
		want := "8001 lines from line 3 on, the first in access.log, have no checkpoint: a crash leaves at most 8000"
		if line := b.lines()[4+lines]; strings.Contains(line, `,"reason":"`+want+`"`) == (lines == 7999) {
			t.Errorf("%d lines and the notice of the last checkpoint: %s", lines, line)
		}
	}
}

// TestCutAgainstCopy checks that if a log and its state are both set back, the second copy of the
// checkpoints reveals it.
func TestCutAgainstCopy(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config.Checkpoints = filepath.Join(t.TempDir(), "heads")
	b.close(b.open())
	yesterday := b.snapshot()
	l := b.open()
	b.write(l, entry(1))
	b.close(l)
	b.restore(yesterday)
	b.close(b.open())
	if e, _ := b.told("evidence begins a new generation"); !strings.Contains(e.Detail, "the log has 4 lines of the 8 that were signed") {
		t.Errorf("reported %+v, want the 4 missing lines", e)
	}
}

// TestOnlyCopyLeft checks that if only the second copy of the checkpoints has a generation, it does
// not begin again, whatever else is lost or set back. Otherwise the gateway would sign two logs
// under one identity, if its key is kept elsewhere. A torn end of the copy costs no checkpoint.
func TestOnlyCopyLeft(t *testing.T) {
	t.Parallel()
	for _, lost := range []string{"state and log", "state and log, torn", "state; log set back", "both set back", "both set back, and changed"} {
		b := newBench(t)
		b.config.Checkpoints, b.config.Key = filepath.Join(t.TempDir(), "heads"), filepath.Join(t.TempDir(), "key")
		b.close(b.open())
		first := b.snapshot()
		os.Remove(filepath.Join(b.config.State, "access", "1", positionFile))
		l := b.open()
		b.write(l, entry(1))
		b.close(l)
		switch {
		case strings.HasPrefix(lost, "state and log"):
			first = nil
		case strings.HasPrefix(lost, "state; log"):
			maps.DeleteFunc(first, func(name string, _ []byte) bool { return strings.HasPrefix(name, "/evidence") })
		case strings.HasSuffix(lost, "changed"):
			delete(first, "/evidence/access/1/"+positionFile)
		}
		if b.restore(first); strings.HasSuffix(lost, "torn") {
			appendFile(b.config.Checkpoints, []byte("gw1.example/access/2\n9\nAAAA"))
		}
		l = b.open()
		if l.id != "gw1.example/access/3" {
			t.Errorf("%s: the log's id is %s, want generation 3", lost, l.id)
		}
		b.close(l)
		want := `,"reason":"the state and the log have none of the 4 lines of gw1.example/access/2 that were signed: the second copy of the checkpoints says so",` +
			`"previous":"gw1.example/access/2","size":4,"root":"`
		if line := strings.Join(b.lines(), "\n"); !strings.Contains(line, want) {
			t.Errorf("%s: wrong notice: %s", lost, line)
		}
		sizes := map[string]int64{}
		for checkpoint, err := range evidence.ReadCheckpoints(bytes.NewReader(must(os.ReadFile(b.config.Checkpoints))), note.VerifierList(l.signer)) {
			if err == nil {
				sizes[checkpoint.LogID]++
			}
		}
		if sizes[l.id] != 2 {
			t.Errorf("%s: the second copy has %v checkpoints", lost, sizes)
		}
	}
}

// FuzzRecovery checks that whatever a kill or a power cut leaves after the last sync, the same
// generation continues, and all remaining lines are sealed. No byte of the log changes.
func FuzzRecovery(f *testing.F) {
	f.Add(uint8(0), uint16(0), uint16(0), uint16(0), false)
	f.Add(uint8(3), uint16(70), uint16(33), uint16(100), true)
	f.Add(uint8(3), uint16(0), uint16(40*32), uint16(0), false)
	f.Add(uint8(9), uint16(65535), uint16(65535), uint16(65535), false)
	made := newBench(f)
	made.rot.most, made.rot.pack = 3000, true
	l := made.open()
	var moments []map[string][]byte
	for i := range 10 {
		for j := range 7 {
			made.write(l, entry(10*i+j))
		}
		if err := l.saveNow(); err != nil {
			f.Fatal(err)
		}
		moments = append(moments, made.snapshot())
		made.flush(l)
	}
	made.close(l)
	end := made.snapshot()
	f.Fuzz(func(t *testing.T, moment uint8, log, leaves, checkpoints uint16, headKept bool) {
		b := newBench(t)
		b.rot.most = 3000
		files := maps.Clone(moments[int(moment)%len(moments)])
		// Nothing waits for the position, so the disk may have the position of an earlier one.
		const position = "/evidence/access/1/position"
		files[position] = moments[int(leaves)%(int(moment)%len(moments)+1)][position]
		// Files that only grow may have any length between the last sync and the end.
		extend := func(name string, n uint16) {
			if before, after := files[name], end[name]; bytes.HasPrefix(after, before) {
				files[name] = after[:len(before)+int(n)%(len(after)-len(before)+1)]
			}
		}
		extend("/access.log", log)
		if headKept { // tiles written since then: they may cover lines that the disk lacks, or be cut or empty
			later := moments[int(checkpoints)%len(moments)]
			for name, data := range later {
				if _, there := files[name]; !there && strings.Contains(name, "/tile/") {
					files[name] = data[:len(data)*int(leaves%3)/2]
				}
			}
		}
		if cut := int(checkpoints) % maxCut; headKept { // part of a checkpoint
			files["/evidence/access/1/heads"] = append(bytes.Clone(files["/evidence/access/1/heads"]), end["/evidence/access/1/heads"][:cut]...)
		}
		b.restore(files)
		before := b.lines()
		l := b.open()
		b.write(l, entry(1000))
		b.close(l)
		if l.id != "gw1.example/access/1" {
			e, _ := b.told("evidence begins a new generation")
			t.Fatalf("the log's id is %s: %s", l.id, e.Detail)
		}
		after := b.lines()
		if strings.Join(before, "\n") != strings.Join(after[:len(before)], "\n") {
			t.Error("lines were changed")
		}
		if signed := b.verify(1, 0); int(signed) != len(after)-1 {
			t.Errorf("%d of %d lines are signed, want all but one", signed, len(after))
		}
	})
}

const maxCut = 60 // shorter than any checkpoint
