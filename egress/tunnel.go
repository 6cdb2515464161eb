package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// Tunnel is the client's end of an accepted CONNECT: a [net.Conn] that carries the bytes between
// the client and its origin. It can look ahead at the first bytes.
//
// Only one goroutine at a time may read or look ahead, and only one may write. Everything else is
// safe for concurrent use.
type Tunnel struct {
	net.Conn        // the client's, which only the Tunnel reads, writes and closes
	ahead    []byte // read ahead, not yet taken

	reading   sync.Mutex // held while conn is read from
	writing   sync.Mutex // and written to
	closeOnce sync.Once
	closeErr  error
	closed    context.Context //nolint:containedctx // a channel that can be asked for its state
	end       context.CancelFunc
}

// ConnectAuthority returns the target of a CONNECT, which must be a host and a port and nothing
// else (RFC 9112 section 3.2.3). net/http also accepts less, and uses Host if the target is empty.
// The host itself is not validated.
func ConnectAuthority(r *http.Request) (string, error) {
	if _, port, err := net.SplitHostPort(r.URL.Host); err != nil || port == "" {
		return "", errors.New("CONNECT needs a host and a port")
	}
	if u := r.URL; u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery {
		return "", errors.New("CONNECT takes a host and a port, and nothing else")
	}
	return r.URL.Host, nil
}

// Accept answers a CONNECT with 200 and returns the tunnel. Over HTTP/1.1 (and 1.0) it takes the
// connection from the server; over HTTP/2 and 3 the stream itself is the tunnel. Either way the
// handler must not return before the tunnel has ended. Use [Refuse] before Accept: afterwards no
// other answer is possible.
//
// Accept writes the 200 of HTTP/1.1 itself, because the server would announce a chunked body. It
// also sets the status of the writer, which no longer has the connection by then, for logs.
func Accept(w http.ResponseWriter, r *http.Request) (*Tunnel, error) {
	if r.ProtoMajor >= 2 {
		dropServerFields(w.Header())
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			return nil, fmt.Errorf("accepting CONNECT: %w", err)
		}
		return newTunnel(newStreamConn(w, r)), nil
	}
	conn, err := hijack(w, r)
	if err != nil {
		return nil, fmt.Errorf("accepting CONNECT: %w", err)
	}
	if err := writeHead(conn, "200 Connection established", nil); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("accepting CONNECT: %w", err)
	}
	w.WriteHeader(http.StatusOK)
	return newTunnel(conn), nil
}

func newTunnel(conn net.Conn) *Tunnel {
	t := &Tunnel{Conn: conn}
	t.closed, t.end = context.WithCancel(context.Background())
	return t
}

// Read reads from the client, beginning with the bytes that were looked at.
func (t *Tunnel) Read(p []byte) (int, error) {
	if len(t.ahead) > 0 {
		n := copy(p, t.ahead)
		if t.ahead = t.ahead[n:]; len(t.ahead) == 0 {
			t.ahead = nil
		}
		return n, nil
	}
	return t.read(p)
}

func (t *Tunnel) read(p []byte) (int, error) {
	t.reading.Lock()
	defer t.reading.Unlock()
	if t.closed.Err() != nil {
		return 0, net.ErrClosed
	}
	return t.Conn.Read(p)
}

// Write sends bytes to the client.
func (t *Tunnel) Write(p []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	if t.closed.Err() != nil {
		return 0, net.ErrClosed
	}
	return t.Conn.Write(p)
}

// NetConn returns the client's connection within; crypto/tls has the same method.
func (t *Tunnel) NetConn() net.Conn { return t.Conn }

// Close ends the tunnel and interrupts its reads and writes. From then on nothing touches the
// connection: its server may have counted the bytes, and logs the sum when the handler returns.
func (t *Tunnel) Close() error {
	t.closeOnce.Do(func() {
		t.closeErr = t.Conn.Close()
		t.reading.Lock()
		defer t.reading.Unlock()
		t.writing.Lock()
		defer t.writing.Unlock()
		t.end()
	})
	return t.closeErr
}

// Done returns a channel that is closed when the tunnel is.
func (t *Tunnel) Done() <-chan struct{} { return t.closed.Done() }

// First classifies the beginning of a tunnel.
type First string

// The beginnings of a tunnel.
const (
	FirstSilent First = "silent" // nothing came in time
	FirstClosed First = "closed" // the tunnel ended, and the client said nothing
	FirstTLS    First = "tls"    // a TLS handshake record
	FirstHTTP   First = "http"   // a letter, as in an HTTP method: several clients tunnel http:// too
	FirstOther  First = "other"  // anything else
)

// recordHandshake is the content type of TLS handshake records, RFC 8446 section 5.1.
const recordHandshake = 0x16

// First looks at the client's first byte, and waits for it no longer than timeout. The byte can
// still be read. The end of ctx closes the tunnel.
func (t *Tunnel) First(ctx context.Context, timeout time.Duration) First {
	err := t.lookAhead(ctx, 1, timeout)
	if len(t.ahead) == 0 {
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return FirstSilent
		}
		return FirstClosed
	}
	switch c := t.ahead[0]; {
	case c == recordHandshake:
		return FirstTLS
	case 'A' <= c && c <= 'Z', 'a' <= c && c <= 'z':
		return FirstHTTP
	default:
		return FirstOther
	}
}

// lookAhead reads until it has n bytes ahead.
func (t *Tunnel) lookAhead(ctx context.Context, n int, timeout time.Duration) error {
	if len(t.ahead) >= n {
		return nil
	}
	if timeout <= 0 {
		return os.ErrDeadlineExceeded
	}
	stop := context.AfterFunc(ctx, func() { _ = t.Close() })
	defer stop()
	if err := t.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return fmt.Errorf("setting a read deadline: %w", err)
	}
	buf := getBuffer()
	defer putBuffer(buf)
	for len(t.ahead) < n {
		m, err := t.read(buf[:])
		t.ahead = append(t.ahead, buf[:m]...)
		if err != nil && len(t.ahead) < n {
			return err
		}
	}
	if err := t.SetReadDeadline(time.Time{}); err != nil {
		return fmt.Errorf("clearing a read deadline: %w", err)
	}
	return nil
}

// maxHello bounds the bytes that are read for a ClientHello, records included. With post-quantum
// key shares it has some 2 KiB today.
const maxHello = 64 << 10

var (
	errLongHello = errors.New("TLS ClientHello is too long")
	errHelloRead = errors.New("the ClientHello has been read")
)

// ServerName looks at the client's TLS ClientHello, and waits no longer than timeout for the whole
// of it. It returns the name that the client asks for (SNI, RFC 6066 section 3) as sent, or "" if
// it sends no SNI. With Encrypted Client Hello it is the name of the outer hello, not the site's.
// The bytes can still be read. Call it for tunnels that began with [FirstTLS]. The end of ctx
// closes the tunnel.
func (t *Tunnel) ServerName(ctx context.Context, timeout time.Duration) (string, error) {
	var name string
	conn := &helloConn{Tunnel: t, ctx: ctx, deadline: time.Now().Add(timeout)}
	err := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12, // has no effect, because the hello is not answered
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			name = hello.ServerName
			return nil, errHelloRead
		},
	}).HandshakeContext(ctx)
	if !errors.Is(err, errHelloRead) {
		return "", fmt.Errorf("reading a ClientHello: %w", err)
	}
	return name, nil
}

// helloConn lets crypto/tls look at the bytes ahead in a tunnel. Its writes are discarded.
type helloConn struct {
	*Tunnel
	ctx      context.Context //nolint:containedctx // of one call of ServerName
	deadline time.Time
	read     int // bytes of Tunnel.ahead that were read
}

func (c *helloConn) Read(p []byte) (int, error) {
	if c.read == len(c.ahead) {
		if c.read >= maxHello {
			return 0, errLongHello
		}
		if err := c.lookAhead(c.ctx, c.read+1, time.Until(c.deadline)); err != nil {
			return 0, err
		}
	}
	n := copy(p, c.ahead[c.read:])
	c.read += n
	return n, nil
}

func (*helloConn) Write(p []byte) (int, error) { return len(p), nil }
