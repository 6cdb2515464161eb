package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

type connKey struct{}

// WithConn notes in a context over which connection its requests come; it has the form of [http.Server]'s ConnContext.
// Servers that wrap the connection which they give up to a handler (Caddy does, to count its octets) hide that one of
// its halves can be closed alone. Only a connection noted here lets tunnels and upgraded connections of HTTP/1.1 end one
// direction before the other then.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	if strict := strictOf(conn); strict != nil {
		conn = strict // the server's wrapping hides what is within
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// notedConn gives the connection that was noted for a request, conn if none was.
func notedConn(r *http.Request, conn net.Conn) net.Conn {
	if noted, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		return noted
	}
	return conn
}

// hijacked is a connection that was taken from its server.
type hijacked struct {
	net.Conn
	half net.Conn // whose sending half closes
}

func (c *hijacked) CloseWrite() error { return closeWrite(c.half) }

// hijack takes the client's connection over, free of deadlines, and with what the server has read of it already put
// back in front.
func hijack(w http.ResponseWriter, r *http.Request) (net.Conn, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, fmt.Errorf("taking over the client's connection: %w", err)
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("freeing the client's connection from its deadline: %w", err)
	}
	early := make([]byte, rw.Reader.Buffered())
	if _, err := io.ReadFull(rw.Reader, early); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("taking over what the server has read: %w", err)
	}
	return replay(&hijacked{Conn: conn, half: notedConn(r, conn)}, early), nil
}
