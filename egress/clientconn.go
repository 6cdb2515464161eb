package egress

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/crawlgate/crawlgate/egress/mint"
)

type connKey struct{}

// WithConn returns a context that notes the connection by which its requests arrive; it has the
// signature of [http.Server]'s ConnContext. Some servers wrap the connection that they hand over to
// a handler (Caddy does, to count its bytes), and the wrapper cannot close the two halves one by
// one. Tunnels and upgraded HTTP/1.1 connections can end one direction before the other only if the
// connection was noted here.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	if strict := strictOf(conn); strict != nil {
		conn = strict // the server's wrapper would hide it
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// notedConn returns the connection that was noted for a request, or else conn.
func notedConn(r *http.Request, conn net.Conn) net.Conn {
	if noted, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		return noted
	}
	return conn
}

// replayConn first returns bytes that were read ahead, and then reads from its connection.
type replayConn struct {
	net.Conn
	reader io.Reader
	within net.Conn // the connection that Conn wraps, if known; its sending half can close alone
}

// replay returns a connection whose first bytes are those buffered in ahead.
func replay(conn net.Conn, ahead *bufio.Reader, within net.Conn) *replayConn {
	early := io.LimitReader(ahead, int64(ahead.Buffered()))
	return &replayConn{Conn: conn, reader: io.MultiReader(early, conn), within: within}
}

func (c *replayConn) Read(p []byte) (int, error) { return c.reader.Read(p) }

// NetConn returns the connection within; crypto/tls has the same method.
func (c *replayConn) NetConn() net.Conn { return c.within }

// hijack takes the client's connection over from the server and clears all deadlines. The
// connection first returns the bytes that the server has read ahead.
func hijack(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("taking over the client's connection: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("clearing the deadline of the client's connection: %w", err)
	}
	return replay(conn, rw.Reader, notedConn(r, conn)), nil
}

// writeHead writes an HTTP/1.1 status line and header.
func writeHead(w io.Writer, status string, h http.Header) error {
	bw := bufio.NewWriter(w)
	_, _ = bw.WriteString("HTTP/1.1 " + status + "\r\n") // errors of a bufio.Writer stay until Flush
	_ = h.Write(bw)
	_, _ = bw.WriteString("\r\n")
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("writing %q to the client: %w", status, err)
	}
	return nil
}

// closeWrite closes the sending half of c, or of a connection within c that NetConn methods return,
// if there is one to close.
func closeWrite(c any) error {
	if half, ok := find[interface{ CloseWrite() error }](c); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("%T has no sending half that closes alone", c)
}

// breakOff resets the TCP connection or the HTTP/2 stream under c. It does not close TLS in
// between, because a close_notify would mean a regular end.
func breakOff(c net.Conn) {
	if in, ok := find[*innerConn](c); ok {
		c = in.Conn
	}
	if stream, ok := find[*streamConn](c); ok {
		stream.reset()
	} else if tcp, ok := find[interface {
		SetLinger(sec int) error
		io.Closer
	}](c); ok {
		_ = tcp.SetLinger(0)
		_ = tcp.Close()
	}
}

// streamConn turns the stream of an HTTP/2 or HTTP/3 CONNECT into a connection, which reads the
// request's body and writes the response.
//
// It copies the body into a pipe, which provides the read deadlines. A deadline on the stream
// itself would end it for good, but an http.Server on this connection uses deadlines all the time
// to interrupt its own reads.
type streamConn struct {
	net.Conn // the near end of the pipe, used only for reading
	body     io.Closer
	w        http.ResponseWriter
	rc       *http.ResponseController
	remote   net.Addr

	copyErr error         // why copying ended; set before the far end of the pipe closes
	copied  chan struct{} // closed when copying has ended

	writeDeadline atomic.Value // a time.Time; zero means none
	writing       sync.Mutex   // held by a write, and by Close to wait for it
	closed        atomic.Bool
}

func newStreamConn(w http.ResponseWriter, r *http.Request) *streamConn {
	near, far := net.Pipe()
	c := &streamConn{
		Conn: near, body: r.Body, w: w, rc: http.NewResponseController(w), remote: textAddr(r.RemoteAddr),
		copied: make(chan struct{}),
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

func (c *streamConn) Write(p []byte) (int, error) {
	limit, _ := c.writeDeadline.Load().(time.Time)
	if !limit.IsZero() && !time.Now().Before(limit) {
		return 0, os.ErrDeadlineExceeded
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.closed.Load() {
		return 0, net.ErrClosed
	}
	if !limit.IsZero() { // only during a write: a deadline that passes resets the stream
		_ = c.rc.SetWriteDeadline(limit)
		defer func() { _ = c.rc.SetWriteDeadline(time.Time{}) }()
	}
	n, err := c.w.Write(p)
	if err != nil {
		return n, err
	}
	return n, c.rc.Flush()
}

// Close ends reading; the stream itself ends when the handler returns. Close waits for the copying
// goroutine and for a write in progress, so that nothing uses the stream afterwards. It must not be
// called twice.
func (c *streamConn) Close() error {
	c.closed.Store(true)
	_ = c.Conn.Close()
	_ = c.body.Close()
	<-c.copied
	if !c.writing.TryLock() {
		c.reset() // frees the write
		c.writing.Lock()
	}
	c.writing.Unlock()
	return nil
}

// reset ends the stream with RST_STREAM. It uses the server's own writer, because the writers that
// wrap it may not be safe for concurrent use (Caddy's, which limits idle times, is not).
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
	c.writeDeadline.Store(t)
	return nil
}

// textAddr is an address that is known only as text.
type textAddr string

func (textAddr) Network() string  { return "tcp" }
func (a textAddr) String() string { return string(a) }

// leaveTick bounds how late [WatchLeaving] notices that a client has left.
const leaveTick = 250 * time.Millisecond

// WatchLeaving calls left, once, if the client of r closes its connection, or its sending half,
// before stop is called. An HTTP/1.1 server looks for that only after the handler has read the
// request's body, so the context of a request with a body does not end earlier. WatchLeaving
// ignores other requests, because their contexts do end. It needs Linux, and a connection that
// [WithConn] noted. It does not see an end behind more unread bytes than the kernel keeps for the
// connection, some 64 KiB.
func WatchLeaving(r *http.Request, left func()) (stop func()) {
	socket, ok := find[syscall.Conn](notedConn(r, nil))
	if !ok || r.ProtoMajor != 1 || r.ContentLength == 0 {
		return func() {}
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return func() {}
	}
	done := make(chan struct{})
	timer := time.AfterFunc(leaveTick, func() {
		tick := time.NewTicker(leaveTick)
		defer tick.Stop()
		for !hungUp(raw) {
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
		left()
	})
	return func() {
		timer.Stop()
		close(done)
	}
}

// ConnectContext describes an accepted CONNECT to the requests inside its tunnel.
type ConnectContext struct {
	// Scheme is the scheme of the requests inside: "https" if TLS was ended, "http" if the tunnel
	// carries plain HTTP. It is set when serving begins.
	Scheme string
	// Host is the host that the CONNECT asked for: a name in lower case (punycode) or an IP address
	// without brackets.
	Host string
	Port uint16
	// Outer is the CONNECT request.
	Outer *http.Request
	// Minter makes the certificate for Host. If it is nil, only plain HTTP can be served.
	Minter *mint.Minter
	// Value is the caller's own.
	Value any
}

// Errors of [ConnectContext.Resolve].
var (
	// ErrMisdirected means that an inner request is for another authority than its tunnel's. The
	// answer is 421.
	ErrMisdirected = errors.New("request is for another authority than its tunnel")
	// ErrNested means that an inner request is itself a CONNECT. The answer is 400.
	ErrNested = errors.New("CONNECT inside a tunnel")
)

type connectKey struct{}

// ConnectFrom returns the CONNECT that a request came through, or nil if there was none.
func ConnectFrom(ctx context.Context) *ConnectContext {
	p, _ := ctx.Value(connectKey{}).(*ConnectContext)
	return p
}

// Authority returns the host and, unless it is the scheme's default, the port.
func (p *ConnectContext) Authority() string {
	if p.Scheme == "https" && p.Port == 443 || p.Scheme == "http" && p.Port == 80 {
		if strings.Contains(p.Host, ":") {
			return "[" + p.Host + "]"
		}
		return p.Host
	}
	return net.JoinHostPort(p.Host, strconv.Itoa(int(p.Port)))
}

// Resolve gives an inner request the form of a proxied one: an absolute URL with the scheme and
// authority of the tunnel, whatever the client wrote, and the address of the client outside. If the
// request's Host is not the tunnel's, its URL becomes the one that it asks for and the error is
// [ErrMisdirected]: the request must not be served, but logs should name its target.
func (p *ConnectContext) Resolve(r *http.Request) error {
	r.RemoteAddr = p.Outer.RemoteAddr
	if r.Method == http.MethodConnect {
		return ErrNested
	}
	u := *r.URL
	u.Scheme, u.Host, u.User = p.Scheme, p.Authority(), nil
	var misdirected error
	if !p.serves(r.Host) {
		misdirected = fmt.Errorf("%w: %+.240q in a tunnel to %s", ErrMisdirected, r.Host, p.Authority())
		u.Host = r.Host
	}
	target := r.RequestURI
	switch {
	case target == "*": // OPTIONS *, whose absolute form has an empty path, RFC 9112 section 3.2.4
		u.Path, target = "", ""
	case !strings.HasPrefix(target, "/"):
		target = r.URL.RequestURI()
	}
	r.URL = &u
	r.Host = u.Host
	r.RequestURI = p.Scheme + "://" + u.Host + target
	return misdirected
}

// serves reports whether an inner Host field names the tunnel's authority. A host without a port
// does: some clients leave out even unusual ports, and the request goes to the tunnel's port in any
// case.
func (p *ConnectContext) serves(host string) bool {
	u := url.URL{Host: host}
	if port := u.Port(); port != "" && port != strconv.Itoa(int(p.Port)) {
		return false
	}
	return sameHost(u.Hostname(), p.Host)
}

// sameHost reports whether two hosts are the same address, or the same name apart from case and a
// final dot.
func sameHost(a, b string) bool {
	if strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, ".")) {
		return true
	}
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	return errX == nil && errY == nil && x.Unmap() == y.Unmap()
}
