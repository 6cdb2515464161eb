package sealer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/note"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/internal/testcpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSealed checks that checkpoints cover the lines of a log and its notices, over a stop and a
// new start.
func TestSealed(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.open()
	b.write(l, entry(1), entry(2))
	b.flush(l)
	b.write(l, entry(3), "no JSON", "{}")
	b.close(l)
	l = b.open()
	b.write(l, entry(4))
	b.close(l)
	if signed := b.verify(1, 0); signed != 14 {
		t.Errorf("the newest checkpoint is of %d lines, want 14", signed)
	}
	lines := b.lines()
	for i, want := range []string{
		`"terms":{"roll_keep":0,"roll_keep_days":0,"roll_size_mb":0,"every":3600,"lines":1099511627776},"reason":"first","log":"gw1.example/access/1","seq":0}`,
		`"msg":"checkpoint","size":1,`, `"status":200,"log":"gw1.example/access/1","seq":2}`, `"seq":3}`,
		`"msg":"checkpoint","size":4,`, `"seq":5}`, `no JSON`, `{"log":"gw1.example/access/1","seq":7}`, `"msg":"closed","log":"`, `"msg":"checkpoint","size":9,`,
		`"msg":"opened","terms":`, `"msg":"checkpoint","size":11,`, `"seq":12}`, `"msg":"closed","log":"`, `"msg":"checkpoint","size":14,`,
	} {
		if line := regexp.MustCompile(`"at":"[^"]+Z",`).ReplaceAllString(lines[i], ""); !strings.Contains(line, want) {
			t.Errorf("line %d: %s\nwant %s", i, lines[i], want)
		}
	}
	if _, told := b.told("lines that were not sealed when the gateway ended are sealed now"); told || len(lines) != 15 {
		t.Errorf("after Close, lines were sealed late, or there are %d lines, want 15", len(lines))
	}
}

// TestIdle checks that an idle log gets no further checkpoints, and that each line gets one in
// time.
func TestIdle(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		b.config.Terms.Every, b.config.Terms.Lines = 1, 3
		l := b.open()
		time.Sleep(time.Hour)
		if n := len(b.lines()); n != 2 {
			t.Errorf("%d lines after an idle hour, want 2", n)
		}
		b.write(l, entry(1))
		time.Sleep(2 * time.Second)
		if s := l.Status(); s.Unsealed != 0 || s.Size != 4 || time.Since(s.Time) > 2*time.Second {
			t.Errorf("status after 2 s = %+v", s)
		}
		b.write(l, entry(2), entry(3), entry(4))
		synctest.Wait()
		if s := l.Status(); s.Unsealed != 0 || s.Lines != 4 {
			t.Errorf("status after 3 lines = %+v", s)
		}
		b.close(l)
	})
	b.verify(1, 0)
}

// TestRotated checks that files that were rotated and compressed have the lines of one tree.
func TestRotated(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rot.most, b.rot.pack = 1000, true
	for i := range 5 {
		l := b.open()
		for j := range 40 {
			b.write(l, entry(j))
			if j%15 == 7 { // several rotations within a flush
				b.flush(l)
			}
		}
		if i%2 == 0 {
			b.close(l)
		} else {
			b.kill(l)
		}
	}
	b.close(b.open())
	if signed := b.verify(1, 0); signed < 200 {
		t.Errorf("%d lines are signed, want at least 200", signed)
	}
}

// TestTerms checks that each file has a notice with the terms of the log, so that they are known
// when older files have expired.
func TestTerms(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rot.most = 1500
	b.config.Terms.Days = 7
	l := b.open()
	for i := range 30 {
		b.write(l, entry(i))
		b.flush(l)
	}
	b.close(l)
	files := must(LogFiles(b.config.File))
	for _, name := range files[:len(files)-1] {
		if n := strings.Count(string(must(os.ReadFile(name))), `"terms":{"roll_keep":0,"roll_keep_days":7,`); n != 1 {
			t.Errorf("%s has the terms %d times, want once", filepath.Base(name), n)
		}
	}
	if len(files) < 4 {
		t.Errorf("got %d files, want at least 4", len(files))
	}
}

// TestCaughtUp checks that lines that arrive while a slow disk delays a checkpoint get the next one
// at once, if there are enough of them.
func TestCaughtUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config.Terms.Lines = 3
	l := b.open()
	stuck := filepath.Join(l.folder, newestFile+".new") // simulates a slow disk, until it is read
	if err := syscall.Mkfifo(stuck, 0o600); err != nil {
		t.Fatal(err)
	}
	b.write(l, entry(1), entry(2), entry(3))
	for bytes.Count(must(os.ReadFile(filepath.Join(l.folder, checkpointsFile))), []byte(evidence.CheckpointEnd)) < 2 {
		runtime.Gosched() // until the checkpoint is in progress
	}
	for i := range 10 {
		b.write(l, entry(i))
	}
	reader, err := os.Open(stuck)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	for deadline := time.Now().Add(20 * time.Second); l.Status().Unsealed > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d lines still wait for a checkpoint", l.Status().Unsealed)
		}
	}
	b.close(l)
}

// TestFullDisk checks that any part of a line that reaches the disk is in the tree.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	for _, rotate := range []int64{0, 700} {
		t.Run(fmt.Sprint("rotated at ", rotate), func(t *testing.T) { // it waits for the disk most of its time
			t.Parallel()
			for part := range 150 {
				fullDisk(t, rotate, part)
			}
		})
	}
}

func fullDisk(t *testing.T, rotate int64, part int) {
	t.Helper()
	b := newBench(t)
	b.rot.most = rotate
	l := b.open()
	b.write(l, entry(1))
	failing := 2
	b.rot.fails = func(line []byte) (int, error) {
		if failing--; failing < 0 {
			return 0, nil
		}
		return min(part, len(line)), syscall.ENOSPC
	}
	for range 1 + part/3%2 {
		if _, err := l.Write([]byte(entry(2) + "\n")); !errors.Is(err, syscall.ENOSPC) || !l.Failed() {
			t.Fatalf("Write with a full disk: got %v, failed = %t, want ENOSPC and true", err, l.Failed())
		}
	}
	if err := l.saveNow(); err != nil {
		t.Fatal(err)
	}
	b.rot.fails = nil
	switch part % 3 {
	case 1: // the file with the torn line is rotated
		if err := b.rot.rotate(); err != nil {
			t.Fatal(err)
		}
	case 2:
		b.kill(l)
		l = b.open()
	}
	if l.id != "gw1.example/access/1" {
		t.Fatalf("the log's id is %s, want generation 1", l.id)
	}
	b.write(l, entry(3))
	if l.Failed() {
		t.Error("the log still fails once there is room")
	}
	b.flush(l)
	b.verify(1, 0)
	b.write(l, entry(4))
	b.close(l)
	l = b.open()
	b.write(l, entry(5))
	b.close(l)
	b.verify(1, 0)
}

// TestLost checks that when the log can be written again, it reports how many entries are missing
// and since when.
func TestLost(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		l := b.open()
		b.write(l, entry(1))
		room, start := 100, time.Now()
		b.rot.fails = func(line []byte) (int, error) {
			if room -= len(line); room < 0 {
				return max(0, min(room+len(line), len(line))), syscall.ENOSPC
			}
			return 0, nil
		}
		for range 3 {
			if _, err := l.Write([]byte(entry(2) + "\n")); !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
		}
		b.rot.fails = nil
		b.write(l, entry(3), entry(4))
		if s := l.Status(); s.Lost != 3 || s.Error != "" {
			t.Errorf("status: lost = %d, error %q, want 3 and none", s.Lost, s.Error)
		}
		b.close(l)
		lines := b.lines()
		at := func(d time.Duration) string { return start.Add(d).UTC().Format(time.RFC3339Nano) }
		want := fmt.Sprintf(`"msg":"lost","lines":3,"from":"%s","to":"%s","log":"gw1.example/access/1","seq":4}`, at(0), at(2*time.Minute))
		if len(lines) != 9 || !strings.HasSuffix(lines[4], want) || lines[3] != string(evidence.Splice([]byte(entry(2)), l.id, 3))[:100] {
			t.Errorf("want %s: %s", want, strings.Join(lines, "\n"))
		}
	})
	if signed := b.verify(1, 0); signed != 8 {
		t.Errorf("%d lines are signed, want 8", signed)
	}
}

// TestHeldUp checks that Status does not block if a disk does not answer.
func TestHeldUp(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.open()
	b.write(l, entry(1))
	if s := l.Status(); s.Lines != 1 || s.Error != "" {
		t.Errorf("status = %+v, want one line and no error", s)
	}
	frozen := make(chan struct{})
	b.rot.fails = func([]byte) (int, error) {
		<-frozen
		return 0, nil
	}
	var wg sync.WaitGroup
	wg.Go(func() { b.write(l, entry(2)) })
	for l.mu.TryLock() { // until the line is being written
		l.mu.Unlock()
		runtime.Gosched()
	}
	var asking sync.WaitGroup
	for range 2 { // neither waits for the disk
		asking.Go(func() {
			if s := l.Status(); s.Lines != 1 || !strings.Contains(s.Error, "does not answer") {
				t.Errorf("status while the disk does not answer = %+v", s)
			}
		})
	}
	asking.Wait()
	close(frozen)
	wg.Wait()
	if s := l.Status(); s.Lines != 2 || s.Error != "" {
		t.Errorf("status afterwards = %+v", s)
	}
	b.close(l)
}

// TestStateDisk checks that if only the state cannot be written, the log still is. It is sealed as
// soon as the state can be written.
func TestStateDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.open()
	away := l.folder + ".away"
	b.write(l, entry(1))
	if err := os.Rename(l.folder, away); err != nil {
		t.Fatal(err)
	}
	for i := range 3000 { // more than fits into one tile
		b.write(l, entry(i))
	}
	if err := l.flush(); err == nil || !l.Failed() {
		t.Fatalf("flush without a folder: got %v, want an error", err)
	}
	if err := os.Rename(away, l.folder); err != nil {
		t.Fatal(err)
	}
	b.flush(l)
	b.close(l)
	if signed := b.verify(1, 0); signed != 3005 || l.Failed() {
		t.Errorf("%d lines are signed, want 3005, or the log fails", signed)
	}
}

// TestNoRoom checks that leaves that do not fit into memory are read from the log again.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.rot.most, b.rot.pack = 5000, true
	l := b.open()
	b.write(l, entry(1))
	b.flush(l)
	for i := range 100 {
		b.write(l, entry(i))
		if i == 30 {
			l.pending = nil
		}
	}
	b.flush(l)
	b.write(l, entry(2))
	b.close(l)
	if signed := b.verify(1, 0); signed != 107 {
		t.Errorf("%d lines are signed, want 107", signed)
	}
}

// TestDeleted checks that a log that is deleted while it is written begins a new file, and the tree
// continues.
func TestDeleted(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.open()
	b.write(l, entry(1))
	if err := os.Remove(b.config.File); err != nil {
		t.Fatal(err)
	}
	b.write(l, entry(2), entry(3))
	b.flush(l)
	lines := b.lines()
	if len(lines) != 2 || !strings.Contains(lines[0], `"msg":"deleted","at":"`) || !strings.HasSuffix(lines[0], `"seq":5}`) || !strings.HasSuffix(lines[1], `"seq":6}`) {
		t.Errorf("the new file has %q", lines)
	}
	if l.fileChanges == 0 {
		t.Error("the deletion was not counted")
	}
	b.close(l)
	l = b.open()
	if l.id != "gw1.example/access/1" {
		t.Errorf("the log's id is %s, want generation 1", l.id)
	}
	b.close(l)
}

// TestDeletedAndMade checks that a file that was deleted and replaced by the writer does not count
// as rotated. Caddy's writer creates the new file with the first line after a start.
func TestDeletedAndMade(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.open()
	b.write(l, entry(1))
	b.flush(l)
	if err := errors.Join(b.rot.f.Close(), os.Remove(b.config.File)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.rot.open(); err != nil {
		t.Fatal(err)
	}
	b.write(l, entry(2))
	b.flush(l)
	if lines := b.lines(); len(lines) != 3 || !strings.Contains(lines[1], `"msg":"deleted","at":"`) {
		t.Errorf("the new file has %q", lines)
	}
	b.close(l)
}

// TestForeignLine checks that lines of another program are noticed.
func TestForeignLine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	synctest.Test(t, func(t *testing.T) {
		b.config.Terms.Every = 1
		l := b.open()
		b.write(l, entry(1))
		time.Sleep(2 * time.Second)
		appendFile(b.config.File, []byte("from elsewhere\n"))
		b.write(l, entry(2))
		time.Sleep(2 * time.Second)
		if e, told := b.told("file of the access log was changed by another program, or deleted"); !told || !e.Failure {
			t.Errorf("reported %+v, want a failure", e)
		}
		b.write(l, entry(3))
		b.close(l)
		l = b.open()
		if l.id != "gw1.example/access/1" {
			t.Errorf("the log's id is %s, want generation 1", l.id)
		}
		b.close(l)
	})
}

// TestStuckDisk checks that a disk that does not answer is reported, and no line waits for it.
func TestStuckDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	l := b.open()
	l.patience = time.Millisecond
	stuck := filepath.Join(l.folder, newestFile+".new") // simulates a missing disk, until it is read
	if err := syscall.Mkfifo(stuck, 0o600); err != nil {
		t.Fatal(err)
	}
	b.write(l, entry(1))
	flushed := make(chan error)
	go func() { flushed <- l.flush() }()
	for !l.Failed() {
		b.write(l, entry(1))
	}
	reader, err := os.Open(stuck)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := <-flushed; err != nil || l.Failed() {
		t.Errorf("flush = %v, failed = %t, want nil and false", err, l.Failed())
	}
	if _, told := b.told("fsync has taken over 30 s; the access log is still written, but not sealed"); !told {
		t.Error("the slow disk was not reported")
	}
	b.close(l)
	b.verify(1, 0)
}

// TestRefused checks which settings and files a log refuses to open with, and why.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(b *bench)
		want   string
	}{
		"key is no key": {func(b *bench) {
			b.config.Key = filepath.Join(b.dir, "k")
			os.WriteFile(b.config.Key, []byte("hello"), 0o600)
		}, "reading the key " + "DIR/k: it is not PEM with PKCS #8"},
		"key is a folder": {func(b *bench) { b.config.Key = b.dir }, "reading the key: read DIR: is a directory"},
		"gateway":         {func(b *bench) { b.config.Gateway = "a+b" }, `name of the gateway "a+b"`},
		"log":             {func(b *bench) { b.config.Name = "../x" }, `name of the log "../x"`},
		"state is a file": {func(b *bench) { b.config.State = b.config.File; os.WriteFile(b.config.File, nil, 0o600) }, "not a directory"},
		"second":          {func(b *bench) { l := b.open(); b.t.Cleanup(func() { b.close(l) }) }, "another process writes this log"},
		"second with another state": {func(b *bench) {
			l := b.open()
			b.t.Cleanup(func() { b.close(l) })
			other := &rotator{name: b.config.File}
			b.config.State, b.config.Open = b.t.TempDir(), other.open
		}, "locking DIR/access.log: another process writes this log"},
		"second with another state, after a rotation": {func(b *bench) {
			l := b.open()
			b.t.Cleanup(func() { b.close(l) })
			b.rot.rotate()
			b.write(l, entry(1))
			b.flush(l)
			other := &rotator{name: b.config.File}
			b.config.State, b.config.Open = b.t.TempDir(), other.open
		}, "locking DIR/access.log: another process writes this log"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			tt.change(b)
			_, err := Open(b.config)
			want := strings.ReplaceAll(tt.want, "DIR", b.dir)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v\nwant %s", err, want)
			}
		})
	}
}

// TestKeys checks that only its owner may read a new key, and that a key signs under any name.
func TestKeys(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.close(b.open())
	key := must(loadKey(filepath.Join(b.config.State, "access", "key")))
	if info := must(os.Stat(filepath.Join(b.config.State, "access", "key"))); info.Mode() != 0o600 {
		t.Errorf("the key's mode is %v, want 0600", info.Mode())
	}
	signer, vkey, err := signerOf("other.example", key)
	if err != nil || signer.Name() != "other.example" {
		t.Fatal(err)
	}
	signed := must(note.Sign(&note.Note{Text: "text\n"}, signer))
	if _, err := note.Open(signed, note.VerifierList(must(note.NewVerifier(vkey)))); err != nil {
		t.Error(err)
	}
}

// BenchmarkWrite compares a sealed log with one that is not, by time and by CPU time. CPU time
// includes the checkpoints.
func BenchmarkWrite(b *testing.B) {
	line := []byte(strings.TrimSuffix(entry(1), "}") + `,"pad":"` + strings.Repeat("x", 1090) + "\"}\n")
	for _, tt := range []struct {
		name  string
		lines int // a checkpoint
	}{{"plain", 0}, {"sealed", 1000}, {"sealed, one checkpoint", 1 << 40}} {
		b.Run(tt.name, func(b *testing.B) {
			bench := newBench(b)
			bench.config.Terms.Lines = tt.lines
			var w io.Writer
			if tt.lines == 0 {
				plain := must(bench.rot.open())
				defer plain.Close()
				w = plain
			} else {
				l := bench.open()
				defer l.Close(0)
				w = l
			}
			b.ReportAllocs()
			before := testcpu.Used(b)
			for b.Loop() {
				w.Write(line)
			}
			b.ReportMetric(float64(testcpu.Used(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
