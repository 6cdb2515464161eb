package verify

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// fixture is a sealed log of two generations in three files, as a gateway leaves it: with a line
// that a crash cut off, lines that were sealed late, and some after the last checkpoint.
type fixture struct {
	tb     testing.TB
	files  []file
	folder string
	key    string // the verifier key of the first generation
	keys   map[int]signer
	said   *[]string // if set, collects the messages of findings
	terms  string    // of the lines opened
	pace   int64     // seconds from line to line
	idle   int       // an hour passes before the line with this index; 0: before none
	zone   int64     // by how many seconds the times of notices differ from the others
	grow   func()    // the gateway calls it after the state is read and before the lines are; or nil
}

type file struct {
	name string
	text string
}

type signer struct{ secret, public string }

// The fixture's lines: generation 1 has lines 0 to 299, and line 150 is torn; generation 2 has
// lines 0 to 105. The last 6, one of them a notice, are not sealed yet.
const (
	firstSize, tornAt = 300, 150
	secondSize, open  = 100, 6
	perFile           = 140
)

func newFixture(tb testing.TB) *fixture {
	tb.Helper()
	return newFixtureOf(tb, `{"roll_keep":1,"every":1,"lines":1000}`, 1)
}

// newFixtureOf makes a log under terms, with a line every step.
func newFixtureOf(tb testing.TB, terms string, pace int64) *fixture {
	tb.Helper()
	f := &fixture{tb: tb, folder: tb.TempDir(), keys: make(map[int]signer), terms: terms, pace: pace}
	var all []string
	all = append(all, f.generation(1, firstSize, 0)...)
	all = append(all, f.generation(2, secondSize, open)...)
	for i := 0; len(all) > 0; i++ {
		n := min(perFile, len(all))
		f.files = append(f.files, file{fmt.Sprintf("access-%d.log", i), strings.Join(all[:n], "")})
		all = all[n:]
	}
	f.key = f.keys[1].public
	return f
}

func id(generation int) string {
	return evidence.LogID{Gateway: "gw.example", Log: "access", Generation: generation}.String()
}

func (f *fixture) dir(generation int) string {
	return filepath.Join(f.folder, "access", fmt.Sprint(generation))
}

// generation makes the lines of a tree, its leaves and a checkpoint every 50 lines.
func (f *fixture) generation(g, size, unsealed int) (lines []string) {
	f.tb.Helper()
	rand := bytes.NewReader(bytes.Repeat([]byte{byte(g)}, 100))
	secret, public, err := note.GenerateKey(rand, id(g))
	if err != nil {
		f.tb.Fatal(err)
	}
	f.keys[g] = signer{secret, public}
	if err := os.MkdirAll(f.dir(g), 0o700); err != nil {
		f.tb.Fatal(err)
	}
	var edge evidence.Tree
	var leaves, checkpoints []byte
	for seq := range size + unsealed {
		line := fmt.Sprintf(`{"msg":"handled request","n":%d}`, seq)
		switch {
		case seq == 0:
			line = `{"logger":"crawlgate.evidence","msg":"opened","reason":"new key","terms":` + f.terms + `}`
			if g == 2 {
				before := f.checkpoints(1)
				checkpoint, _ := evidence.ReadClaim(before[len(before)-1])
				line = fmt.Sprintf(`{"logger":"crawlgate.evidence","msg":"opened","reason":"new key","terms":%s,"previous":"%s","size":%d,"root":"%s"}`, f.terms, id(1), checkpoint.Size, checkpoint.Root)
			}
		case g == 1 && seq == tornAt:
			lines = append(lines, `{"msg":"handled req`+"\n")
		case g == 1 && seq == tornAt+1:
			line = fmt.Sprintf(`{"logger":"crawlgate.evidence","msg":"opened","terms":%s,"late":{"from":%d,"to":%d,"torn":1}}`, f.terms, tornAt-10, tornAt+1)
		case seq%50 == 1 && seq > 1:
			line = fmt.Sprintf(`{"logger":"crawlgate.evidence","msg":"checkpoint","size":%d}`, seq-1)
		}
		if len(lines) == seq {
			lines = append(lines, string(evidence.Splice([]byte(line), id(g), int64(seq))))
		}
		leaf := tlog.RecordHash([]byte(strings.TrimSuffix(lines[seq], "\n")))
		edge.Append(leaf)
		leaves = append(leaves, leaf[:]...)
		if n := seq + 1; n%50 == 0 && n <= size {
			checkpoints = append(checkpoints, f.sign(g, edge)...)
		}
	}
	f.writeLeaves(g, leaves)
	f.write(g, "heads", checkpoints)
	f.write(g, "vkey", []byte(f.keys[g].public+"\n"))
	return lines
}

// writeLeaves writes the tiles over leaves.
func (f *fixture) writeLeaves(g int, leaves []byte) {
	f.tb.Helper()
	writeTiles(f.tb, f.dir(g), leaves)
}

func writeTiles(tb testing.TB, dir string, leaves []byte) {
	tb.Helper()
	write := func(t evidence.Tile) {
		name := filepath.Join(dir, t.Path())
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, t.Data, 0o600)); err != nil {
			tb.Fatal(err)
		}
	}
	if err := os.RemoveAll(filepath.Join(dir, "tile")); err != nil {
		tb.Fatal(err)
	}
	tree := evidence.Tree{Full: write}
	for leaf := range slices.Chunk(leaves, tlog.HashSize) {
		tree.Append(tlog.Hash(leaf))
	}
	for _, t := range tree.Edge(0) {
		write(t)
	}
}

// leaves returns the leaves that writeLeaves wrote.
func (f *fixture) leaves(g int) (leaves []byte) {
	f.tb.Helper()
	for seq := int64(0); ; {
		some, err := evidence.Tiles(f.dir(g)).Hashes(0, seq)
		if err != nil {
			return leaves
		}
		for _, leaf := range some {
			leaves = append(leaves, leaf[:]...)
		}
		seq += int64(len(some))
	}
}

// replace changes a line of the last file, and makes the leaves and checkpoints again.
func (f *fixture) replace(g, seq int, line string) {
	f.tb.Helper()
	f.edit(2, func(l []string) []string {
		l[firstSize*(g-1)-2*perFile+seq] = line
		return l
	})
	leaves := f.leaves(g)
	leaf := tlog.RecordHash([]byte(strings.TrimSuffix(line, "\n")))
	copy(leaves[tlog.HashSize*seq:], leaf[:])
	f.writeLeaves(g, leaves)
	var edge evidence.Tree
	var checkpoints []byte
	for leaf := range slices.Chunk(leaves, tlog.HashSize) {
		if edge.Append(tlog.Hash(leaf)); edge.Size()%50 == 0 {
			checkpoints = append(checkpoints, f.sign(g, edge)...)
		}
	}
	f.write(g, "heads", checkpoints)
}

func (f *fixture) sign(g int, edge evidence.Tree) []byte {
	f.tb.Helper()
	s, err := note.NewSigner(f.keys[g].secret)
	if err != nil {
		f.tb.Fatal(err)
	}
	text, err := note.Sign(&note.Note{Text: evidence.CheckpointText(id(g), edge.Size(), edge.Root())}, s)
	if err != nil {
		f.tb.Fatal(err)
	}
	return append(text, evidence.CheckpointEnd...)
}

func (f *fixture) write(g int, name string, data []byte) {
	f.tb.Helper()
	if err := os.WriteFile(filepath.Join(f.dir(g), name), data, 0o600); err != nil {
		f.tb.Fatal(err)
	}
}

func (f *fixture) read(g int, name string) []byte {
	f.tb.Helper()
	data, err := os.ReadFile(filepath.Join(f.dir(g), name))
	if err != nil {
		f.tb.Fatal(err)
	}
	return data
}

// kept writes a file of checkpoints outside of the folder.
func kept(tb testing.TB, checkpoints []byte) string {
	tb.Helper()
	name := filepath.Join(tb.TempDir(), "heads")
	if err := os.WriteFile(name, checkpoints, 0o600); err != nil {
		tb.Fatal(err)
	}
	return name
}

// lines returns the lines of a file, with their ends; edit changes them.
func (f *fixture) edit(n int, change func(lines []string) []string) {
	lines := strings.SplitAfter(f.files[n].text, "\n")
	f.files[n].text = strings.Join(change(lines[:len(lines)-1]), "")
}

// check returns the findings, each as file:line kind, and the totals.
func (f *fixture) check(cfg Config) (found []string, totals Totals) {
	f.tb.Helper()
	cfg.Folders = append(cfg.Folders, f.folder)
	c, err := New(f.tb.Context(), cfg, func(x Finding) {
		if f.said != nil {
			*f.said = append(*f.said, x.Message)
		}
		found = append(found, fmt.Sprintf("%s:%d %s", filepath.Base(x.File), x.Line, x.Kind))
	})
	if err != nil {
		f.tb.Fatal(err)
	}
	if f.grow != nil {
		f.grow()
	}
	n, second := 0, int64(0) // a line each
	for _, file := range f.files {
		for i, line := range strings.SplitAfter(file.text, "\n") {
			if line == "" {
				continue
			}
			n++
			if second += f.pace; n == f.idle {
				second += 3600
			}
			when := time.Unix(second, 0)
			if strings.Contains(line, `"logger":"`+evidence.Logger+`"`) {
				when = time.Unix(second+f.zone, 0)
			}
			c.Line(0, Place{file.name, int64(i + 1)}, []byte(line), when)
		}
	}
	return found, c.End()
}

// TestHonest checks that a crash, a new generation and lines that are not sealed yet are not
// tampering.
func TestHonest(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	found, totals := f.check(Config{})
	want := Totals{Logs: []LogTotals{
		{Log: id(1), Sealed: firstSize, Late: 11, Checkpoints: 6, Size: firstSize, Began: "new key", Key: f.keys[1].public},
		{Log: id(2), Sealed: secondSize, Unsealed: open - 1, Checkpoints: 2, Size: secondSize, Began: "new key", Key: f.keys[2].public},
	}}
	if len(found) > 0 || !slices.Equal(totals.Logs, want.Logs) || totals.WithoutSeal != 0 {
		t.Errorf("findings %v, totals %+v", found, totals)
	}
}

// TestRunning checks that if a log is written during the audit, its lines claim checkpoints that
// came after the state was read. If the state does not get these checkpoints, it was set back.
func TestRunning(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{true, false} {
		f := newFixture(t)
		checkpoints := f.read(2, "heads")
		f.cutTo(2, 1)
		f.grow = func() {
			if running {
				f.write(2, "heads", checkpoints)
			}
		}
		found, totals := f.check(Config{})
		want := []string{"access-2.log:122 seal_head"}
		if running {
			want = nil
		}
		if n := totals.Logs[1].Unsealed; !slices.Equal(found, want) || n != secondSize/2+open-1 {
			t.Errorf("running %t: findings %v, %d lines not sealed", running, found, n)
		}
	}
}

// TestHonestLogs checks that the operations on logs and evidence that an operator may do are not
// tampering.
func TestHonestLogs(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		change  func(f *fixture)
		totals  [2]LogTotals // of their Sealed, Unsealed, Unproven, Expired
		without int64
	}{
		{"the oldest file has expired", func(f *fixture) { f.files = f.files[1:] }, [2]LogTotals{{Sealed: 160, Expired: 140}, {Sealed: 100, Unsealed: 5}}, 0},
		{"a file begins with part of a line", func(f *fixture) {
			f.edit(1, func(l []string) []string { return l[tornAt-perFile:] })
			f.files = f.files[1:]
		}, [2]LogTotals{{Sealed: 150, Expired: 150}, {Sealed: 100, Unsealed: 5}}, 0},
		{"the first generation has expired", func(f *fixture) {
			*f = *newFixtureOf(t, `{"roll_keep":1000,"roll_keep_days":1,"every":60000,"lines":1000}`, 800)
			f.edit(2, func(l []string) []string { return l[firstSize-2*perFile:] })
			f.files = f.files[2:]
		}, [2]LogTotals{{Expired: 300}, {Sealed: 100, Unsealed: 5}}, 0},
		{"lines from before there was evidence", func(f *fixture) {
			f.edit(0, func(l []string) []string { return append([]string{"{\"a\":1}\n", "{}\n"}, l...) })
		}, [2]LogTotals{{Sealed: 300}, {Sealed: 100, Unsealed: 5}}, 2},
		{"the last line has no end yet", func(f *fixture) {
			f.edit(2, func(l []string) []string { return append(l, `{"msg":"hand`) })
		}, [2]LogTotals{{Sealed: 300}, {Sealed: 100, Unsealed: 6}}, 0},
		{"the last checkpoint was cut off in a crash", func(f *fixture) {
			checkpoints := f.read(2, "heads")
			f.write(2, "heads", append(checkpoints, checkpoints[:len(checkpoints)/4]...))
		}, [2]LogTotals{{Sealed: 300}, {Sealed: 100, Unsealed: 5}}, 0},
		{"leaves behind the last checkpoint are no evidence", func(f *fixture) {
			leaves := f.leaves(2)
			f.writeLeaves(2, append(leaves, make([]byte, 64)...))
		}, [2]LogTotals{{Sealed: 300}, {Sealed: 100, Unsealed: 5}}, 0},
		{"the leaves are cut: the lines prove themselves from checkpoint to checkpoint", func(f *fixture) {
			f.writeLeaves(1, f.leaves(1)[:120*32])
		}, [2]LogTotals{{Sealed: 300}, {Sealed: 100, Unsealed: 5}}, 0},
	} {
		f := newFixture(t)
		tt.change(f)
		found, totals := f.check(Config{})
		for i := range totals.Logs {
			l := totals.Logs[i]
			if got := (LogTotals{Sealed: l.Sealed, Unsealed: l.Unsealed, Unproven: l.Unproven, Expired: l.Expired}); got != tt.totals[i] {
				t.Errorf("%s: %+v, want %+v", tt.name, got, tt.totals[i])
			}
		}
		if len(found) > 0 || totals.WithoutSeal != tt.without {
			t.Errorf("%s: findings %v, %d lines without a seal", tt.name, found, totals.WithoutSeal)
		}
	}
}

// madeUp returns a line that was never written.
func madeUp(seq int) string {
	return string(evidence.Splice([]byte(`{"msg":"handled request","made":"up"}`), id(1), int64(seq)))
}

// TestTampering checks that each change is found, with its kind and its place.
func TestTampering(t *testing.T) {
	t.Parallel()
	inLog := func(n int, change func(l []string) []string) func(*fixture) {
		return func(f *fixture) { f.edit(n, change) }
	}
	insert := func(line string) func(l []string) []string {
		return func(l []string) []string { return slices.Insert(l, 10, line) }
	}
	for _, tt := range []struct {
		name   string
		change func(*fixture)
		want   string
	}{
		{"a changed byte", inLog(0, func(l []string) []string {
			l[9] = strings.Replace(l[9], "handled", "Handled", 1)
			return l
		}), "access-0.log:10 seal_changed"},
		{"a changed byte of a line without a seal", inLog(1, func(l []string) []string {
			l[10] = "{\n"
			return l
		}), "access-1.log:11 seal_extra, access-1.log:12 seal_missing"},
		{"six lines cut", inLog(0, func(l []string) []string { return slices.Delete(l, 20, 26) }), "access-0.log:21 seal_missing"},
		{"the torn line cut", inLog(1, func(l []string) []string { return slices.Delete(l, 10, 11) }), "access-1.log:11 seal_missing"},
		{"a file cut", func(f *fixture) { f.files = slices.Delete(f.files, 1, 2) }, "access-2.log:1 seal_missing"},
		{"the tail cut", inLog(2, func(l []string) []string { return l[:100] }), "access-2.log:100 seal_tail"},
		{"the end of a generation cut", inLog(2, func(l []string) []string { return slices.Delete(l, 15, 20) }), "access-2.log:15 seal_tail"},
		{"two lines swapped", inLog(0, func(l []string) []string {
			l[30], l[31] = l[31], l[30]
			return l
		}), "access-0.log:32 seal_order"},
		{"two files swapped", func(f *fixture) { f.files[0], f.files[1] = f.files[1], f.files[0] }, "access-0.log:1 seal_order"},
		{"a line made up, without a seal", inLog(0, insert("{\"msg\":\"handled request\"}\n")), "access-0.log:11 seal_extra"},
		{"a line made up, with a number that is taken", inLog(0, insert(madeUp(5))), "access-0.log:11 seal_extra"},
		{"a line made up, with a number far on", inLog(0, insert(madeUp(200))), "access-0.log:11 seal_extra"},
		{"a changed number", inLog(0, func(l []string) []string {
			l[9] = strings.Replace(l[9], `"seq":9`, `"seq":7`, 1)
			return l
		}), "access-0.log:10 seal_extra, access-0.log:11 seal_missing"},
		{"a line made up, with the number that follows", inLog(0, insert(madeUp(10))), "access-0.log:11 seal_changed, access-0.log:12 seal_extra"},
		{"a line made up, of a generation that has ended", inLog(2, func(l []string) []string {
			return slices.Insert(l, 60, madeUp(firstSize))
		}), "access-2.log:61 seal_extra"},
		{"a line twice", inLog(0, func(l []string) []string { return slices.Insert(l, 10, l[9]) }), "access-0.log:11 seal_extra"},
		{"a number of its own", inLog(0, insert(madeUp(firstSize+7))), "access-0.log:12 seal_order, access-0.log:11 seal_missing, access-0.log:11 incomplete"},
		{"a line ahead of all", func(f *fixture) {
			f.files = f.files[1:]
			f.edit(0, func(l []string) []string { return slices.Insert(l, 0, "{}\n") })
		}, "access-1.log:1 seal_extra"},
		{"a seal of a log that there is not", inLog(0, insert(strings.Replace(madeUp(10), "/access/1", "/access/9", 1))), "access-0.log:11 seal_head"},
		{"the checkpoints are those of yesterday", func(f *fixture) {
			checkpoints := f.read(1, "heads")
			f.write(1, "heads", checkpoints[:bytes.Index(checkpoints, []byte(evidence.CheckpointEnd))+3])
		}, "access-1.log:112 seal_head"},
		{"the checkpoints are gone", func(f *fixture) { os.Remove(filepath.Join(f.dir(2), "heads")) }, "access-2.log:122 seal_head"},
		{"the evidence of a generation is gone", func(f *fixture) { os.RemoveAll(f.dir(1)) }, "access-0.log:1 seal_head"},
		{"a leaf changed", func(f *fixture) {
			leaves := f.leaves(1)
			leaves[32*120]++
			f.writeLeaves(1, leaves)
		}, "heads:3 seal_leaves"},
		{"a leaf changed, and no hash over it", func(f *fixture) {
			tile := f.read(1, "tile/0/000")
			tile[32*120]++
			f.write(1, "tile/0/000", tile)
		}, "heads:3 seal_leaves"},
		{"a hash over leaves changed, which a checkpoint that comes late needs", func(f *fixture) {
			tile := f.read(1, "tile/1/000.p/1")
			tile[0]++
			f.write(1, "tile/1/000.p/1", tile)
			checkpoints := f.read(1, "heads")
			f.write(1, "heads", append(checkpoints, checkpoints[:bytes.Index(checkpoints, []byte(evidence.CheckpointEnd))+3]...))
		}, "heads:7 seal_leaves"},
		{"a leaf and its line changed", func(f *fixture) {
			leaves := f.leaves(1)
			f.edit(0, func(l []string) []string {
				l[120] = madeUp(120)
				leaf := tlog.RecordHash([]byte(strings.TrimSuffix(l[120], "\n")))
				copy(leaves[32*120:], leaf[:])
				return l
			})
			f.writeLeaves(1, leaves)
		}, "heads:3 seal_leaves, access-1.log:10 seal_changed"},
		{"an ended generation set back, with its leaves and checkpoints", func(f *fixture) {
			f.cutTo(1, 5)
			f.edit(1, func(l []string) []string { return l[:250-perFile] })
			f.edit(2, func(l []string) []string { return l[firstSize-2*perFile:] })
		}, "access-2.log:1 seal_head"},
		{"an ended generation changed, with its leaves and checkpoints, by someone with the key", func(f *fixture) {
			leaves := f.leaves(1)
			line := madeUp(299)
			leaf := tlog.RecordHash([]byte(strings.TrimSuffix(line, "\n")))
			copy(leaves[32*299:], leaf[:])
			f.writeLeaves(1, leaves)
			var e evidence.Tree
			for leaf := range slices.Chunk(leaves, 32) {
				e.Append(tlog.Hash(leaf))
			}
			f.write(1, "heads", f.sign(1, e))
			f.edit(2, func(l []string) []string {
				l[299-2*perFile] = line
				return l
			})
		}, "access-2.log:21 seal_fork"},
		{"a checkpoint changed", func(f *fixture) {
			f.write(1, "heads", bytes.Replace(f.read(1, "heads"), []byte("\n100\n"), []byte("\n101\n"), 1))
		}, "heads:2 seal_head"},
		{"two checkpoints of one size", func(f *fixture) {
			var e evidence.Tree
			for range 150 {
				e.Append(tlog.Hash{})
			}
			f.write(1, "heads", append(f.read(1, "heads"), f.sign(1, e)...))
		}, "heads:7 seal_fork"},
	} {
		f := newFixture(t)
		tt.change(f)
		found, _ := f.check(Config{})
		if got := strings.Join(found, ", "); got != tt.want {
			t.Errorf("%s: found %q, want %q", tt.name, got, tt.want)
		}
	}
}

// own returns a line of the writer of generation 2.
func own(seq int, members string) string {
	return string(evidence.Splice([]byte(`{"logger":"crawlgate.evidence",`+members+`}`), id(2), int64(seq)))
}

// TestOwnAccount checks that a log with a notice of missing lines is incomplete, and that one with
// lines that were not signed has findings. Neither passes. If a gateway is still writing the lines,
// there is no finding.
func TestOwnAccount(t *testing.T) {
	t.Parallel()
	const end = secondSize + open
	at := func(n int) int { return firstSize - 2*perFile + n } // a line of generation 2 in its file
	appended := func(lines ...string) func(*fixture) {
		return func(f *fixture) { f.edit(2, func(l []string) []string { return append(l, lines...) }) }
	}
	// sealed replaces a sealed line by a notice.
	sealed := func(seq int, members string) func(*fixture) {
		return func(f *fixture) { f.replace(2, seq, own(seq, members)) }
	}
	first := func(reason string, size int) string {
		return fmt.Sprintf(`"msg":"opened","reason":"%s","terms":{"roll_keep":1,"every":1},"previous":"%s","size":%d,"root":"%s"`, reason, id(1), size, tlog.Hash{})
	}
	for _, tt := range []struct {
		name   string
		change func(*fixture)
		want   string
		says   string
	}{
		{"as it was", func(*fixture) {}, "", ""},
		{"a line is lost", sealed(40, `"msg":"lost","lines":702,"from":"2026-01-01T00:00:00Z","to":"2026-01-01T00:01:00Z"`), "access-2.log:61 incomplete", "702 lines are missing here"},
		{"first lines have expired by count", func(f *fixture) { f.files = f.files[1:] }, "", ""},
		{"first lines are missing", func(f *fixture) {
			*f = *newFixtureOf(t, `{"roll_keep":2,"roll_keep_days":1,"every":60000,"lines":1000}`, 200)
			f.files = f.files[1:]
		}, "access-1.log:1 seal_missing", "the first 140 lines of gw.example/access/1 are missing: it goes back 0.6 days in 2 files, and access-1.log:12 says that it is kept for 1 days in 2 files"},
		{"first lines have expired by age", func(f *fixture) {
			*f = *newFixtureOf(t, `{"roll_keep":2,"roll_keep_days":1,"every":60000,"lines":1000}`, 300)
			f.files = f.files[1:]
		}, "", ""},
		{"no file is ever dropped", func(f *fixture) {
			*f = *newFixtureOf(t, `{"every":1}`, 1)
			f.files = f.files[1:]
		}, "access-1.log:1 seal_missing", "kept for 0 days in 0 files"},
		{"nothing says how long lines are kept", func(f *fixture) {
			*f = *newFixtureOf(t, `null`, 1)
			f.files = f.files[1:]
		}, "access-1.log:1 seal_missing", "no line says"},
		{"the terms were cut short", func(f *fixture) {
			*f = *newFixtureOf(t, `{"roll_keep":3}`, 1)
			sealed(50, `"msg":"opened","terms":{"roll_keep":1}`)(f)
			f.files = f.files[1:]
		}, "access-1.log:1 incomplete", "it is kept for 0 days in 3 files besides the newest, 0 for any number; "},
		{"the terms were extended when lines had expired", func(f *fixture) {
			sealed(50, `"msg":"opened","terms":{"roll_keep":9}`)(f)
			f.files = f.files[1:]
		}, "", ""},
		{"the terms were cut short, and extended again", func(f *fixture) {
			*f = *newFixtureOf(t, `{"roll_keep":3}`, 1)
			sealed(50, `"msg":"opened","terms":{"roll_keep":1}`)(f)
			sealed(60, `"msg":"opened","terms":{"roll_keep":3}`)(f)
			f.files = f.files[1:]
		}, "access-1.log:1 incomplete", "in 3 files besides the newest, 0 for any number; access-2.log:71 cuts that short"},
		{"terms that nobody signed", func(f *fixture) {
			*f = *newFixtureOf(t, `{"roll_keep":3}`, 1)
			f.files = f.files[1:]
			f.edit(1, func(l []string) []string { return append(l, own(end, `"msg":"opened","terms":{"roll_keep":1}`)) })
		}, "access-1.log:1 seal_missing", "in 3 files"},
		{"the file was deleted", func(f *fixture) {
			sealed(40, `"msg":"deleted","at":"2026-01-01T00:00:00Z"`)(f)
			f.edit(2, func(l []string) []string { return l[at(40):] })
			f.files = f.files[2:]
			os.RemoveAll(f.dir(1))
		}, "access-2.log:1 incomplete", "their file was deleted while it was written"},
		{"more lines than a crash leaves", func(f *fixture) {
			f.edit(2, func(l []string) []string {
				for i := range 8000 - open + 2 { // one of the unsealed lines is excused
					l = append(l, own(end+i, `"msg":"peer"`))
				}
				return l
			})
		}, "access-2.log:121 seal_unsealed", "8001 lines of gw.example/access/2 from number 100 on are in no checkpoint: a crash leaves at most 8000"},
		{"more sealed late than a crash leaves", func(f *fixture) {
			sealed(60, `"msg":"opened","terms":{"lines":100000},"late":{"from":5,"to":8006}`)(f)
		}, "access-2.log:81 seal_unsealed", "a start has sealed 8001 lines of gw.example/access/2 from number 5 on, and no checkpoint vouches for them: a crash leaves at most 8000"},
		{"sealed late under other terms", func(f *fixture) {
			sealed(60, `"msg":"opened","terms":{"every":3600},"late":{"from":5,"to":60}`)(f)
			f.idle = firstSize + 58
		}, "access-2.log:81 incomplete", "a start has sealed 55 lines of gw.example/access/2 from number 5 on, and no checkpoint vouches for them: they span 1h0m"},
		{"the line of the newest checkpoint twice", appended(own(end, `"msg":"checkpoint","size":100`), own(end+1, `"msg":"checkpoint","size":100`)), "", ""},

		{"the file was deleted, and all was there", sealed(40, `"msg":"deleted","at":"2026-01-01T00:00:00Z"`), "", ""},
		{"first lines of the second generation are cut", func(f *fixture) {
			f.edit(2, func(l []string) []string { return slices.Delete(l, at(0), at(7)) })
		}, "access-2.log:21 seal_missing", "lines 0 to 6"},
		{"the log was set back", sealed(0, first("the log has 1530 lines of the 3703 that were signed", 0)), "access-2.log:21 seal_reset", "1530 lines of the 3703"},
		{"too much would be sealed late", sealed(0, first("8001 lines from line 1 on, the first in access.log, have no checkpoint: a crash leaves at most 8000", 0)), "access-2.log:21 seal_reset", "8001 lines"},
		{"the chain names another last checkpoint", sealed(0, first("new key", 250)), "access-2.log:21 seal_head", "has 250 lines, and one of 300 is signed"},
		{"the chain names another root", sealed(0, first("new key", 300)), "access-2.log:21 seal_fork", "from number 0 to 299"},
		{"a line behind an ended generation", func(f *fixture) {
			f.edit(2, func(l []string) []string { return slices.Insert(l, at(0), madeUp(firstSize), madeUp(firstSize+1)) })
		}, "access-2.log:21 incomplete", "2 lines of gw.example/access/1 from number 300 on"},
		{"lines of an hour behind an ended generation", func(f *fixture) {
			f.edit(2, func(l []string) []string { return slices.Insert(l, at(0), madeUp(firstSize), madeUp(firstSize+1)) })
			f.idle = firstSize + 2
		}, "access-2.log:21 seal_unsealed", "they span 1h0m1s"},
		{"lines behind the orderly end of an ended generation", func(f *fixture) {
			f.replace(1, firstSize-1, string(evidence.Splice([]byte(`{"logger":"crawlgate.evidence","msg":"closed"}`), id(1), firstSize-1)))
			checkpoints := f.checkpoints(1)
			checkpoint, _ := evidence.ReadClaim(checkpoints[len(checkpoints)-1])
			sealed(0, fmt.Sprintf(`"msg":"opened","reason":"new key","previous":"%s","size":%d,"root":"%s"`, id(1), checkpoint.Size, checkpoint.Root))(f)
			f.edit(2, func(l []string) []string { return slices.Insert(l, at(0), madeUp(firstSize)) })
		}, "access-2.log:21 seal_unsealed", "1 lines of gw.example/access/1 from number 300 on are after its end at access-2.log:20"},
		{"a line behind the end, without a number", appended("{\"robots\":{}}\n"), "access-2.log:127 seal_extra", "no seal"},
		{"an orderly end that is not sealed itself", appended(own(end, `"msg":"closed"`), own(end+1, `"msg":"checkpoint","size":1`), own(end+2, `"robots":{},"msg":"closed"`)), "", ""},
		{"lines behind an orderly end that is sealed", func(f *fixture) {
			sealed(secondSize-1, `"msg":"closed"`)(f)
		}, "access-2.log:121 seal_unsealed", "5 lines of gw.example/access/2 from number 100 on are after its end at access-2.log:120"},
		{"sealed lines behind an orderly end", sealed(50, `"msg":"closed"`), "access-2.log:73 seal_unsealed", "from number 52 on are after its end at access-2.log:71"},
		{"lines of the writer behind an orderly end", func(f *fixture) {
			sealed(secondSize-1, `"msg":"closed"`)(f)
			f.edit(2, func(l []string) []string {
				return append(l[:at(secondSize)], own(secondSize, `"msg":"checkpoint","size":100`))
			})
		}, "", ""},
		{"killed before the checkpoint of a start", func(f *fixture) {
			sealed(secondSize-1, `"msg":"closed"`)(f)
			f.edit(2, func(l []string) []string {
				return append(l[:at(secondSize)], own(end-open, `"msg":"checkpoint","size":100`), `{"level":"inf`+"\n", own(end-open+2, `"msg":"opened"`), own(end-open+3, `"robots":{}`))
			})
		}, "", ""},
		{"a generation that is gone with its state", func(f *fixture) {
			checkpoints := f.checkpoints(1)
			checkpoint, _ := evidence.ReadClaim(checkpoints[len(checkpoints)-1])
			sealed(0, fmt.Sprintf(`"msg":"opened","reason":"new key","terms":{"roll_keep":1},"previous":"%s","size":%d,"root":"%s"`, id(1), checkpoint.Size, checkpoint.Root))(f)
			f.edit(2, func(l []string) []string { return l[at(0):] })
			f.files = f.files[2:]
			os.RemoveAll(f.dir(1))
		}, "access-2.log:1 seal_missing", "the first 300 lines of gw.example/access/1 are missing"},
		{"a line that tells of the checkpoint once more, behind old lines", func(f *fixture) {
			f.idle = firstSize + secondSize + open
			f.edit(2, func(l []string) []string { return append(l, own(end, `"msg":"checkpoint","size":100`)) })
		}, "access-2.log:121 incomplete", "they span 1h0m5s"},
		{"lines that wait long for a checkpoint", func(f *fixture) { f.idle = firstSize + secondSize + open }, "access-2.log:121 incomplete", "they span 1h0m5s, and a checkpoint comes within 1m0s"},
		{"a log that was idle before lines that wait", func(f *fixture) { f.idle = firstSize + secondSize + 1 }, "", ""},
		{"a log in local time, west of Greenwich", func(f *fixture) { f.zone = 10 * 3600 }, "", ""},
		{"a log in local time, east of Greenwich", func(f *fixture) { f.zone = -10 * 3600 }, "", ""},
		{"a late seal of an hour", func(f *fixture) { f.idle = tornAt - 20 }, "access-1.log:12 incomplete", "a start has sealed 11 lines of gw.example/access/1 from number 140 on, and no checkpoint vouches for them: they span 1h0m47s"},
		{"the log was opened again", func(f *fixture) {
			sealed(secondSize-2, `"msg":"closed"`)(f)
			sealed(secondSize-1, `"msg":"opened"`)(f)
		}, "", ""},
	} {
		f := newFixture(t)
		tt.change(f)
		var said []string
		f.said = &said
		found, _ := f.check(Config{})
		if got := strings.Join(found, ", "); got != tt.want || !strings.Contains(strings.Join(said, "\n"), tt.says) {
			t.Errorf("%s: found %q, want %q: %s", tt.name, got, tt.want, said)
		}
	}
}

// TestKeyGone checks that if the key beside the log is gone, a key that was kept elsewhere is
// enough.
func TestKeyGone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	os.Remove(filepath.Join(f.dir(2), "vkey"))
	os.RemoveAll(f.dir(1))
	found, totals := f.check(Config{Keys: []string{f.keys[2].public}})
	if i := len(totals.Logs) - 1; slices.ContainsFunc(found, func(at string) bool { return strings.HasPrefix(at, "access-2") }) || totals.Logs[i].Sealed != secondSize || totals.Logs[i].Key != f.keys[2].public {
		t.Errorf("findings %v, totals %+v", found, totals)
	}
	if found, _ := f.check(Config{Keys: []string{f.keys[1].public}}); len(found) == 0 {
		t.Error("another key is accepted")
	}
	if _, err := New(t.Context(), Config{Folders: []string{f.folder}}, nil); err == nil {
		t.Error("no key is required")
	}
}

// TestKeptElsewhere checks that a key and a checkpoint from elsewhere reveal a log that was
// rewritten as a whole.
func TestKeptElsewhere(t *testing.T) {
	t.Parallel()
	honest := newFixture(t)
	checkpoint := honest.read(1, "heads")
	checkpoint = checkpoint[bytes.LastIndex(checkpoint[:len(checkpoint)-3], []byte(evidence.CheckpointEnd))+3:]
	single := bytes.TrimSuffix(checkpoint, []byte(evidence.CheckpointEnd))
	cfg := Config{Keys: []string{honest.key, honest.keys[2].public}, Checkpoints: []string{kept(t, single)}}

	// For a fork, the message says up to which line the logs agree.
	forked := newFixture(t)
	forked.files = nil
	var said []string
	forked.said = &said
	var edge evidence.Tree
	var checkpoints []byte
	for seq, leaf := range slices.Collect(slices.Chunk(forked.leaves(1), tlog.HashSize)) {
		if seq == 160 {
			leaf = make([]byte, tlog.HashSize)
		}
		edge.Append(tlog.Hash(leaf))
		if n := seq + 1; n == 100 || n == 150 || n == 250 {
			checkpoints = append(checkpoints, forked.sign(1, edge)...)
		}
	}
	if found, _ := forked.check(Config{Checkpoints: []string{kept(t, checkpoints)}}); len(found) == 0 || !strings.Contains(said[0], "from number 150 to 249") {
		t.Errorf("with a fork: findings %v, messages %v", found, said)
	}
	if found, totals := honest.check(cfg); len(found) > 0 || !totals.Logs[0].KeyGiven {
		t.Errorf("with an honest log: findings %v, totals %+v", found, totals)
	}

	// The log is cut, and its leaves and checkpoints with it.
	f := newFixture(t)
	f.files = f.files[:1]
	f.edit(0, func(l []string) []string { return l[:50] })
	f.writeLeaves(1, f.leaves(1)[:32*50])
	checkpoints = f.read(1, "heads")
	f.write(1, "heads", checkpoints[:bytes.Index(checkpoints, []byte(evidence.CheckpointEnd))+3])
	os.RemoveAll(f.dir(2))
	if found, _ := f.check(Config{}); len(found) > 0 {
		t.Errorf("without a checkpoint from elsewhere: findings %v, want none", found)
	}
	if found, _ := f.check(cfg); !slices.Equal(found, []string{"access-0.log:50 seal_tail"}) {
		t.Errorf("with a truncated log: findings %v, want seal_tail", found)
	}

	// Another key signs another log.
	f = newFixture(t)
	f.files = nil
	rand := bytes.NewReader(bytes.Repeat([]byte{7}, 100))
	secret, public, err := note.GenerateKey(rand, id(1))
	if err != nil {
		t.Fatal(err)
	}
	f.keys[1] = signer{secret, public}
	f.write(1, "vkey", []byte(public))
	var e evidence.Tree
	e.Append(tlog.Hash{})
	f.write(1, "heads", f.sign(1, e))
	found, _ := f.check(Config{Keys: cfg.Keys})
	if len(found) == 0 || found[0] != "heads:1 seal_head" {
		t.Errorf("with another key: findings %v, want seal_head", found)
	}
}

// FuzzTampering checks that each change of one byte in the sealed lines is found.
func FuzzTampering(f *testing.F) {
	f.Add(uint16(5000), uint8('x'))
	f.Add(uint16(0), uint8('\n'))
	f.Add(uint16(139), uint8('}'))
	fixed := newFixture(f)
	honest := fixed.files[0].text
	f.Fuzz(func(t *testing.T, at uint16, value uint8) {
		changed := []byte(honest)
		i := int(at) % len(changed)
		if changed[i] == value {
			return
		}
		changed[i] = value
		fixed.tb = t
		fixed.files[0].text = string(changed)
		if found, _ := fixed.check(Config{}); len(found) == 0 {
			t.Errorf("changing byte %d to %q is not found", i, value)
		}
	})
}

// FuzzLines checks that each operation on the lines that a checkpoint covers is found.
func FuzzLines(f *testing.F) {
	for op := range uint8(5) {
		f.Add(op, uint16(10), uint16(11))
		f.Add(op, uint16(tornAt), uint16(60))
		f.Add(op, uint16(firstSize), uint16(200))
		f.Add(op, uint16(firstSize+20), uint16(firstSize+90))
	}
	fixed := newFixture(f)
	var honest []string
	for _, file := range fixed.files {
		honest = append(honest, strings.SplitAfter(strings.TrimSuffix(file.text, "\n"), "\n")...)
	}
	f.Fuzz(func(t *testing.T, op uint8, a, b uint16) {
		lines := slices.Clone(honest)
		const covered = firstSize + secondSize
		i, j := 1+int(a)%(covered-1), 1+int(b)%(covered-1)
		made := `{"msg":"handled request","made":"up"}`
		switch op % 5 {
		case 0:
			lines = slices.Delete(lines, i, min(i+1+int(b)%20, covered))
		case 1:
			lines[i], lines[j] = lines[j], lines[i]
		case 2:
			lines = slices.Insert(slices.Delete(lines, i, i+1), j, honest[i])
		case 3:
			lines = slices.Insert(lines, j, honest[i])
		case 4: // forged: with a number that exists, that is missing, or after the end
			if b%5 > 0 {
				made = string(evidence.Splice([]byte(made), id(1+int(b)%2), int64(b)))
			}
			lines = slices.Insert(lines, i, strings.TrimSuffix(made, "\n")+"\n")
		}
		if slices.Equal(lines, honest) {
			return
		}
		fixed.tb, fixed.files = t, []file{{"access.log", strings.Join(lines, "")}}
		if found, _ := fixed.check(Config{}); len(found) == 0 {
			t.Errorf("operation %d on lines %d and %d is not found", op%5, i+1, j+1)
		}
	})
}
