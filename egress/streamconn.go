package egress

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// streamConn makes a connection of an HTTP/2 or 3 CONNECT stream: the request's body to read from,
// the response to write to.
//
// The body is copied into a pipe, which has the deadlines for reading. A deadline on the stream
// itself would end it for good, while an http.Server over this connection interrupts its own reads
// by deadlines all the time.
type streamConn struct {
	net.Conn // the near end of the pipe; only reads go through it
	body     io.Closer
	w        http.ResponseWriter
	rc       *http.ResponseController
	remote   net.Addr

	copyErr error         // why the copying ended; set before the far end of the pipe closes
	copied  chan struct{} // closed when the copying has ended

	mu            sync.Mutex
	writeDeadline time.Time
	writing       sync.Mutex // a ResponseWriter is not for concurrent use, but closing may overtake a write
	closed        chan struct{}
	once          sync.Once
}

func newStreamConn(w http.ResponseWriter, r *http.Request) *streamConn {
	near, far := net.Pipe()
	c := &streamConn{
		Conn: near, body: r.Body, w: w, rc: http.NewResponseController(w), remote: textAddr(r.RemoteAddr),
		copied: make(chan struct{}), closed: make(chan struct{}),
	}
	go func() {
		defer close(c.copied)
		buf := getBuffer()
		defer putBuffer(buf)
		_, c.copyErr = io.CopyBuffer(far, r.Body, buf[:])
		_ = far.Close()
	}()
	return c
}

// Read implements [net.Conn].
func (c *streamConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	switch {
	case errors.Is(err, io.ErrClosedPipe):
		err = net.ErrClosed
	case errors.Is(err, io.EOF) && c.copyErr != nil:
		err = c.copyErr
	}
	return n, err
}

// Write implements [net.Conn].
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
	if !limit.IsZero() { // the stream is told only while it writes: a deadline that passes resets it
		_ = c.rc.SetWriteDeadline(limit)
		defer func() { _ = c.rc.SetWriteDeadline(time.Time{}) }()
	}
	n, err := c.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, c.rc.Flush()
}

// Close ends the reading; the stream ends when the handler returns. It waits for the goroutine that
// copies, and for a write in progress, so that nothing uses the stream afterwards.
func (c *streamConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		_ = c.Conn.Close()
		_ = c.body.Close()
		<-c.copied
		if !c.writing.TryLock() {
			c.reset() // frees the write
			c.writing.Lock()
		}
		c.writing.Unlock()
	})
	return nil
}

// reset ends the stream by RST_STREAM. It goes to the server's own writer, as the writers around it
// may not be for concurrent use (Caddy's that limits idle times is not).
func (c *streamConn) reset() {
	w := c.w
	for {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = outer.Unwrap()
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
}

func (c *streamConn) LocalAddr() net.Addr  { return textAddr("") }
func (c *streamConn) RemoteAddr() net.Addr { return c.remote }

func (c *streamConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
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
