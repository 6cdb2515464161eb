package egress

import (
	"bytes"
	"io"
	"net/http"
	"sync"
	"time"
)

// requestBody is the client's body on its way to the origin. It counts bytes, remembers why reading
// failed, and hands the trailers over at the end. It can be shut, because the transport may go on
// reading after the handler has returned.
type requestBody struct {
	src     io.Reader     // nil without a body
	watch   *watch        // of the exchange; runs until the body is written or the response begins
	limit   time.Duration // for the whole body; 0 for none
	trailer func()        // called once, at the end of the body, before the reader learns of it

	keeping bool   // keep the bytes read, up to maxKept, to send them again
	kept    []byte // the bytes kept

	reading  chan struct{} // full while a read is in progress; nil without a body
	mu       sync.Mutex
	begun    bool
	n        int64
	failed   error
	ended    bool // all of it was read
	shut     bool
	answered bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.reading <- struct{}{}
	defer func() { <-b.reading }()
	if !b.begin() {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.src.Read(p)
	if err == io.EOF && b.trailer != nil {
		b.trailer()
		b.trailer = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += int64(n)
	if b.keeping = b.keeping && len(b.kept)+n <= maxKept; b.keeping {
		b.kept = append(b.kept, p[:n]...)
	} else {
		b.kept = nil
	}
	b.ended = b.ended || err == io.EOF
	switch {
	case b.answered:
		b.watch.touch(n)
	case err == nil:
		b.watch.turn(theOrigin, n)
	case err == io.EOF:
		b.watch.turn(theOrigin, n)
		b.watch.setDeadline(time.Time{})
	default:
		b.watch.stop()
	}
	// When the context ends, the transport may shut the body before the read that timed out returns.
	if err != nil && err != io.EOF && (!b.shut || isTimeout(err)) {
		b.failed = err
	}
	return n, err
}

// maxKept bounds the bytes of a body that are kept in case the origin does not process the request.
const maxKept = 64 << 10

// rewind makes the body start from its beginning once more, and reports whether it can. No read may
// be in progress.
func (b *requestBody) rewind() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.keeping || b.failed != nil {
		return false
	}
	b.src = io.MultiReader(bytes.NewReader(b.kept), b.src)
	b.keeping, b.kept, b.shut = false, nil, false
	b.watch.start(nobody, b.watch.rate)
	return true
}

// begin reports whether the body may be read. If it may, the turn is the client's.
func (b *requestBody) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return false
	}
	if b.answered {
		return true
	}
	if !b.begun && b.limit > 0 {
		b.watch.setDeadline(time.Now().Add(b.limit))
	}
	b.begun = true
	b.watch.turn(theClient, 0)
	return true
}

// written records that the origin has taken the whole request.
func (b *requestBody) written() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.answered {
		b.watch.stop()
	}
}

// settleTime bounds the wait for a read that has already failed.
const settleTime = time.Second

// settle waits for the read in progress, if there is one. The server ends the request's context
// from within the read that fails, so the transport may give up before the body knows why.
func (b *requestBody) settle() {
	if b.reading == nil {
		return
	}
	select {
	case b.reading <- struct{}{}:
		<-b.reading
	case <-time.After(settleTime):
	}
}

// Close stops the reading. It does not close the client's body: that would read the rest of it, and
// block while a client that waits for 100 Continue holds it back. The server closes it later.
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	if !b.answered {
		b.watch.stop()
	}
	return nil
}

// answer records that the response has begun. From then on the watch belongs to the response.
func (b *requestBody) answer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered, b.keeping, b.kept = true, false, nil
	b.watch.setDeadline(time.Time{})
}

// state returns the number of bytes read, and the error that ended the reading, if any.
func (b *requestBody) state() (int64, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n, b.failed
}

// left reports whether some of the body may not have been read.
func (b *requestBody) left() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.src != nil && !b.ended
}

const (
	// rateWindow is the time over which a rate is averaged, because a crawl has bursts and pauses. It
	// is also the shortest grace period.
	rateWindow = time.Minute
	// rateTick bounds how late a low rate is noticed.
	rateTick = rateWindow / 4
	// maxBytes bounds the byte count of a window, so that the seconds computed from it do not
	// overflow.
	maxBytes = 1 << 32
)

// party is one end of an exchange.
type party uint8

const (
	nobody party = iota // the exchange waits for a connection or an answer
	theClient
	theOrigin
)

// watch notices that an exchange stalls or is too slow. Time counts for the party whose turn it is:
// the client's to send or to take bytes, or the origin's. It calls ended, once, when
//
//   - a turn that is not the client's lasts for idle (the server itself limits idle clients);
//   - all turns of one party together last for rateWindow, and fewer bytes than rate in that time
//     have passed, or are on their way;
//   - the deadline of the request's body has passed.
//
// The methods are safe for concurrent use. A watch that was not started notices nothing.
type watch struct {
	idle  time.Duration
	ended func(cause error)
	tell  func(n int) // gets the number of all bytes; may be nil

	mu       sync.Mutex
	rate     int64       // bytes per second; 0 means no limit
	timer    *time.Timer // nil while it does not run
	deadline time.Time   // zero means none
	now      party       // whose turn it is
	since    time.Time   // when the turn began
	spent    [3]time.Duration
	bytes    int64 // in this window
	passed   int64 // outside of the turns
}

// start runs the watch. A new window begins with the turn of p.
func (w *watch) start(p party, rate int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rate, w.now, w.since = rate, p, time.Now()
	w.spent, w.bytes = [3]time.Duration{}, 0
	if w.timer == nil {
		w.timer = time.AfterFunc(w.left(w.since), w.check)
	}
}

func (w *watch) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer != nil {
		w.timer.Stop()
		w.timer = nil
	}
}

// turn passes the turn to p, which has n bytes to take from the other party.
func (w *watch) turn(p party, n int) {
	w.note(n)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pass(p, n)
}

// touch records n bytes that passed outside of the turns.
func (w *watch) touch(n int) {
	w.note(n)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.passed += int64(n)
	w.pass(w.now, n)
}

// note tells of n bytes.
func (w *watch) note(n int) {
	if w.tell != nil && n > 0 {
		w.tell(n)
	}
}

func (w *watch) pass(p party, n int) {
	now := time.Now()
	spent := &w.spent[w.now]
	*spent += now.Sub(w.since)
	w.bytes = min(w.bytes+int64(n), maxBytes)
	if *spent >= rateWindow && float64(w.bytes) >= float64(w.rate)*spent.Seconds() {
		w.spent, w.bytes = [3]time.Duration{}, int64(n)
	}
	w.now, w.since = p, now
}

// setDeadline sets the deadline of the request's body; the zero time removes it.
func (w *watch) setDeadline(at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.deadline = at; w.timer != nil {
		w.timer.Reset(w.left(time.Now()))
	}
}

func (w *watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		return
	}
	now := time.Now()
	if cause := w.fault(now); cause != nil {
		w.timer = nil
		w.ended(cause)
		return
	}
	w.timer.Reset(w.left(now))
}

// fault returns the error for a limit that is exceeded at the given time, or nil.
func (w *watch) fault(now time.Time) error {
	switch {
	case !w.deadline.IsZero() && !now.Before(w.deadline):
		return errBodyTimeout
	case w.now != theClient && !now.Before(w.since.Add(w.idle)):
		return errStalled
	case w.now == nobody || w.rate == 0 || now.Before(w.slow()):
		return nil
	case w.now == theClient:
		return errSlowClient
	default:
		return errSlowOrigin
	}
}

// slow returns the time at which the turn will have lasted too long for the bytes of the window.
func (w *watch) slow() time.Time {
	least := time.Duration(w.bytes) * time.Second / time.Duration(w.rate)
	return w.since.Add(max(rateWindow, least) - w.spent[w.now])
}

// left returns how long no limit can be exceeded, as far as is known now: the next turn may have
// little time left in its window.
func (w *watch) left(now time.Time) time.Duration {
	left := w.idle
	if w.now != theClient {
		left = w.since.Add(w.idle).Sub(now)
	}
	if !w.deadline.IsZero() {
		left = min(left, w.deadline.Sub(now))
	}
	if w.rate > 0 {
		left = min(left, rateTick)
		if w.now != nobody {
			left = min(left, w.slow().Sub(now))
		}
	}
	return max(left, 0)
}
