package sealer

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// rotator writes a file like timberjack: it renames the file when it is full, begins the new one
// without O_APPEND, and compresses the old one.
type rotator struct {
	name string
	most int64 // most bytes of a file; 0 for no limit
	pack bool
	f    *os.File
	size int64
	n    int

	fails func(b []byte) (wrote int, err error) // simulates a full disk; a nil error means that there is room
}

func (r *rotator) open() (io.WriteCloser, error) {
	f, err := os.OpenFile(r.name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	r.f = f
	info, err := f.Stat()
	r.size = info.Size()
	return r, err
}

func (r *rotator) Close() error { return r.f.Close() }

func (r *rotator) Write(b []byte) (int, error) {
	if r.most > 0 && r.size+int64(len(b)) > r.most {
		if err := r.rotate(); err != nil {
			return 0, err
		}
	}
	if r.fails != nil {
		if n, err := r.fails(b); err != nil {
			_, _ = r.f.Write(b[:n])
			r.size += int64(n)
			return n, err
		}
	}
	n, err := r.f.Write(b)
	r.size += int64(n)
	return n, err
}

func (r *rotator) rotate() error {
	r.f.Close()
	var old string
	for old == "" || exists(old) || exists(old+".gz") {
		r.n++
		old = strings.TrimSuffix(r.name, ".log") + fmt.Sprintf("-2026-01-01T00-00-00.%03d-size.log", r.n)
	}
	if err := os.Rename(r.name, old); err != nil {
		return err
	}
	if r.pack {
		packFile(old)
	}
	f, err := os.OpenFile(r.name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	r.f, r.size = f, 0
	return err
}

func exists(name string) bool { _, err := os.Stat(name); return err == nil }

func packFile(name string) {
	text, err := os.ReadFile(name)
	if err != nil {
		panic(err)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(text)
	z.Close()
	if err := os.WriteFile(name+".gz", b.Bytes(), 0o600); err != nil {
		panic(err)
	}
	os.Remove(name)
}

// bench is a log in a folder, with the events that its gateway reported.
type bench struct {
	t      testing.TB
	dir    string
	config Config
	rot    *rotator

	mu     sync.Mutex
	events []Event
}

func newBench(tb testing.TB) *bench {
	tb.Helper()
	b := &bench{t: tb, dir: tb.TempDir()}
	file := filepath.Join(b.dir, "access.log")
	b.rot = &rotator{name: file}
	b.config = Config{
		Gateway: "gw1.example", Name: "access", File: file, State: filepath.Join(b.dir, "evidence"),
		Terms: evidence.Terms{Every: 3600, Lines: 1 << 40}, Open: b.rot.open, Report: b.report,
	}
	return b
}

func (b *bench) report(e Event) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.events = append(b.events, e)
}

func (b *bench) told(message string) (e Event, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range slices.Backward(b.events) {
		if e.Message == message {
			return e, true
		}
	}
	return e, false
}

func (b *bench) open() *Log {
	b.t.Helper()
	l, err := Open(b.config)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// kill leaves a log like kill -9: written bytes stay, and nothing else happens.
func (b *bench) kill(l *Log) {
	b.t.Helper()
	l.stop()
	l.running.Wait()
	if err := l.release(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) write(l *Log, lines ...string) {
	b.t.Helper()
	for _, line := range lines {
		if _, err := l.Write([]byte(line + "\n")); err != nil {
			b.t.Fatal(err)
		}
	}
}

func (b *bench) flush(l *Log) {
	b.t.Helper()
	if err := l.flush(); err != nil {
		b.t.Fatal(err)
	}
}

// lastWait is how long a process that ends waits.
const lastWait = 5 * time.Second

func (b *bench) close(l *Log) {
	b.t.Helper()
	if err := l.Close(lastWait); err != nil {
		b.t.Fatal(err)
	}
}

func entry(i int) string {
	return fmt.Sprintf(`{"level":"info","ts":1700000000.%d,"logger":"http.log.access","msg":"handled request","status":200}`, i)
}

// lines returns all lines of the log, and where files end inside a line.
func (b *bench) lines() (lines []string) {
	b.t.Helper()
	names, err := LogFiles(b.config.File)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		if strings.HasSuffix(name, ".gz") {
			z, err := gzip.NewReader(bytes.NewReader(text))
			if err != nil {
				b.t.Fatal(err)
			}
			text, _ = io.ReadAll(z)
		}
		for line := range strings.Lines(string(text)) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// verify recomputes all checkpoints of a generation from the lines from first on. It uses the
// stored hashes of package tlog, which the writer does not use. It returns the number of lines in
// the tree of the newest checkpoint.
func (b *bench) verify(generation int, first int) (signed int64) {
	b.t.Helper()
	lines := b.lines()[first:]
	dir := filepath.Join(b.config.State, "access", fmt.Sprint(generation))
	stored := map[int64]tlog.Hash{}
	reader := tlog.HashReaderFunc(func(indexes []int64) (hashes []tlog.Hash, err error) {
		for _, i := range indexes {
			hashes = append(hashes, stored[i])
		}
		return hashes, nil
	})
	for i, line := range lines {
		id, seq, ok := evidence.ReadSeal([]byte(line))
		if ok && !strings.HasSuffix(id, fmt.Sprint("/", generation)) {
			lines = lines[:i]
			break
		}
		if ok && seq != int64(i) {
			b.t.Fatalf("line %d has the number %d: %s", i, seq, line)
		}
		hashes, _ := tlog.StoredHashes(int64(i), []byte(line), reader)
		for k, h := range hashes {
			stored[tlog.StoredHashIndex(0, int64(i))+int64(k)] = h
		}
	}
	vkey, _ := os.ReadFile(filepath.Join(dir, vkeyFile))
	verifier, err := note.NewVerifier(strings.TrimSpace(string(vkey)))
	if err != nil {
		b.t.Fatal(err)
	}
	checkpoints, err := os.ReadFile(filepath.Join(dir, checkpointsFile))
	if err != nil {
		b.t.Fatal(err)
	}
	kept := map[int64]bool{}
	for checkpoint, err := range evidence.ReadCheckpoints(bytes.NewReader(checkpoints), note.VerifierList(verifier)) {
		if err != nil {
			b.t.Fatal(err)
		}
		// A cosigned copy comes when its witnesses have answered, which may be after the next
		// checkpoint.
		if checkpoint.Size > int64(len(lines)) || checkpoint.Size < signed && !kept[checkpoint.Size] {
			b.t.Fatalf("a checkpoint covers %d of %d lines, after one of %d lines", checkpoint.Size, len(lines), signed)
		}
		kept[checkpoint.Size] = true
		if root, _ := tlog.TreeHash(checkpoint.Size, reader); root != checkpoint.Root {
			b.t.Fatalf("the checkpoint of %d lines has another root", checkpoint.Size)
		}
		signed = max(signed, checkpoint.Size)
	}
	client := tlog.TileHashReader(newest(b.t, checkpoints, verifier), evidence.Tiles(dir))
	for i := range signed {
		at := tlog.StoredHashIndex(0, i)
		if got, err := client.ReadHashes([]int64{at}); err != nil || got[0] != stored[at] {
			b.t.Fatalf("leaf %d is not the hash of its line: %v", i, err)
		}
	}
	b.noLeftovers(dir, signed)
	return signed
}

func newest(tb testing.TB, checkpoints []byte, verifier note.Verifier) (tree tlog.Tree) {
	tb.Helper()
	for checkpoint, err := range evidence.ReadCheckpoints(bytes.NewReader(checkpoints), note.VerifierList(verifier)) {
		if err == nil && checkpoint.Size > tree.N {
			tree = tlog.Tree{N: checkpoint.Size, Hash: checkpoint.Root}
		}
	}
	return tree
}

// noLeftovers checks that `checkpoint` is the newest signed one, that all its tiles exist under
// their names, and that few replaced tiles are left.
func (b *bench) noLeftovers(dir string, size int64) {
	b.t.Helper()
	h, err := evidence.ReadClaim(string(must(os.ReadFile(filepath.Join(dir, "checkpoint")))))
	if err != nil || h.Size != size {
		b.t.Fatalf("the file checkpoint covers %d lines, but the newest %d: %v", h.Size, size, err)
	}
	for _, tile := range tlog.NewTiles(evidence.TileHeight, 0, size) {
		if path := (evidence.Tile{Tile: tile}).Path(); !exists(filepath.Join(dir, path)) {
			b.t.Fatalf("there is no %s", path)
		}
	}
	filepath.WalkDir(filepath.Join(dir, "tile"), func(path string, d os.DirEntry, err error) error {
		if strings.HasSuffix(path, ".p") && exists(strings.TrimSuffix(path, ".p")) && len(must(os.ReadDir(path))) > 60 {
			b.t.Fatalf("%s has tiles of older checkpoints", path)
		}
		return err
	})
}

// snapshot returns the contents of all files of a folder.
func (b *bench) snapshot() map[string][]byte {
	files := map[string][]byte{}
	filepath.WalkDir(b.dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			files[strings.TrimPrefix(path, b.dir)], err = os.ReadFile(path)
		}
		return err
	})
	return files
}

// restore restores the contents of the folder.
func (b *bench) restore(files map[string][]byte) {
	b.t.Helper()
	for _, e := range must(os.ReadDir(b.dir)) {
		os.RemoveAll(filepath.Join(b.dir, e.Name()))
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		os.MkdirAll(filepath.Dir(b.dir+name), 0o700)
		if err := os.WriteFile(b.dir+name, files[name], 0o600); err != nil {
			b.t.Fatal(err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
