package h1

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// conn is a connection to an origin.
type conn struct {
	net.Conn // with TLS for https

	tcp    net.Conn
	answer *Mended // reads go through it once there is a request
	key    key
	reused bool
	since  time.Time     // when it became idle
	stop   func() bool   // from context.AfterFunc; nil while idle
	br     *bufio.Reader // nil while idle
	header int64         // bytes of headers that may still be read
}

// bufferSize holds a common page with its header, so that it comes in one read.
const bufferSize = 32 << 10

var (
	readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, bufferSize) }}
	writers = sync.Pool{New: func() any { return bufio.NewWriter(nil) }}
)

// size is the memory of the idle connection in KiB, including its socket. TLS has certificates,
// keys and a record.
func (c *conn) size() int {
	if c.key.scheme == "https" {
		return 16
	}
	return 8
}

// endWith closes the connection when the context ends. It does not close TLS, because that may wait
// for the origin.
func (c *conn) endWith(ctx context.Context) {
	c.stop = context.AfterFunc(ctx, func() { _ = c.tcp.Close() })
}

func (c *conn) Read(p []byte) (int, error) {
	if c.header <= 0 {
		return 0, ErrHeaderSize
	}
	n, err := c.answer.Read(p[:min(int64(len(p)), c.header)])
	c.header -= int64(n)
	return n, err
}

// exchange sends a request and returns its response.
func (t *Transport) exchange(c *conn, r *http.Request, trace *httptrace.ClientTrace) (*http.Response, error) {
	if trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: c.Conn, Reused: c.reused, WasIdle: c.reused})
	}
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if err := c.send(r, t.config.ResponseHeaderTimeout); err != nil {
		return nil, fmt.Errorf("sending a request: %w: %w", errStale, err)
	}
	c.header = t.config.MaxResponseHeaderBytes
	if c.answer == nil {
		c.answer = Mend(c.Conn)
	}
	c.answer.Await()
	c.br = readers.Get().(*bufio.Reader) //nolint:forcetypeassert // see New
	c.br.Reset(c)
	if _, err := c.br.Peek(1); err != nil {
		return nil, fmt.Errorf("awaiting a response: %w: %w", errStale, err)
	}
	if trace.GotFirstResponseByte != nil {
		trace.GotFirstResponseByte()
	}
	resp, err := c.readHeader(r, trace)
	if err != nil {
		return nil, fmt.Errorf("reading a response: %w", err)
	}
	c.header = math.MaxInt64
	keep := !resp.Close && !r.Close && resp.StatusCode >= http.StatusOK
	if resp.Body == http.NoBody {
		t.release(c, keep)
		return resp, nil
	}
	// Otherwise the whole body is here.
	if resp.ContentLength < 0 || resp.ContentLength > int64(c.br.Buffered()) {
		_ = c.SetDeadline(time.Time{})
	}
	resp.Body = &body{src: resp.Body, ctx: r.Context(), conn: c, keep: keep, transport: t}
	return resp, nil
}

// send sends a request. The deadline is for its response too. It sends nothing over a kept
// connection that is closed, or that has received anything since its last response: such bytes
// would become the answer to this request.
func (c *conn) send(r *http.Request, limit time.Duration) error {
	if secure, ok := c.Conn.(*tls.Conn); ok && c.reused {
		// TLS may have read ahead. If it has not, this read fails, because its deadline has passed.
		_ = secure.SetReadDeadline(time.Unix(1, 0))
		if n, err := secure.Read(make([]byte, 1)); n > 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return errUnquiet
		}
	}
	// This fails if the connection is closed, and so does the write.
	_ = c.SetDeadline(time.Now().Add(limit))
	if c.reused {
		return writeQuietly(c.tcp, func() error { return c.write(r) })
	}
	return c.write(r)
}

func (c *conn) write(r *http.Request) error {
	bw := writers.Get().(*bufio.Writer) //nolint:forcetypeassert // see New
	bw.Reset(c.Conn)
	err := r.Write(bw)
	if err == nil {
		err = bw.Flush()
	}
	bw.Reset(nil)
	writers.Put(bw)
	return err
}

// readHeader reads responses up to the header of the final one.
func (c *conn) readHeader(r *http.Request, trace *httptrace.ClientTrace) (*http.Response, error) {
	for {
		resp, err := http.ReadResponse(c.br, r)
		if err != nil || resp.StatusCode < 100 || resp.StatusCode > 199 || resp.StatusCode == http.StatusSwitchingProtocols {
			return resp, err
		}
		if trace.Got1xxResponse == nil {
			continue
		}
		if err := trace.Got1xxResponse(resp.StatusCode, textproto.MIMEHeader(resp.Header)); err != nil {
			return nil, err
		}
	}
}

// body is the body of a response. The connection is kept when the body has been read to its end.
type body struct {
	src       io.Reader
	ctx       context.Context //nolint:containedctx // of the request
	conn      *conn
	keep      bool
	transport *Transport
	err       error // once it is set, nothing more is read
}

func (b *body) Read(p []byte) (int, error) {
	if b.err != nil {
		return 0, b.err
	}
	n, err := b.src.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = ended(b.ctx, err)
	}
	b.end(err)
	return n, err
}

// Close implements [io.Closer]. If part of the body is unread, it closes the connection.
func (b *body) Close() error {
	b.end(http.ErrBodyReadAfterClose)
	return nil
}

func (b *body) end(err error) {
	if b.err == nil && err != nil {
		b.err = err
		b.transport.release(b.conn, b.keep && errors.Is(err, io.EOF))
	}
}

// Buffered returns the number of bytes that can be read without waiting, framing included, before
// the first Read.
func (b *body) Buffered() int { return b.conn.br.Buffered() }

// maxHead bounds the head of a response that is mended. It is the largest that a [Transport] reads.
const maxHead = 256 << 10

// Mended is a connection to an origin, above TLS, that mends the heads of HTTP/1 responses before
// net/http parses them. As RFC 9112 requires of a proxy, it removes the blanks before a field's
// colon (section 5.1), and joins a field that continues on the next line (section 5.2). net/http
// does not recognize a field with such blanks. It also refuses "Transfer-Encoding: identity", with
// which a body ends when the connection does (section 6.3); Mended leaves it out.
//
// A name with a blank inside is not a valid field name: net/http keeps the field, and the server
// leaves it out. If the name is one of decisive apart from its blanks, they become tabs, so that
// net/http refuses the answer: such a field must not be lost.
type Mended struct {
	net.Conn
	awaited atomic.Bool // a response begins with the next byte
	head    bool        // the next bytes belong to a head
	held    []byte      // the beginning of that head
	ready   []byte      // mended, not read yet
}

// Mend returns a connection for the first response over c.
func Mend(c net.Conn) *Mended {
	m := &Mended{Conn: c}
	m.Await()
	return m
}

// Await says that a request will be sent: the next bytes are its response.
func (m *Mended) Await() { m.awaited.Store(true) }

// NetConn returns the connection within, as [crypto/tls.Conn] does.
func (m *Mended) NetConn() net.Conn { return m.Conn }

// CloseWrite closes the sending half, for the protocol that follows a 101.
func (m *Mended) CloseWrite() error {
	if c, ok := m.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Read reads a head as a whole, and everything else as it arrives.
func (m *Mended) Read(p []byte) (int, error) {
	for len(m.ready) == 0 {
		n, err := m.Conn.Read(p)
		if m.awaited.Swap(false) {
			m.head, m.held = true, nil
		}
		if !m.head || n == 0 && (err == nil || m.held == nil) {
			return n, err
		}
		m.take(p[:n], err != nil)
		if len(m.ready) == 0 && err != nil {
			return 0, err
		}
	}
	n := copy(p, m.ready)
	if m.ready = m.ready[n:]; len(m.ready) == 0 {
		m.ready = nil
	}
	return n, nil
}

// take adds p to the held beginning of a head, and moves to ready the bytes that may be read: a
// complete head, once mended, and all bytes if they are not HTTP/1, exceed the limit, or end here.
func (m *Mended) take(p []byte, ended bool) {
	if m.held != nil {
		p = append(m.held, p...)
	}
	m.ready, m.held = p[:0], nil
	for m.head && len(p) > 0 {
		n, http := headEnd(p), bytes.HasPrefix(p, protocol[:min(len(p), len(protocol))])
		if n < 0 && http && !ended && len(p) <= maxHead {
			m.held = bytes.Clone(p)
			return
		}
		if m.head = n >= 0 && http; m.head {
			m.head = interim(p[:n])
			m.ready = append(m.ready, mendHead(p[:n])...)
			p = p[n:]
		}
	}
	m.ready = append(m.ready, p...)
}

// decisive are the fields that say how a message is framed and read, and those that carry rules and
// preferences.
var decisive = []string{
	"content-encoding", "content-length", "content-range", "content-signal", "content-type", "content-usage", "location", "retry-after",
	"set-cookie", "tdm-policy", "tdm-reservation", "transfer-encoding", "x-robots-tag",
}

var protocol = []byte("HTTP/1.")

// headEnd returns the length of the head at the beginning of p, or -1 if the head has not ended.
func headEnd(p []byte) int {
	for n := 0; ; {
		i := bytes.IndexByte(p[n:], '\n')
		if i < 0 {
			return -1
		}
		if n += i + 1; i == 0 || i == 1 && p[n-2] == '\r' {
			return n
		}
	}
}

// interim reports whether another response follows a head, as it follows a 1xx that does not change
// the protocol.
func interim(head []byte) bool {
	_, status, _ := bytes.Cut(head, []byte{' '})
	return bytes.HasPrefix(status, []byte{'1'}) && !bytes.HasPrefix(status, []byte("101"))
}

// mendHead mends a head in place. The result is never longer.
func mendHead(head []byte) []byte {
	out, fields, coded := head[:0], 0, false
	for line := range bytes.Lines(head) {
		name, _, isField := bytes.Cut(line, []byte{':'})
		switch {
		case len(out) == 0: // the status line
		case (line[0] == ' ' || line[0] == '\t') && fields > 0:
			out, line = append(bytes.TrimRight(out, " \t\r\n"), ' '), bytes.TrimLeft(line, " \t")
		case isField:
			fields++
			bare := bytes.TrimRight(name, " \t")
			if bytes.ContainsAny(bare, " \t") {
				spread(bare)
			}
			coded = coded || isName(bare, "Transfer-Encoding")
			out, line = append(out, bare...), line[len(name):]
		}
		out = append(out, line...)
	}
	if coded {
		return untilClose(out)
	}
	return out
}

// spread turns the blanks within a name into tabs if the name must be refused, and otherwise into
// spaces.
func spread(name []byte) {
	parts, blank := bytes.Fields(name), byte(' ')
	if slices.Contains(decisive, strings.ToLower(string(bytes.Join(parts, nil)))) {
		blank = '\t'
	}
	for i, c := range name {
		if c == ' ' || c == '\t' {
			name[i] = blank
		}
	}
}

// untilClose removes the length fields from a head whose only transfer coding is identity. net/http
// knows the coding chunked, and refuses all others.
func untilClose(head []byte) (out []byte) {
	for line := range bytes.Lines(head) {
		name, value, _ := bytes.Cut(line, []byte{':'})
		switch isCoding := isName(name, "Transfer-Encoding"); {
		case isCoding && !isName(bytes.TrimSpace(value), "identity"):
			return head
		case !isCoding && !isName(name, "Content-Length"):
			out = append(out, line...)
		}
	}
	return out
}

func isName(b []byte, name string) bool { return bytes.EqualFold(b, []byte(name)) }
