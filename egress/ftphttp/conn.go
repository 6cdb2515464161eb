package ftphttp

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"time"

	"github.com/jlaffaye/ftp"

	"github.com/crawlgate/crawlgate/egress/guard"
)

// Limits on what an FTP server may send besides files. The replies of a session need a few hundred
// bytes, greetings a few thousand. A listing is held in memory as a whole.
const (
	maxReplies = 64 << 10
	maxListing = 2 << 20
	maxEntries = 20_000
)

// Errors for servers that exceed a limit. RoundTrip returns them, or reading the body does.
var (
	ErrReplies = fmt.Errorf("FTP server sent more than %d bytes of replies", maxReplies)
	ErrListing = fmt.Errorf("FTP server sent a listing of more than %d bytes or %d lines", maxListing, maxEntries)
	ErrSize    = errors.New("FTP server sent more bytes than it had announced")
)

// bufferSize bounds one read of a file.
const bufferSize = 32 << 10

// connect makes the control connection at the first call and data connections at later ones. For
// these it ignores the host that the library names; see [Dial].
func (s *session) connect(_, address string) (net.Conn, error) {
	_, text, err := net.SplitHostPort(address)
	port, portErr := guard.ParsePort(text)
	if err := cmp.Or(err, portErr); err != nil {
		return nil, fmt.Errorf("dialing an FTP server: %w", err)
	}
	if s.control == nil {
		return s.connectControl(address, port)
	}
	conn, err := s.open(port, s.control.Conn)
	if err != nil {
		return nil, err
	}
	if s.listing {
		return &listingConn{Conn: conn, end: s.end}, nil
	}
	return conn, nil
}

func (s *session) connectControl(address string, port uint16) (net.Conn, error) {
	trace := traceOf(s.ctx)
	trace.GetConn(address)
	conn, err := s.open(port, nil)
	if err != nil {
		return nil, err
	}
	trace.GotConn(httptrace.GotConnInfo{Conn: conn})
	trace.WroteRequest(httptrace.WroteRequestInfo{}) // the server is at work from now on
	s.control = &controlConn{Conn: conn, answered: trace.GotFirstResponseByte}
	return s.control, conn.SetDeadline(time.Now().Add(s.timeout)) // again, because GotConn may wait
}

// open makes a connection that ends with the session.
func (s *session) open(port uint16, control net.Conn) (net.Conn, error) {
	conn, err := s.dial(s.ctx, s.request.URL.Hostname(), port, control)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(s.ctx, func() { _ = conn.Close() })
	return conn, conn.SetDeadline(time.Now().Add(s.timeout))
}

// traceOf returns the trace of a context, with all the hooks that a session calls.
func traceOf(ctx context.Context) *httptrace.ClientTrace {
	return httptrace.ContextClientTrace(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn:              func(string) {},
		GotConn:              func(httptrace.GotConnInfo) {},
		WroteRequest:         func(httptrace.WroteRequestInfo) {},
		GotFirstResponseByte: func() {},
	}))
}

// controlConn is a control connection.
type controlConn struct {
	net.Conn

	answered func() // called at the first byte of the greeting
	read     int
	failed   error  // why reading ended
	command  string // the word of the last command
	reply    []byte // the first three bytes of the reply to it
}

// RemoteAddr satisfies the library, which insists on a TCP address but does not use it.
func (*controlConn) RemoteAddr() net.Addr { return new(net.TCPAddr) }

func (c *controlConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.read+n > maxReplies {
		err = ErrReplies
	}
	if c.read == 0 && n > 0 {
		c.answered()
	}
	c.failed = err
	c.read += n
	c.reply = append(c.reply, p[:min(n, 3-len(c.reply))]...)
	return n, err
}

// Write implements [io.Writer]. The library writes each command in one call.
func (c *controlConn) Write(p []byte) (int, error) {
	c.command, _, _ = strings.Cut(strings.TrimSpace(string(p)), " ")
	c.reply = c.reply[:0]
	return c.Conn.Write(p)
}

// aboutPath reports whether the last command was about the path. A 550 to any other command does
// not mean that the path is missing.
func (c *controlConn) aboutPath() bool {
	return slices.Contains([]string{"SIZE", "MDTM", "RETR", "CWD", "LIST", "MLSD", "NLST"}, c.command)
}

// listingConn is a data connection for a listing.
type listingConn struct {
	net.Conn

	end          context.CancelFunc // of the session
	bytes, lines int
}

func (l *listingConn) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	l.bytes += n
	l.lines += bytes.Count(p[:n], []byte{'\n'})
	if l.bytes > maxListing || l.lines > maxEntries {
		n, err = 0, ErrListing
	}
	if err != nil && !errors.Is(err, io.EOF) {
		l.end() // otherwise the library would wait for the reply to a transfer that has broken off
	}
	return n, err
}

// transfer begins to read the file.
func (s *session) transfer(size int64) (io.ReadCloser, error) {
	file, err := s.client.Retr(s.request.URL.Path)
	if err != nil {
		return nil, err
	}
	data := bufio.NewReaderSize(file, bufferSize)
	// From here on the caller watches for transfers that stall.
	return &body{session: s, file: file, data: data, size: size}, file.SetDeadline(time.Time{})
}

// body is the file that a session reads. Only the reply after a transfer distinguishes a whole file
// from one that broke off, so the last byte is held back until that reply has come.
type body struct {
	session *session
	file    *ftp.Response
	data    *bufio.Reader
	size    int64 // -1 if unknown
	read    int64
	whole   bool
}

func (b *body) Read(p []byte) (int, error) {
	held := 1
	if !b.whole {
		_, err := b.data.Peek(2)
		if errors.Is(err, io.EOF) {
			err = b.finish()
		}
		if err != nil {
			return 0, err
		}
	}
	if b.whole {
		held = 0
	}
	switch buffered := b.data.Buffered(); {
	case b.size >= 0 && b.read+int64(buffered) > b.size:
		return 0, ErrSize
	case buffered == held:
		return 0, io.EOF
	default:
		n, err := b.data.Read(p[:min(len(p), buffered-held)])
		b.read += int64(n)
		return n, err
	}
}

// finish waits for the reply that follows the transfer.
func (b *body) finish() error {
	if err := transferDone(b.file.Close()); err != nil {
		return err
	}
	if b.read+int64(b.data.Buffered()) < b.size {
		return io.ErrUnexpectedEOF
	}
	b.whole = true
	_ = b.session.client.Quit() // a courtesy
	return nil
}

// Close implements [io.Closer]. It ends the session at any stage.
func (b *body) Close() error {
	b.session.end()
	return nil
}

// transferDone also accepts 250 as the end of a transfer (RFC 959 section 5.4). The library accepts
// only 226.
func transferDone(err error) error {
	if reply, ok := errors.AsType[*textproto.Error](err); ok && reply.Code == ftp.StatusRequestedFileActionOK {
		return nil
	}
	return err
}
