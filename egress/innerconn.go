package egress

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// innerConn is a tunnel as the inner server sees it.
//
// net/http's HTTP/2 server flushes the header of a response before it looks at the body, although that comes at once: two
// records of TLS and two writes for an answer that fits into one packet. Where a body is announced the first write is
// therefore held for the next one.
type innerConn struct {
	*Tunnel
	connect    *ConnectContext
	serverName string
	fronted    bool

	more atomic.Bool // another write will follow the next one at once
	late atomic.Bool // the timer is writing

	mu     sync.Mutex
	held   *holdBuffer // nil if nothing is held
	n      int         // octets in it
	timer  *time.Timer // lets them go
	failed error       // of letting them go, for the next write
}

const (
	// holdSize bounds what is held, and what goes out with it.
	holdSize = 4 << 10
	// holdTime bounds for how long. It passes only where an origin stops between its header and its body.
	holdTime = time.Millisecond
)

type holdBuffer [holdSize]byte

var holdBuffers = sync.Pool{New: func() any { return new(holdBuffer) }}

// expectMore says that a response is about to be written whose body follows its header at once. Other responses may come in
// between in HTTP/2, so it may be one of theirs that is held instead: for less than holdTime, and none is lost or overtaken.
func (in *innerConn) expectMore() { in.more.Store(true) }

// Write is part of [net.Conn].
func (in *innerConn) Write(p []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.failed != nil {
		return 0, in.failed
	}
	if more := in.more.Swap(false); in.held == nil {
		if !more || len(p) > holdSize/2 {
			return in.Tunnel.Write(p)
		}
		in.hold(p)
		return len(p), nil
	}
	if in.n+len(p) > holdSize {
		if err := in.release(); err != nil {
			return 0, err
		}
		return in.Tunnel.Write(p)
	}
	in.n += copy(in.held[in.n:], p)
	if err := in.release(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// hold keeps p for the next write, or for holdTime.
func (in *innerConn) hold(p []byte) {
	in.held, _ = holdBuffers.Get().(*holdBuffer)
	in.n = copy(in.held[:], p)
	if in.timer == nil {
		in.timer = time.AfterFunc(holdTime, in.expire)
	} else {
		in.timer.Reset(holdTime)
	}
}

// expire is what the timer calls. It may come late, when something newer is held: that goes a little sooner then.
func (in *innerConn) expire() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.held != nil {
		in.late.Store(true)
		defer in.late.Store(false)
		_ = in.release() // the next write will tell
	}
}

// SetWriteDeadline is part of [net.Conn]. A deadline is what [tls.Conn.Close] begins with when it knows of no write under way,
// to say goodbye. That of the timer it does not know of: where the client takes nothing it would stand in the way for ever, so
// it is broken as one that TLS knows of would be. And behind a goodbye nothing follows.
func (in *innerConn) SetWriteDeadline(at time.Time) error {
	if !at.IsZero() {
		in.more.Store(false)
		if in.late.Load() {
			return in.Close()
		}
	}
	return in.Tunnel.SetWriteDeadline(at)
}

// release writes what is held.
func (in *innerConn) release() error {
	in.timer.Stop()
	_, in.failed = in.Tunnel.Write(in.held[:in.n])
	holdBuffers.Put(in.held)
	in.held, in.n = nil, 0
	return in.failed
}

// connContext gives each inner request its ConnectContext.
func connContext(ctx context.Context, c net.Conn) context.Context {
	ctx = WithConn(ctx, c)
	for ; c != nil; c = within(c) {
		if in, ok := c.(*innerConn); ok {
			return context.WithValue(ctx, connectKey{}, in.connect)
		}
	}
	return ctx
}
