package intake

import (
	"context"
	"net"
	"sync/atomic"
	"time"
)

// Conn is a TCP connection of which a read takes a turn before it returns what it read. How long that may be is up to the
// CPUs; deadlines bound the wait for octets only. A turn is good for what is read within slice, so that a stream of
// octets does not ask for each of them.
type Conn struct {
	*net.TCPConn
	intake *Intake
	first  atomic.Int64 // when something was read first, in nanoseconds since start; 0: nothing yet
	last   atomic.Int64 // when it had its last turn
}

// slice is short enough for a few of them to keep nobody waiting noticeably.
const slice = time.Millisecond

// start is what the connections' times are counted from: durations since then are monotonic.
var start = time.Now()

// Conn puts a connection under i, which may be nil.
func (i *Intake) Conn(c *net.TCPConn) *Conn { return &Conn{TCPConn: c, intake: i} }

// Read implements [net.Conn].
func (c *Conn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	if n > 0 {
		c.turn()
	}
	return n, err
}

// turn waits until the connection may go on.
func (c *Conn) turn() {
	now := time.Since(start)
	first := time.Duration(c.first.Load())
	switch {
	case first == 0:
		first = now
		c.first.Store(int64(now))
	case now-time.Duration(c.last.Load()) < slice:
		return
	}
	if !c.intake.free() {
		c.intake.wait(context.Background(), standing(now-first))
		now = time.Since(start)
	}
	c.last.Store(int64(now))
}

// standing is the class of a connection that has spoken for a time.
func standing(spoken time.Duration) Class {
	if spoken < time.Second {
		return Newcomer
	}
	return Regular
}
