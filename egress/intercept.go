package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// handshakeTimeout bounds the TLS handshake of a client inside a tunnel.
const handshakeTimeout = 10 * time.Second

// Interceptor serves the requests inside accepted tunnels: HTTP/1.1 and HTTP/2 over TLS, which it
// ends itself, and HTTP/1.1 in clear text. Its handler finds the CONNECT with [ConnectFrom] and
// should begin with [ConnectContext.Resolve]. An Interceptor is safe for concurrent use.
type Interceptor struct {
	server    *http.Server
	listener  *tunnelListener
	tls       *tls.Config
	refusing  *tls.Config // has no certificate, so crypto/tls sends the alert unrecognized_name
	handshake time.Duration
	serving   sync.WaitGroup
}

// NewInterceptor starts an interceptor, which runs until [Interceptor.Shutdown]. The server must
// have a handler, and should have the limits of the server that receives the CONNECT requests. It
// then belongs to the interceptor.
func NewInterceptor(server *http.Server) *Interceptor {
	server.ConnContext, server.ConnState = connContext, Unfollow
	server.DisableGeneralOptionsHandler = true // net/http would answer OPTIONS * in the origin's name
	s := &Interceptor{server: server, handshake: handshakeTimeout, listener: &tunnelListener{conns: make(chan net.Conn)}}
	s.listener.closed, s.listener.cancel = context.WithCancel(context.Background())
	s.configureTLS()
	s.serving.Go(func() { _ = s.server.Serve(s.listener) }) // returns ErrServerClosed after Shutdown
	return s
}

func (s *Interceptor) configureTLS() {
	s.refusing = &tls.Config{
		MinVersion:             tls.VersionTLS12,
		NextProtos:             []string{"h2", "http/1.1"},
		SessionTicketsDisabled: true, // a session of another name must not be resumed either
	}
	s.tls = &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			in := hello.Conn.(*innerConn) //nolint:forcetypeassert // see ServeTLS
			if hello.ServerName != "" && !sameHost(hello.ServerName, in.connect.Host) {
				in.fronted = true
				return s.refusing, nil
			}
			return nil, nil
		},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			in := hello.Conn.(*innerConn) //nolint:forcetypeassert // see ServeTLS
			return in.connect.Minter.Certificate(in.connect.Host)
		},
	}
}

// innerConn is a tunnel as the inner server sees it.
type innerConn struct {
	*Tunnel
	connect *ConnectContext
	client  any  // the connection by which the CONNECT came, if known
	fronted bool // SNI asks for another host than the CONNECT did
}

// Unread tells the client's own connection about a request that cannot be read; see [Strict].
func (c *innerConn) Unread(answer string) { tellUnread(c.client, answer) }

// connContext notes the ConnectContext of an inner connection for its requests.
func connContext(ctx context.Context, c net.Conn) context.Context {
	ctx = WithConn(ctx, c)
	if in, ok := find[*innerConn](c); ok {
		return context.WithValue(ctx, connectKey{}, in.connect)
	}
	return ctx
}

// ServePlain serves the HTTP/1.1 requests in clear text inside a tunnel, and returns when the
// tunnel has ended. It closes the tunnel when ctx ends. After Shutdown the error is
// [http.ErrServerClosed].
func (s *Interceptor) ServePlain(ctx context.Context, t *Tunnel, p *ConnectContext) error {
	p.Scheme = "http"
	return s.serve(ctx, t, Strict(&innerConn{Tunnel: t, connect: p, client: ctx.Value(connKey{})}))
}

// ServeTLS ends TLS inside a tunnel, serves the requests within and returns when the tunnel has
// ended. The client's SNI must name the host of the CONNECT, or be absent. A failed handshake is a
// [*HandshakeError].
func (s *Interceptor) ServeTLS(ctx context.Context, t *Tunnel, p *ConnectContext) error {
	if p.Minter == nil {
		_ = t.Close()
		return errors.New("intercepting TLS: no authority is configured")
	}
	p.Scheme = "https"
	in := &innerConn{Tunnel: t, connect: p, client: ctx.Value(connKey{})}
	secure := tls.Server(in, s.tls)
	bounded, cancel := context.WithTimeout(ctx, s.handshake)
	defer cancel()
	if err := secure.HandshakeContext(bounded); err != nil {
		_ = t.Close()
		return &HandshakeError{Reason: handshakeReason(in, err), Err: err}
	}
	if secure.ConnectionState().NegotiatedProtocol == "h2" {
		return s.serve(ctx, t, secure) // net/http speaks HTTP/2 only over a [tls.Conn]
	}
	return s.serve(ctx, t, Strict(secure))
}

func (s *Interceptor) serve(ctx context.Context, t *Tunnel, conn net.Conn) error {
	defer func() { _ = t.Close() }()
	if !s.listener.offer(conn) {
		return http.ErrServerClosed
	}
	select {
	case <-t.Done():
		return nil
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return fmt.Errorf("serving a tunnel: %w", cause)
		}
		return nil // a client that closes its HTTP/2 stream cancels ctx
	}
}

// Shutdown accepts no more tunnels, closes the idle ones and waits for the requests of the others
// until ctx ends; then it closes these too. Connections that were upgraded to WebSocket stay open.
func (s *Interceptor) Shutdown(ctx context.Context) error {
	err := s.server.Shutdown(ctx)
	if err != nil {
		_ = s.server.Close()
		err = fmt.Errorf("ending intercepted connections: %w", err)
	}
	s.serving.Wait()
	return err
}

// HandshakeReason is the reason for a failed handshake inside a tunnel.
type HandshakeReason string

// The reasons, stable for logs and metrics.
const (
	HandshakeUntrusted HandshakeReason = "untrusted" // the client does not trust the gateway's authority
	HandshakeName      HandshakeReason = "name"      // SNI asks for another host than CONNECT did
	HandshakeVersion   HandshakeReason = "version"   // no common TLS version; the lowest is 1.2
	HandshakeProtocol  HandshakeReason = "protocol"  // no common application protocol
	HandshakeTimeout   HandshakeReason = "timeout"   // not done in time
	HandshakeClosed    HandshakeReason = "closed"    // the client left; for some this means distrust
	HandshakeNotTLS    HandshakeReason = "not_tls"   // began like TLS but is not
	HandshakeMint      HandshakeReason = "mint"      // no certificate could be made
	HandshakeOther     HandshakeReason = "other"
)

// HandshakeError says that a client's handshake inside a tunnel failed.
type HandshakeError struct {
	Reason HandshakeReason
	Err    error
}

func (e *HandshakeError) Error() string {
	return "handshake inside a tunnel (" + string(e.Reason) + "): " + e.Err.Error()
}

func (e *HandshakeError) Unwrap() error { return e.Err }

func handshakeReason(in *innerConn, err error) HandshakeReason {
	var record tls.RecordHeaderError
	op, _ := errors.AsType[*net.OpError](err)
	text := err.Error()
	switch {
	case in.fronted:
		return HandshakeName
	case op != nil && op.Op == "remote error" && strings.Contains(text, "certificate"):
		return HandshakeUntrusted
	case strings.Contains(text, "unsupported versions"):
		return HandshakeVersion
	case strings.Contains(text, "application protocol"):
		return HandshakeProtocol
	case strings.Contains(text, "minting for "):
		return HandshakeMint
	case errors.As(err, &record):
		return HandshakeNotTLS
	case isTimeout(err):
		return HandshakeTimeout
	case isReset(err), errors.Is(err, context.Canceled):
		return HandshakeClosed
	default:
		return HandshakeOther
	}
}

// tunnelListener hands tunnels to a server as its connections.
type tunnelListener struct {
	conns  chan net.Conn
	closed context.Context //nolint:containedctx // serves as a channel that may be closed twice
	cancel context.CancelFunc
}

// offer hands a connection over. It returns false when the listener has been closed.
func (l *tunnelListener) offer(c net.Conn) bool {
	select {
	case l.conns <- c:
		return true
	case <-l.closed.Done():
		return false
	}
}

func (l *tunnelListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed.Done():
		return nil, net.ErrClosed
	}
}

func (l *tunnelListener) Close() error {
	l.cancel()
	return nil
}

func (*tunnelListener) Addr() net.Addr { return textAddr("tunnels") }
