package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"
)

// maxHello bounds what is read for a ClientHello, records included. Post-quantum key shares bring it
// to some 2 KiB today.
const maxHello = 64 << 10

var (
	errLongHello = errors.New("TLS ClientHello is too long")
	errHelloRead = errors.New("the ClientHello has been read")
)

// ServerName looks at the client's TLS ClientHello, waiting for the whole of it as long as timeout,
// and returns the name that it asks for (SNI, RFC 6066 section 3), as sent; empty for none. With
// Encrypted Client Hello it is the name of the outer hello, not of the site. The bytes stay to be
// read. ServerName is for tunnels that began with [FirstTLS]. The end of ctx closes the tunnel.
func (t *Tunnel) ServerName(ctx context.Context, timeout time.Duration) (string, error) {
	var name string
	conn := &helloConn{Tunnel: t, ctx: ctx, deadline: time.Now().Add(timeout)}
	err := tls.Server(conn, &tls.Config{
		MinVersion: tls.VersionTLS12, // of no effect: the hello is not answered
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

// helloConn lets crypto/tls look at what lies ahead in a tunnel. What it writes goes nowhere.
type helloConn struct {
	*Tunnel
	ctx      context.Context //nolint:containedctx // of one call of ServerName
	deadline time.Time
	read     int // bytes of Tunnel.ahead that were read
}

// Read implements [net.Conn].
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

// Write implements [net.Conn].
func (*helloConn) Write(p []byte) (int, error) { return len(p), nil }
