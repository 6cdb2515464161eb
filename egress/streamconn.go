package egress

import (
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// streamConn makes a connection of an HTTP/2 or 3 CONNECT stream: the request's body to read from, the response to
// write to.
//
// A goroutine reads ahead by one buffer, because a deadline on the stream itself would end the stream for good, while
// an http.Server over this connection interrupts its own reads by deadlines all the time.
type streamConn struct {
	body   io.ReadCloser
	w      http.ResponseWriter
	rc     *http.ResponseController
	remote net.Addr

	reads    chan []byte   // what the goroutine has read; closed after the last
	taken    chan struct{} // tells it that its buffer is free again
	left     []byte        // of the last read; the reader's own
	readErr  error         // why reads was closed; set before
	pumped   chan struct{} // closed when the goroutine has ended
	deadline deadline

	mu            sync.Mutex
	writeDeadline time.Time
	writing       sync.Mutex // a ResponseWriter is not for concurrent use, but closing may overtake a write
	closed        chan struct{}
	once          sync.Once
}

func newStreamConn(w http.ResponseWriter, r *http.Request) *streamConn {
	c := &streamConn{
		body: r.Body, w: w, rc: http.NewResponseController(w), remote: textAddr(r.RemoteAddr),
		reads: make(chan []byte), taken: make(chan struct{}), pumped: make(chan struct{}),
		deadline: deadline{passed: make(chan struct{})}, closed: make(chan struct{}),
	}
	go c.pump()
	return c
}

func (c *streamConn) pump() {
	defer close(c.pumped)
	buf, lent := getBuffer(), false
	defer func() {
		if !lent { // or a Read beside Close may be copying out of it, which must not become another connection's octets
			putBuffer(buf)
		}
	}()
	for {
		n, err := c.body.Read(buf[:])
		if n > 0 {
			select {
			case c.reads <- buf[:n]:
				lent = true
			case <-c.closed:
				return
			}
			select {
			case <-c.taken:
				lent = false
			case <-c.closed:
				return
			}
		}
		if err != nil {
			c.readErr = err
			close(c.reads)
			return
		}
	}
}

func (c *streamConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	if len(c.left) == 0 {
		if err := c.await(); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.left)
	if c.left = c.left[n:]; len(c.left) == 0 {
		select {
		case c.taken <- struct{}{}:
		case <-c.closed:
		}
	}
	return n, nil
}

// await waits for the next octets.
func (c *streamConn) await() error {
	select { // these two win over octets that are there already
	case <-c.closed:
		return net.ErrClosed
	case <-c.deadline.wait():
		return os.ErrDeadlineExceeded
	default:
	}
	select {
	case b, ok := <-c.reads:
		if !ok {
			return c.readErr
		}
		c.left = b
		return nil
	case <-c.closed:
		return net.ErrClosed
	case <-c.deadline.wait():
		return os.ErrDeadlineExceeded
	}
}

func (c *streamConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	limit := c.writeDeadline
	c.mu.Unlock()
	if !limit.IsZero() && !time.Now().Before(limit) {
		return 0, os.ErrDeadlineExceeded
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	select {
	case <-c.closed:
		return 0, net.ErrClosed
	default:
	}
	if !limit.IsZero() { // the stream is told only while it writes: one that runs out resets it
		_ = c.rc.SetWriteDeadline(limit)
		defer func() { _ = c.rc.SetWriteDeadline(time.Time{}) }()
	}
	n, err := c.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, c.rc.Flush()
}

// Close ends the reading; the stream ends when the handler returns. It waits for the goroutine that reads, and for a
// write in progress, so that nothing uses the stream afterwards.
func (c *streamConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		_ = c.body.Close()
		<-c.pumped
		if !c.writing.TryLock() {
			c.reset() // frees the write
			c.writing.Lock()
		}
		c.writing.Unlock()
	})
	return nil
}

// reset ends the stream by RST_STREAM. Around the server's own writer there may be some that are not for concurrent use, as
// Caddy's is that limits idle times.
func (c *streamConn) reset() {
	_ = http.NewResponseController(innermost(c.w)).SetWriteDeadline(time.Unix(1, 0))
}

// innermost unwraps a writer down to the server's own.
func innermost(w http.ResponseWriter) http.ResponseWriter {
	for {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			return w
		}
		w = outer.Unwrap()
	}
}

func (c *streamConn) LocalAddr() net.Addr  { return textAddr("") }
func (c *streamConn) RemoteAddr() net.Addr { return c.remote }

func (c *streamConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

func (c *streamConn) SetReadDeadline(t time.Time) error {
	c.deadline.set(t)
	return nil
}

func (c *streamConn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writeDeadline = t
	return nil
}

// textAddr is an address known by its text only.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

// deadline is a point in time that can be moved while somebody waits for it, as net.Pipe has them.
type deadline struct {
	mu     sync.Mutex
	timer  *time.Timer
	passed chan struct{} // closed when the point is reached; another one once the point moves away again
}

func (d *deadline) set(t time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.timer != nil && !d.timer.Stop() {
		<-d.passed // the timer is closing it, or has
	}
	d.timer = nil
	reached := false
	select {
	case <-d.passed:
		reached = true
	default:
	}
	left := time.Until(t)
	switch {
	case !t.IsZero() && left <= 0:
		if !reached {
			close(d.passed)
		}
		return
	case reached:
		d.passed = make(chan struct{})
	}
	if !t.IsZero() {
		passed := d.passed
		d.timer = time.AfterFunc(left, func() { close(passed) })
	}
}

func (d *deadline) wait() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.passed
}
