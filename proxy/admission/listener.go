// Package admission is the listener wrapper `robots`: how many connections clients may have, and
// how fast they may begin.
package admission

import (
	"context"
	"crypto/tls"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/sockets"
)

func init() { caddy.RegisterModule(new(Listener)) }

const (
	// coldRate is how many connections of one source that are new, or were idle for coldAfter, each
	// CPU takes in a second. Their first request costs it some 100 µs, and the fetch of robots.txt as
	// much again. So half of its time is left for connections in use when ten thousand others wake up
	// in one moment.
	coldRate = 2000
	// coldRateOfAll leaves a quarter of itself to other sources than the one that takes most.
	coldRateOfAll = coldRate * 4 / 3
	// coldBurst is how many of them may come at once.
	coldBurst = 16
	// coldAfter is longer than the pauses of a crawler that keeps its connections.
	coldAfter = 5 * time.Second
)

// coldReads bounds the rate of the process, whichever configuration a listener belongs to: what
// they share is the CPUs. sourceReads bounds that of each source, so that no single source makes
// others wait. A hash picks the limiter of a source, which bounds their number: two sources have
// the same one with a chance of one in a thousand.
var (
	coldReads   = newColdReads(coldRateOfAll)
	sourceReads [1024]*rate.Limiter
	sourceSeed  = maphash.MakeSeed()
)

func init() {
	for i := range sourceReads {
		sourceReads[i] = newColdReads(coldRate)
	}
}

func newColdReads(each int) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(each*runtime.GOMAXPROCS(0)), coldBurst)
}

// waitCold waits for the turn of a cold read. A wait fails only for more than the burst.
func waitCold(source netip.Prefix) {
	i := maphash.Comparable(sourceSeed, source) % uint64(len(sourceReads))
	_ = sourceReads[i].Wait(context.Background())
	_ = coldReads.Wait(context.Background())
}

// clients counts the open connections of the process, whichever configuration took them: of each
// source, and of all together by the zero prefix.
var clients = openCount{open: make(map[netip.Prefix]int)}

// Listener is the listener wrapper `robots`. It bounds how many connections of clients are open, in
// all and of one source (the limits of the engine), and how many begin in a second. It also refuses
// requests whose length is ambiguous. The directive `robots` sets it by itself, unless the global
// option `servers` is given, which replaces all wrappers. Then name it there, after `tls` if that is
// named:
//
//	servers {
//		listener_wrappers {
//			robots
//		}
//	}
type Listener struct {
	limits engine.Limits
	logger *zap.Logger
	full   rate.Sometimes // says that there are too many connections
}

// CaddyModule returns the Caddy module information.
func (*Listener) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.robots", New: func() caddy.Module { return new(Listener) }}
}

// Provision takes the limits of the engine.
func (l *Listener) Provision(ctx caddy.Context) error {
	e, err := engine.Of(ctx)
	if err != nil {
		return err
	}
	l.limits, l.logger = e.Config.Limits, ctx.Logger()
	l.full.Interval = time.Minute
	if server, ok := ctx.Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok {
		e.Wrapped(server)
	}
	return nil
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
func (l *Listener) WrapListener(inner net.Listener) net.Listener {
	sockets.Process.Changed()
	return boundedListener{inner, l}
}

type boundedListener struct {
	net.Listener
	bounds *Listener
}

func (l boundedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return egress.Strict(&boundedConn{Conn: c, bounds: l.bounds}), nil
}

// boundedConn is a client's connection. It is counted from its first read on, which net/http begins
// as soon as it has the connection, until it is closed. That read, and the first after an answer
// and a pause, waits for its turn. The rest of a request that arrives slowly costs no turns.
type boundedConn struct {
	net.Conn
	bounds  *Listener
	last    atomic.Int64 // when something was read last, in nanoseconds since the epoch; 0: nothing yet
	begun   atomic.Bool  // it has waited, and nothing was answered since
	begin   sync.Once
	counted atomic.Bool
	source  netip.Prefix // invalid for a client without an address
}

func (c *boundedConn) Read(p []byte) (int, error) {
	c.begin.Do(c.enter)
	n, err := c.Conn.Read(p)
	if n > 0 {
		now := time.Now().UnixNano()
		if now-c.last.Swap(now) > int64(coldAfter) && !c.begun.Swap(true) {
			waitCold(c.source)
		}
	}
	return n, err
}

func (c *boundedConn) Write(p []byte) (int, error) {
	c.begun.Store(false)
	return c.Conn.Write(p)
}

// enter counts the connection, or closes it. Behind the wrapper `proxy_protocol` the address of the
// client may have to be waited for, which would keep Accept from others.
func (c *boundedConn) enter() {
	limits := &c.bounds.limits
	if !clients.Enter(netip.Prefix{}, limits.Connections) {
		c.refuse("total", "connections")
		return
	}
	if addr, err := netip.ParseAddrPort(c.RemoteAddr().String()); err == nil {
		c.source = engine.NetworkOf(addr.Addr())
	}
	if c.source.IsValid() && !clients.Enter(c.source, limits.ConnectionsPerSource) {
		clients.Leave(netip.Prefix{})
		c.refuse("source", "connections_per_source")
		return
	}
	c.counted.Store(true)
}

const (
	// refusalTimeout bounds the writing of an answer of some hundred bytes to a new connection.
	refusalTimeout = time.Second
	fullBody       = "The gateway has too many connections, or too many of yours. Close those that you do not use, and come back after 5 s.\n"
)

var fullAnswer = fmt.Sprintf("HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 5\r\n"+
	"Proxy-Status: %s; error=http_request_denied; details=\"too many connections\"\r\nCache-Control: no-store\r\n"+
	"Content-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s", enforce.Name, len(fullBody), fullBody)

// refuse closes a connection over a limit. A client that expects TLS gets no answer.
func (c *boundedConn) refuse(reason, option string) {
	engine.ConnectionsRefusedTotal.WithLabelValues(reason).Inc()
	c.bounds.full.Do(func() {
		c.bounds.logger.Warn("connections of clients are refused: a limit is reached; said once a minute",
			zap.String("limit", option), zap.Stringer("source", c.source))
	})
	if _, secure := c.Conn.(interface{ ConnectionState() tls.ConnectionState }); !secure {
		// For reading too: to write, the PROXY protocol waits for its header.
		_ = c.SetDeadline(time.Now().Add(refusalTimeout))
		_, _ = io.WriteString(c.Conn, fullAnswer)
	}
	_ = c.Conn.Close()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.begin.Do(func() {}) // it is not counted any more
	if c.counted.Swap(false) {
		clients.Leave(netip.Prefix{})
		if c.source.IsValid() {
			clients.Leave(c.source)
		}
	}
	return err
}

// Unread says that a request of the client cannot be read; net/http has answered it.
func (c *boundedConn) Unread(answer string) {
	engine.RequestUnread(zap.String("answer", answer), zap.Stringer("source", c.RemoteAddr()))
}

// NetConn returns the connection within, as [tls.Conn] does.
func (c *boundedConn) NetConn() net.Conn { return c.Conn }

// Interface guards.
var (
	_ caddy.Provisioner     = (*Listener)(nil)
	_ caddy.ListenerWrapper = (*Listener)(nil)
	_ caddyfile.Unmarshaler = (*Listener)(nil)
)

// openCount counts the open connections of each source. It drops a source with its last connection,
// so there are never more sources than connections. It is safe for concurrent use.
type openCount struct {
	mu   sync.Mutex
	open map[netip.Prefix]int
}

// Enter counts one more of the source and reports true, unless there are as many as limit already.
// Whoever entered must call Leave.
func (c *openCount) Enter(source netip.Prefix, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[source] >= limit {
		return false
	}
	c.open[source]++
	return true
}

// Leave counts one less.
func (c *openCount) Leave(source netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[source]--; c.open[source] <= 0 {
		delete(c.open, source)
	}
}
