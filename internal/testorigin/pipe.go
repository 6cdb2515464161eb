package testorigin

import (
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeSize is the size of the buffer in each direction, like a socket's. Without buffers, as in
// net.Pipe, two ends that both write first (a TLS alert and a certificate) would wait for each
// other for ever.
const pipeSize = 64 << 10

// dialMemory connects to a site without sockets.
func (s *Site) dialMemory(ctx context.Context, network string) (net.Conn, error) {
	select {
	case s.server.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, &net.OpError{Op: "dial", Net: network, Err: ctx.Err()}
	}
	client, server := newPipe(s.listen)
	if !s.start(server) {
		<-s.server.slots
		return nil, &net.OpError{Op: "dial", Net: network, Addr: server.local, Err: syscall.ECONNREFUSED}
	}
	return client, nil
}

// pipeEnd is one end of a connection in memory. It behaves like a TCP connection: its buffers are
// limited, deadlines work, and an end can tell a close from a reset once it has read the data
// before it.
type pipeEnd struct {
	in, out       *stream
	local, remote net.Addr
}

// newPipe returns the two ends of a connection to a server at addr.
func newPipe(addr netip.AddrPort) (client, server *pipeEnd) {
	up, down := newStream(), newStream()
	serverAddr := net.TCPAddrFromAddrPort(addr)
	clientAddr := net.TCPAddrFromAddrPort(netip.AddrPortFrom(addr.Addr(), 0))
	client = &pipeEnd{in: down, out: up, local: clientAddr, remote: serverAddr}
	server = &pipeEnd{in: up, out: down, local: serverAddr, remote: clientAddr}
	return client, server
}

// Read implements net.Conn.
func (p *pipeEnd) Read(b []byte) (int, error) {
	n, err := p.in.read(b)
	return n, p.opError("read", err)
}

// Write implements net.Conn.
func (p *pipeEnd) Write(b []byte) (int, error) {
	n, err := p.out.write(b)
	return n, p.opError("write", err)
}

// Close implements net.Conn.
func (p *pipeEnd) Close() error {
	p.out.endWriting(io.EOF)
	p.in.endReading(syscall.EPIPE)
	return nil
}

// reset closes the connection so that the other end sees a reset.
func (p *pipeEnd) reset() {
	p.out.endWriting(syscall.ECONNRESET)
	p.in.endReading(syscall.ECONNRESET)
}

// LocalAddr implements net.Conn.
func (p *pipeEnd) LocalAddr() net.Addr { return p.local }

// RemoteAddr implements net.Conn.
func (p *pipeEnd) RemoteAddr() net.Addr { return p.remote }

// SetDeadline implements net.Conn.
func (p *pipeEnd) SetDeadline(t time.Time) error {
	p.in.setDeadlines(&t, nil)
	p.out.setDeadlines(nil, &t)
	return nil
}

// SetReadDeadline implements net.Conn.
func (p *pipeEnd) SetReadDeadline(t time.Time) error {
	p.in.setDeadlines(&t, nil)
	return nil
}

// SetWriteDeadline implements net.Conn.
func (p *pipeEnd) SetWriteDeadline(t time.Time) error {
	p.out.setDeadlines(nil, &t)
	return nil
}

func (p *pipeEnd) opError(op string, err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // io.Reader wants the bare value
		return err
	}
	return &net.OpError{Op: op, Net: "tcp", Source: p.local, Addr: p.remote, Err: err}
}

// stream is one direction of a connection.
type stream struct {
	mu            sync.Mutex
	changed       chan struct{} // closed and replaced at every change
	buffer        []byte
	writerGone    error // the reader's error after the buffer; nil while there is a writer
	readerGone    error // the writer's error; nil while there is a reader
	readDeadline  time.Time
	writeDeadline time.Time
}

func newStream() *stream { return &stream{changed: make(chan struct{})} }

func (s *stream) read(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		switch {
		case s.readerGone != nil:
			return 0, net.ErrClosed
		case expired(s.readDeadline):
			return 0, os.ErrDeadlineExceeded
		case len(s.buffer) > 0 || len(b) == 0:
			n := copy(b, s.buffer)
			s.buffer = s.buffer[n:]
			s.wake()
			return n, nil
		case s.writerGone != nil:
			return 0, s.writerGone
		}
		s.wait(s.readDeadline)
	}
}

func (s *stream) write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	written := 0
	for {
		switch {
		case s.writerGone != nil:
			return written, net.ErrClosed
		case s.readerGone != nil:
			return written, s.readerGone
		case expired(s.writeDeadline):
			return written, os.ErrDeadlineExceeded
		case len(b) == 0:
			return written, nil
		case len(s.buffer) < pipeSize:
			n := min(len(b), pipeSize-len(s.buffer))
			s.buffer = append(s.buffer, b[:n]...)
			b, written = b[n:], written+n
			s.wake()
			continue
		}
		s.wait(s.writeDeadline)
	}
}

// wait releases the lock until something changes or the deadline has passed.
func (s *stream) wait(deadline time.Time) {
	var passed <-chan time.Time
	if !deadline.IsZero() {
		timer := time.NewTimer(time.Until(deadline))
		defer timer.Stop()
		passed = timer.C
	}
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
	case <-passed:
	}
}

func expired(deadline time.Time) bool {
	return !deadline.IsZero() && !time.Now().Before(deadline)
}

// wake wakes all goroutines that wait. The caller holds the lock.
func (s *stream) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *stream) endWriting(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.writerGone == nil {
		s.writerGone = cause
		s.wake()
	}
}

func (s *stream) endReading(cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readerGone == nil {
		s.readerGone = cause
		s.buffer = nil
		s.wake()
	}
}

func (s *stream) setDeadlines(read, write *time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if read != nil {
		s.readDeadline = *read
	}
	if write != nil {
		s.writeDeadline = *write
	}
	s.wake()
}
