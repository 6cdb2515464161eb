// Package sealer seals one access log while it is written: it numbers the lines, keeps the hash of
// each, and signs checkpoints of the tree over them. docs/evidence.md says what that proves, and
// what a crash, a full disk or a lost file does to it.
package sealer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// Config is what a log is sealed with.
type Config struct {
	// Gateway and Name are the first parts of the log's identity.
	Gateway string
	Name    string
	// File is the log. Open opens the writer that appends to it, and rotates it, perhaps; it may be
	// called again after the writer was closed. A rotated file has a name of the form that Caddy
	// gives.
	File string
	Open func() (io.WriteCloser, error)
	// State is the folder of the state of logs, and Key the file of the private key. Empty: key in
	// the log's part of the state folder.
	State string
	Key   string
	// Terms say when a checkpoint is signed, if there are new lines, and what Open keeps.
	Terms evidence.Terms
	// Checkpoints is a file to which all checkpoints are written a second time; empty for none.
	Checkpoints string
	// Witnesses cosign the checkpoints. One that none does is reported.
	Witnesses []Witness
	Transport http.RoundTripper // to the witnesses; nil for the default
	// Report is told what an operator should know, never under a lock of the log.
	Report func(Event)
}

const (
	vkeyFile        = "vkey"
	checkpointsFile = "heads"
	maxPending      = 1 << 20 // leaves held in memory while they cannot be written

	newestFile = "checkpoint"
)

// Log is an access log that is sealed. It is safe for concurrent use.
type Log struct {
	config Config
	dir    string // of this log in the state folder
	key    ed25519.PrivateKey
	id     string
	folder string // of the generation
	signer signer
	vkey   string
	lock   *os.File
	synced []string // rotated files that are on disk, sorted; the flusher's

	wake    chan struct{} // to sign a checkpoint now
	cosign  chan struct{} // to have the newest one cosigned
	stop    context.CancelFunc
	running sync.WaitGroup

	patience time.Duration // with a disk, before the log counts as not sealed

	flushing   sync.Mutex // one at a time who writes the state; taken before mu
	tiles      *tileFiles // for that one, too
	newestSize int64      // of the checkpoint that clients of the tiles see; as tiles

	mu           sync.Mutex
	dest         io.WriteCloser
	file         *os.File // which dest writes: its size tells what has got to the disk
	end          int64    // of the file, by what was written
	tail         []byte   // the last line of the file, where a failed write left it without its end
	buf          []byte
	size         int64 // leaves
	pending      []tlog.Hash
	saved        int64 // leaves that are on disk
	requestLines int64 // lines that are not ours, since the start
	signed       int64 // of them, in the newest checkpoint
	fileChanges  int64 // looks at which the file was not what it had to be
	deleted      bool  // the file was, and no line tells of it yet
	rotated      bool  // no line of the file tells the terms yet
	closed       bool
	failed       atomic.Bool     // is one of these set
	lostLines    evidence.Notice // entries of which no line tells yet
	dropped      int64           // lines, since the start
	lastStatus   atomic.Pointer[Status]
	writeErr     error
	flushErr     error
	newest       evidence.Checkpoint
	newestTime   time.Time
	witnesses    map[string]WitnessStatus
	unwitnessed  int64
	peerNotes    map[string]bool // notes of peers that the log has
	peersAt      time.Time

	client http.Client // of the witnesses
}

// Write seals and writes one entry of the log. An error means that the entry is not in the log, or
// only its beginning.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.writeLost()
	if l.closed {
		err = fmt.Errorf("writing to %s: %w", l.config.File, fs.ErrClosed)
	}
	if err == nil {
		err = l.append(p)
	}
	if err != nil {
		now := timeText(time.Now())
		l.lostLines = evidence.Notice{Msg: "lost", Lines: l.lostLines.Lines + 1, From: cmp.Or(l.lostLines.From, now), To: now}
		l.dropped++
		l.setErrors(err, l.flushErr)
		return 0, err
	}
	l.setErrors(nil, l.flushErr)
	if l.requestLines++; l.requestLines-l.signed == int64(l.config.Terms.Lines) {
		signal(l.wake)
	}
	return len(p), nil
}

// signal fills a channel that holds one signal.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *Log) append(p []byte) error {
	if len(p) > maxLine-256 { // bytes of a seal
		return fmt.Errorf("writing to %s: an entry of %d bytes: want at most %d", l.config.File, len(p), maxLine-256)
	}
	if len(l.tail) > 0 {
		if err := l.appendBytes([]byte("\n")); err != nil {
			return err
		}
	}
	l.buf = evidence.Splice(append(l.buf[:0], p...), l.id, l.size)
	return l.appendBytes(l.buf)
}

// appendBytes writes b, and seals the lines that are in the log thereafter.
func (l *Log) appendBytes(b []byte) error {
	n, err := l.dest.Write(b)
	l.end += int64(n)
	if err != nil || len(l.tail) > 0 { // it has to be known in which file a torn line is
		err = errors.Join(err, l.checkFile())
	}
	l.addLeaves(b[:n])
	if err != nil {
		return fmt.Errorf("writing to %s: %w", l.config.File, err)
	}
	return nil
}

// checkFile compares the file with what was written to it since the last look: meanwhile it may
// have been rotated, deleted, or changed by another program. A look at each line would cost as much
// as its hash.
func (l *Log) checkFile() error {
	stat := syscall.Stat_t{Size: -1, Nlink: 1} // if it cannot be told
	_ = syscall.Fstat(int(l.file.Fd()), &stat)
	switch old := l.file; {
	case stat.Size < l.end && l.followRotation():
		// A file that was rotated, packed and then removed has its last name there.
		if link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", old.Fd())); link == l.config.File+" (deleted)" {
			l.fileChanges++
			l.deleted = true
		}
		_ = old.Close() // it was only looked at
		if len(l.tail) > 0 {
			l.addLeaf(l.tail) // it stays as it is
			l.tail = nil
		}
	case stat.Nlink == 0:
		l.fileChanges++
		if err := l.restore(); err != nil {
			return fmt.Errorf("%s was deleted: %w", l.config.File, err)
		}
		l.deleted = true
	case stat.Size != l.end:
		l.fileChanges++
		l.end = max(stat.Size, 0)
	}
	return nil
}

// followRotation looks whether another file has the name of the log, and goes on at its end.
func (l *Log) followRotation() bool {
	f, err := os.Open(l.config.File)
	if err != nil {
		return false
	}
	info, err := f.Stat()
	known, _ := l.file.Stat() // none at a start
	if err != nil || os.SameFile(known, info) {
		_ = f.Close() // it was only looked at
		return false
	}
	l.file, l.end, l.rotated = f, info.Size(), true
	_ = lock(f) // a file that was rotated in is ours; openLog tells of others
	return true
}

// restore has a new file made in place of one that was deleted.
func (l *Log) restore() error {
	old, err := l.file, l.dest.Close()
	dest, openErr := l.config.Open()
	if err = errors.Join(err, openErr); openErr != nil {
		return err
	}
	if l.dest = dest; !l.followRotation() {
		return errors.Join(err, errNoFile)
	}
	return errors.Join(err, old.Close())
}

var errNoFile = errors.New("the writer has made no file of this name")

// addLeaves takes b, which is now at the end of the file, into the tree.
func (l *Log) addLeaves(b []byte) {
	if len(l.tail) > 0 {
		b = append(l.tail, b...)
		l.tail = nil
	}
	for {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if !ended {
			break
		}
		l.addLeaf(line)
		b = rest
	}
	if len(b) > 0 {
		l.tail = bytes.Clone(b)
	}
}

// addLeaf takes a line into the tree, if there is room in memory: see fillGap.
func (l *Log) addLeaf(line []byte) {
	if l.size++; l.size-l.saved <= maxPending {
		l.pending = append(l.pending, tlog.RecordHash(line))
	}
}

// Open begins to seal a log, or goes on with it: see recovery.go. No other process can then do so.
func Open(c Config) (*Log, error) {
	if c.Report == nil {
		c.Report = func(Event) {}
	}
	l := &Log{
		config: c, dir: filepath.Join(c.State, c.Name),
		patience: 30 * time.Second, wake: make(chan struct{}, 1), cosign: make(chan struct{}, 1),
		witnesses: make(map[string]WitnessStatus),
		client:    http.Client{Transport: c.Transport},
	}
	l.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // a witness has one address
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("evidence of %s: %w", c.File, err), l.release())
	}
	l.Status() // which is told if the disk stops to answer
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.running.Go(func() { l.flushLoop(ctx) })
	if len(c.Witnesses) > 0 {
		l.running.Go(func() { l.cosignLoop(ctx) })
	}
	return l, nil
}

func (l *Log) open() (err error) {
	if err := (evidence.LogID{Gateway: l.config.Gateway, Log: l.config.Name, Generation: 1}).Check(); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(l.dir, 0o700), os.MkdirAll(filepath.Dir(l.config.File), 0o700)); err != nil {
		return err
	}
	if l.lock, err = os.OpenFile(filepath.Join(l.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := lock(l.lock); err != nil {
		return err
	}
	if f, err := os.Open(l.config.File); err == nil { // before anything is written
		if err := errors.Join(lock(f), f.Close()); err != nil {
			return err
		}
	}
	if l.key, err = loadKey(cmp.Or(l.config.Key, filepath.Join(l.dir, "key"))); err != nil {
		return err
	}
	return l.load()
}

// setLogID takes on the identity of a generation.
func (l *Log) setLogID(generation int) (err error) {
	l.id = evidence.LogID{Gateway: l.config.Gateway, Log: l.config.Name, Generation: generation}.String()
	l.folder = filepath.Join(l.dir, strconv.Itoa(generation))
	l.signer, l.vkey, err = signerOf(l.id, l.key)
	return err
}

// Close says that the log is closed, seals and signs what is written, and ends. For so long it
// waits for witnesses of the last checkpoint, which else have it with the first of the next start.
func (l *Log) Close(wait time.Duration) error {
	l.stop()
	l.running.Wait()
	l.mu.Lock()
	err := l.writeLost()
	if err == nil {
		err = l.writeNotice(evidence.Notice{Msg: "closed", At: timeText(time.Now())})
	}
	l.closed = true // but for the line of a checkpoint
	l.signed--      // a checkpoint has to cover that line
	l.mu.Unlock()
	err = errors.Join(err, l.Flush())
	if wait > 0 && len(l.config.Witnesses) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		l.cosignNewest(ctx, true)
	}
	return errors.Join(err, l.release())
}

// Flush seals and signs what is written. All of it is on disk when Flush returns.
func (l *Log) Flush() error {
	if err := l.flush(); err != nil {
		return err
	}
	return l.saveNow() // the last checkpoint's own line
}

func (l *Log) release() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var errs []error
	if l.dest != nil {
		errs = append(errs, l.dest.Close())
	}
	for _, f := range []*os.File{l.file, l.lock} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
