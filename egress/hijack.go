package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

type connKey struct{}

// WithConn notes in a context over which connection its requests come; it has the form of
// [http.Server]'s ConnContext. Servers that wrap the connection which they give up to a handler
// (Caddy does, to count its bytes) hide that one of its halves can be closed alone. Only a connection
// noted here lets tunnels and upgraded connections of HTTP/1.1 end one direction before the other
// then.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	if strict := strictOf(conn); strict != nil {
		conn = strict // the server's wrapping hides what is within
	}
	return context.WithValue(ctx, connKey{}, conn)
}

// notedConn returns the connection that was noted for a request, conn if none was.
func notedConn(r *http.Request, conn net.Conn) net.Conn {
	if noted, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		return noted
	}
	return conn
}

// replayConn is a connection of which some bytes were read ahead: they come before the others.
type replayConn struct {
	net.Conn
	early  []byte
	within net.Conn // what Conn wraps, as far as it is known; its sending half can close alone
}

// Read implements [net.Conn].
func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.early) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.early)
	if c.early = c.early[n:]; len(c.early) == 0 {
		c.early = nil
	}
	return n, nil
}

// NetConn returns the connection within, as the method of crypto/tls does.
func (c *replayConn) NetConn() net.Conn { return c.within }

// CloseWrite closes the sending half.
func (c *replayConn) CloseWrite() error { return closeWrite(c.within) }

// hijack takes the client's connection over, free of deadlines, and with what the server has read of
// it already put back in front.
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
	return &replayConn{Conn: conn, early: early, within: notedConn(r, conn)}, nil
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

// find returns the outermost connection of type T that c is or holds by methods NetConn.
func find[T any](c any) (found T, ok bool) {
	for c != nil {
		if found, ok = c.(T); ok {
			return found, true
		}
		holder, holds := c.(interface{ NetConn() net.Conn })
		if !holds {
			break
		}
		c = holder.NetConn()
	}
	return found, false
}

// closeWrite closes the sending half of a connection, or of one that it holds, if it has one.
func closeWrite(c any) error {
	if half, ok := find[interface{ CloseWrite() error }](c); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("closing the sending half of %T: %w", c, errNoHalfClose)
}

// breakOff resets the TCP connection or the HTTP/2 stream that c comes by. TLS on the way is not
// closed: its goodbye would be a regular end.
func breakOff(c net.Conn) {
	if in, ok := find[*innerConn](c); ok {
		c = in.conn
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
