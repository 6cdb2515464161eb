package crawlgate

import (
	"context"
	"net"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/egress"
)

func init() { caddy.RegisterModule(new(Listener)) }

const (
	// coldRate is how many connections that are new, or were idle for coldAfter, each CPU takes in a second. Their
	// first request costs it some 100 µs, and the fetch of robots.txt as much again. So half of its time is left for connections in use when ten
	// thousand others wake up in one moment.
	coldRate = 2000
	// coldBurst is how many of them may come at once.
	coldBurst = 16
	// coldAfter is longer than the pauses of a crawler that keeps its connections.
	coldAfter = 5 * time.Second
)

// coldReads bounds the rate of the process, whichever configuration a listener belongs to: what they share is the CPUs.
var coldReads = rate.NewLimiter(rate.Limit(coldRate*runtime.GOMAXPROCS(0)), coldBurst)

// Listener is the listener wrapper `robots`, which bounds what clients may take of the gateway before it has read a
// request: how many connections begin in a second. It also refuses requests whose length can be understood in two ways. The directive `robots` sets it by itself, unless the global option
// `servers` has been given: that replaces all wrappers, and has to name it among its own.
// It comes after `tls`, where that is named.
//
//	servers {
//		listener_wrappers {
//			robots
//		}
//	}
type Listener struct{}

// CaddyModule returns the Caddy module information.
func (*Listener) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.robots", New: func() caddy.Module { return new(Listener) }}
}

// UnmarshalCaddyfile reads the line `robots`.
func (*Listener) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the wrapper's name
	if d.NextArg() || d.NextBlock(d.Nesting()) {
		return d.Errf(`listener wrapper "robots" takes nothing, found %q`, d.Val())
	}
	return nil
}

// WrapListener implements caddy.ListenerWrapper.
func (*Listener) WrapListener(l net.Listener) net.Listener {
	listening.Changed()
	return boundedListener{l}
}

type boundedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l boundedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return egress.Strict(&boundedConn{Conn: c}), nil
}

// boundedConn is a client's connection whose first read, and each after a pause, waits for coldReads.
type boundedConn struct {
	net.Conn
	last atomic.Int64 // when something was read last, in nanoseconds since the epoch; 0: nothing yet
}

// Read implements net.Conn.
func (c *boundedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		now := time.Now().UnixNano()
		if now-c.last.Swap(now) > int64(coldAfter) {
			_ = coldReads.Wait(context.Background()) // fails only for more than the burst
		}
	}
	return n, err
}

// NetConn returns the connection within, as that of crypto/tls does.
func (c *boundedConn) NetConn() net.Conn { return c.Conn }

// Interface guards.
var (
	_ caddy.ListenerWrapper = (*Listener)(nil)
	_ caddyfile.Unmarshaler = (*Listener)(nil)
)
