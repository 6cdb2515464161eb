package egress

import (
	"fmt"
	"net"
)

// closeWriter is a connection whose sending half can be closed alone.
type closeWriter interface{ CloseWrite() error }

// replayConn gives octets that were read ahead before those that still come.
type replayConn struct {
	net.Conn
	early []byte
}

// replay gives conn with early put back in front. Without early octets it is conn itself.
func replay(conn net.Conn, early []byte) net.Conn {
	if len(early) == 0 {
		return conn
	}
	return &replayConn{Conn: conn, early: early}
}

func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		if len(c.early) == 0 {
			c.early = nil
		}
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite closes the sending half.
func (c *replayConn) CloseWrite() error { return closeWrite(c.Conn) }

// closeWrite closes the sending half of a connection, or of the one that it holds, if it has one.
func closeWrite(c any) error {
	if cw, ok := c.(closeWriter); ok {
		return cw.CloseWrite()
	}
	if outer, ok := c.(net.Conn); ok {
		if inner := within(outer); inner != nil {
			return closeWrite(inner)
		}
	}
	return fmt.Errorf("closing the sending half of %T: %w", c, errNoHalfClose)
}
