package h1

import (
	"bufio"
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
	"sync"
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
	// This fails if the connection is closed, and so does the write.
	_ = c.SetDeadline(time.Now().Add(t.config.ResponseHeaderTimeout))
	if err := c.write(r); err != nil {
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

// quiet reports whether an idle connection is open and has received nothing since its last
// response: such bytes would become the answer to the next request.
func (c *conn) quiet() bool {
	if !nothingToRead(c.tcp) {
		return false
	}
	secure, ok := c.Conn.(*tls.Conn)
	if !ok {
		return true
	}
	// TLS may have read ahead. If it has not, this read fails, because its deadline has passed.
	_ = secure.SetReadDeadline(time.Unix(1, 0))
	n, err := secure.Read(make([]byte, 1))
	return n == 0 && errors.Is(err, os.ErrDeadlineExceeded)
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
