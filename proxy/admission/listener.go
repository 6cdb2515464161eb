// Package admission is the listener wrapper `robots`. It limits how many connections clients may
// have, and how fast they may start new ones.
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
	// CPU accepts per second. Their first request costs about 100 µs, and the fetch of robots.txt
	// as much again. So half of the CPU time is left for active connections when ten thousand
	// others wake up at once.
	coldRate = 2000
	// coldRateOfAll leaves a quarter of the total to sources other than the busiest one.
	coldRateOfAll = coldRate * 4 / 3
	// coldBurst is how many of these connections may come at once.
	coldBurst = 16
	// coldAfter is longer than the pauses of a crawler that keeps its connections.
	coldAfter = 5 * time.Second
)

// coldReads bounds the rate of the process, for listeners of all configurations, because they share
// the CPUs. sourceReads bounds the rate of each source, so that no single source makes others wait.
// A hash picks the limiter of a source, so the number of limiters is bounded. Two sources share a
// limiter with a chance of one in a thousand.
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

// waitCold waits for the turn of a cold read. A wait can fail only for more than the burst.
func waitCold(source netip.Prefix) {
	i := maphash.Comparable(sourceSeed, source) % uint64(len(sourceReads))
	_ = sourceReads[i].Wait(context.Background())
	_ = coldReads.Wait(context.Background())
}

// clients counts the open connections of the process, for all configurations: by source, and under
// the zero prefix in total.
var clients = openCount{open: make(map[netip.Prefix]int)}

// Listener is the listener wrapper `robots`. It limits how many client connections are open, in
// total and per source (the limits of the engine), and how many start per second. It also refuses
// requests whose length is ambiguous. The directive `robots` adds it automatically, unless the
// global option `servers` is given, which replaces all wrappers. Then name it there, after `tls` if
// that is named:
//
//	servers {
//		listener_wrappers {
//			robots
//		}
//	}
type Listener struct {
	limits engine.Limits
	logger *zap.Logger
	full   rate.Sometimes // limits the log lines about too many connections
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
		return d.Errf(`listener wrapper "robots" takes no argument, found %q`, d.Val())
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

// boundedConn is a client's connection. It counts from its first read, which net/http starts as
// soon as it has the connection, until it is closed. That read, and the first read after an answer
// and a pause, waits for its turn. The rest of a slow request needs no turns.
type boundedConn struct {
	net.Conn
	bounds  *Listener
	last    atomic.Int64 // time of the last read, in nanoseconds since the epoch; 0: nothing read yet
	begun   atomic.Bool  // it has waited, and there was no answer since
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

// enter counts the connection, or closes it. This does not happen in Accept, because behind the
// wrapper `proxy_protocol` it may have to wait for the client's address, and would hold up other
// connections.
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
	// refusalTimeout bounds the time to write an answer of a few hundred bytes to a new connection.
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
		// The deadline also covers reading, because with the PROXY protocol a write waits for the header.
		_ = c.SetDeadline(time.Now().Add(refusalTimeout))
		_, _ = io.WriteString(c.Conn, fullAnswer)
	}
	_ = c.Conn.Close()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.begin.Do(func() {}) // never count it
	if c.counted.Swap(false) {
		clients.Leave(netip.Prefix{})
		if c.source.IsValid() {
			clients.Leave(c.source)
		}
	}
	return err
}

// Unread reports that a request of the client was unreadable; net/http has answered it.
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

// openCount counts the open connections by source. It drops a source with its last connection, so
// there are never more sources than connections. It is safe for concurrent use.
type openCount struct {
	mu   sync.Mutex
	open map[netip.Prefix]int
}

// Enter adds one to the count of the source and reports true, unless the count has reached limit.
// After true, the caller must call Leave.
func (c *openCount) Enter(source netip.Prefix, limit int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[source] >= limit {
		return false
	}
	c.open[source]++
	return true
}

// Leave subtracts one.
func (c *openCount) Leave(source netip.Prefix) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open[source]--; c.open[source] <= 0 {
		delete(c.open, source)
	}
}
