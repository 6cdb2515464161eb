package boltstore

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

const (
	// commitEvery and commitAt say when what is queued is committed.
	commitEvery = 200 * time.Millisecond
	commitAt    = 1000
	// maxQueued and maxQueuedBytes bound what may wait for it, a commit under way
	// included.
	maxQueued      = 10000
	maxQueuedBytes = 64 << 20
	// retryCommit is the pause after a commit that failed.
	retryCommit = time.Second
)

// write is a change that is to be committed.
type write struct {
	origin  origin.Origin
	deleted bool
	record  fetch.Record
	encoded []byte // the record
	saved   time.Time
	number  uint64
}

// newSave checks and encodes a record.
func newSave(r fetch.Record, now time.Time) (*write, error) {
	encoded, err := r.MarshalBinary()
	if err != nil {
		return nil, err
	}
	if _, err := robotscache.VersionOf(r).AppendBinary(nil); err != nil {
		return nil, err
	}
	text, ok := r.Text()
	if ok && sha256.Sum256(text.Body) != text.SHA256 {
		return nil, fmt.Errorf("the record of %s: its text is not the one of its hash", r.Origin)
	}
	return &write{origin: r.Origin, record: r, encoded: encoded, saved: now}, nil
}

// size is what a write counts for in the queue.
func (w *write) size() int {
	text, _ := w.record.Text()
	return 500 + len(w.encoded) + len(text.Body)
}

// writes is the queue between those who save and the one writer. Safe for
// concurrent use.
type writes struct {
	wake   chan struct{} // 1: something was queued
	urgent chan struct{} // 1: there is no time to lose

	mu       sync.Mutex
	closed   bool
	queue    []*write
	bytes    int
	latest   map[origin.Origin]*write // of the queue, by origin
	queued   uint64                   // number of the last write that was queued
	done     uint64                   // and of the last that was committed
	failures uint64                   // commits that failed
	err      error                    // of the last commit; nil if it worked
	changed  chan struct{}            // closed and replaced when done, failures or closed change
}

func newWrites() *writes {
	return &writes{
		wake:    make(chan struct{}, 1),
		urgent:  make(chan struct{}, 1),
		latest:  make(map[origin.Origin]*write),
		changed: make(chan struct{}),
	}
}

// get returns the newest write of o that is not committed, nil if there is none.
func (q *writes) get(o origin.Origin) (*write, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, errClosed
	}
	return q.latest[o], nil
}

// put queues w, waiting for room while there is none.
func (q *writes) put(ctx context.Context, w *write) error {
	size := w.size()
	for {
		q.mu.Lock()
		if q.closed {
			q.mu.Unlock()
			return errClosed
		}
		if err := q.err; err != nil {
			q.mu.Unlock()
			return fmt.Errorf("%w: the last commit failed: %w", robotscache.ErrUnavailable, err)
		}
		if len(q.queue) < maxQueued && q.bytes+size <= maxQueuedBytes || len(q.queue) == 0 {
			q.append(w, size)
			q.mu.Unlock()
			return nil
		}
		changed := q.changed
		q.mu.Unlock()
		signal(q.urgent)
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// append is put when there is room. q.mu is held.
func (q *writes) append(w *write, size int) {
	q.queued++
	w.number = q.queued
	q.queue = append(q.queue, w)
	q.latest[w.origin] = w
	q.bytes += size
	signal(q.wake)
	if len(q.queue) >= commitAt {
		signal(q.urgent)
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// batch returns the writes that are to be committed next, nil if there are none.
func (q *writes) batch() []*write {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queue[:min(len(q.queue), commitAt):min(len(q.queue), commitAt)]
}

// committed takes a batch off the queue.
func (q *writes) committed(batch []*write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, w := range batch {
		q.bytes -= w.size()
		if q.latest[w.origin] == w {
			delete(q.latest, w.origin)
		}
	}
	q.done = batch[len(batch)-1].number
	clear(q.queue[:len(batch)])
	q.queue = q.queue[len(batch):]
	q.err = nil
	q.announce()
}

// failed notes that a commit failed: the batch stays in the queue.
func (q *writes) failed(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.failures++
	q.err = err
	q.announce()
}

func (q *writes) announce() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// flush waits until all that is queued now is committed, or a commit has failed.
func (q *writes) flush(ctx context.Context) error {
	q.mu.Lock()
	closed, target, failures := q.closed, q.queued, q.failures
	q.mu.Unlock()
	if closed {
		return errClosed
	}
	for {
		q.mu.Lock()
		done, failed, cause := q.done >= target, q.failures > failures, q.err
		closed, changed := q.closed, q.changed
		q.mu.Unlock()
		switch {
		case done:
			return nil
		case failed && cause != nil:
			return fmt.Errorf("%w: %w", robotscache.ErrUnavailable, cause)
		case closed:
			return errClosed
		}
		signal(q.urgent)
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// close lets no more writes in. It reports whether it was the first to do so.
func (q *writes) close() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.closed = true
	signal(q.wake)
	signal(q.urgent)
	q.announce()
	return true
}

func (q *writes) isClosed() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.closed
}

// lost returns an error if writes are left when the writer has ended.
func (q *writes) lost() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.queue) == 0 {
		return nil
	}
	return fmt.Errorf("%d records are lost: %w", len(q.queue), q.err)
}
