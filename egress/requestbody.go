package egress

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// requestBody is the client's body on its way to the origin. It counts, remembers why reading failed, hands the
// trailers over at the end and can be shut: the transport may go on reading after the handler has returned.
type requestBody struct {
	src     io.Reader     // nil without a body
	watch   *watch        // of the exchange; runs until the body is written or the response begins
	limit   time.Duration // for the whole body; 0 for none
	trailer func()        // called once, at the end of the body, before the reader learns of it

	mu       sync.Mutex
	begun    bool
	n        int64
	failed   error
	ended    bool // all of it was read
	shut     bool
	answered bool
	reading  bool
	settled  chan struct{} // closed when the read that is under way returns; nil if nobody waits
}

func (b *requestBody) Read(p []byte) (int, error) {
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
	if b.reading = false; b.settled != nil {
		close(b.settled)
		b.settled = nil
	}
	b.n += int64(n)
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
	// A transport that learns first that the context has ended shuts the body while the read that ran out of time returns.
	if err != nil && err != io.EOF && (!b.shut || isTimeout(err)) {
		b.failed = err
	}
	return n, err
}

// begin tells whether the body may be read. If so it is the client's turn.
func (b *requestBody) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.shut {
		return false
	}
	b.reading = true
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

// written tells that the origin has taken the request.
func (b *requestBody) written() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.answered {
		b.watch.stop()
	}
}

// settleTime bounds the wait for a read that has failed already.
const settleTime = time.Second

// settle waits for the read that is under way, if one is. It is for when the server has ended the request's context: it
// does so from within the read that fails, so that the transport may give up before the body knows why.
func (b *requestBody) settle() {
	b.mu.Lock()
	if !b.reading {
		b.mu.Unlock()
		return
	}
	if b.settled == nil {
		b.settled = make(chan struct{})
	}
	settled := b.settled
	b.mu.Unlock()
	timer := time.NewTimer(settleTime)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
	}
}

// Close ends the reading. It leaves the client's body alone: closing that reads what is left of it, which would
// stall here while a client that waits for 100 Continue holds it back. The server closes it in the end.
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	if !b.answered {
		b.watch.stop()
	}
	return nil
}

// answer tells that the response has begun, to whom the watch belongs from now on.
func (b *requestBody) answer() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answered = true
	b.watch.setDeadline(time.Time{})
}

// state gives the octets read and the error that ended the reading, if one did.
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
