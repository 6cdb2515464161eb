package sealer

import (
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
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// Config says how a log is sealed.
type Config struct {
	// Gateway and Name are the first parts of the log ID.
	Gateway string
	Name    string
	// File is the log. Open opens the writer that appends to it and may rotate it. It may be called
	// again after the writer was closed. Rotated files have names like Caddy's.
	File string
	Open func() (io.WriteCloser, error)
	// State is the folder for the state of logs. Key is the file of the private key; if empty, it is
	// the file key in the log's part of the state folder.
	State string
	Key   string
	// Terms says when new lines get a checkpoint, and which files Open keeps.
	Terms evidence.Terms
	// Checkpoints is a file for a second copy of all checkpoints, or empty.
	Checkpoints string
	// Witnesses cosign the checkpoints. A checkpoint that no witness cosigns is reported.
	Witnesses []Witness
	Transport http.RoundTripper // to the witnesses; nil for the default
	// Report receives events for the operator. It is never called under a lock of the log.
	Report func(Event)
}

const (
	vkeyFile        = "vkey"
	checkpointsFile = "heads"
	maxPending      = 1 << 20 // leaves held in memory while they cannot be written

	newestFile = "checkpoint"
)

// Log is a sealed access log. It is safe for concurrent use.
type Log struct {
	config Config
	dir    string // of this log in the state folder
	key    ed25519.PrivateKey
	id     string
	folder string // of the generation
	signer signer
	vkey   string
	lock   *os.File
	synced []string // rotated files that were synced, sorted; for the flusher

	wake    chan struct{} // to sign a checkpoint now
	cosign  chan struct{} // to have the newest checkpoint cosigned
	stop    context.CancelFunc
	running sync.WaitGroup

	patience time.Duration // how long a disk may take before the log counts as not sealed

	flushing   sync.Mutex // held to write the state; taken before mu
	tiles      *tileFiles // under flushing
	newestSize int64      // of the checkpoint that clients of the tiles see; under flushing

	mu           sync.Mutex
	dest         io.WriteCloser
	file         *os.File // the file that dest writes: its size is compared with end
	end          int64    // where the file should end, after our writes
	tail         []byte   // a last line without its newline, after a failed write
	buf          []byte
	size         int64 // leaves
	pending      []tlog.Hash
	saved        int64 // leaves that are on disk
	requestLines int64 // lines since the start, without notices
	signed       int64 // requestLines in the newest checkpoint
	fileChanges  int64 // how often another program changed or deleted the file
	deleted      bool  // the file was deleted, and no notice says so yet
	rotated      bool  // no notice in the file has the terms yet
	closed       bool
	failed       atomic.Bool     // writeErr or flushErr is set
	lostLines    evidence.Notice // entries lost since the last notice about them
	dropped      int64           // lines, since the start
	lastStatus   atomic.Pointer[Status]
	writeErr     error
	flushErr     error
	newest       evidence.Checkpoint
	newestTime   time.Time
	witnesses    map[string]WitnessStatus
	unwitnessed  int64
	peerNotes    map[string]bool // checkpoints of peers that the log has
	peersAt      time.Time

	client http.Client // of the witnesses
}

// Write seals and writes one entry. After an error, none or only the beginning of the entry is in
// the log.
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

// signal sends to a channel of capacity 1, unless it is full.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *Log) append(p []byte) error {
	if len(p) > maxLine-256 { // a seal takes less
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

// Open opens a sealed log, or begins to seal one: see recovery.go. It locks out other processes.
func Open(c Config) (*Log, error) {
	if c.Report == nil {
		c.Report = func(Event) {}
	}
	l := &Log{
		config: c, dir: filepath.Join(c.State, c.Name),
		patience: 30 * time.Second, wake: make(chan struct{}, 1), cosign: make(chan struct{}, 1),
		witnesses: make(map[string]WitnessStatus),
		client: http.Client{ // a witness must not redirect
			Transport:     c.Transport,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	if err := l.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("evidence of %s: %w", c.File, err), l.release())
	}
	l.Status() // remembered for when the disk stops answering
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
	if f, err := os.Open(l.config.File); err == nil { // check the lock before anything is written
		if err := errors.Join(lock(f), f.Close()); err != nil {
			return err
		}
	}
	if l.key, err = loadKey(cmp.Or(l.config.Key, filepath.Join(l.dir, "key"))); err != nil {
		return err
	}
	return l.load()
}

// setLogID sets the log ID, the folder and the signer for a generation.
func (l *Log) setLogID(generation int) (err error) {
	l.id = evidence.LogID{Gateway: l.config.Gateway, Log: l.config.Name, Generation: generation}.String()
	l.folder = filepath.Join(l.dir, strconv.Itoa(generation))
	l.signer, l.vkey, err = signerOf(l.id, l.key)
	return err
}

// Close writes the notice that the log is closed, seals and signs all lines, and releases the log.
// It waits up to wait for witnesses to cosign the last checkpoint. If none answers, they cosign the
// first checkpoint after the next start instead.
func (l *Log) Close(wait time.Duration) error {
	l.stop()
	l.running.Wait()
	l.mu.Lock()
	err := l.writeLost()
	if err == nil {
		err = l.writeNotice(evidence.Notice{Msg: "closed", At: timeText(time.Now())})
	}
	l.closed = true // only the notice of the last checkpoint may follow
	l.signed--      // a checkpoint must cover the notice
	l.mu.Unlock()
	err = errors.Join(err, l.Flush())
	if wait > 0 && len(l.config.Witnesses) > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		l.cosignNewest(ctx, true)
	}
	return errors.Join(err, l.release())
}

// Flush seals and signs all lines, and syncs them to the disk.
func (l *Log) Flush() error {
	if err := l.flush(); err != nil {
		return err
	}
	return l.saveNow() // saves the notice of that checkpoint, too
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
