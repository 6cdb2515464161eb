package crawlgate

import (
	"context"
	"net"
	"reflect"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/intake"
)

func init() { caddy.RegisterModule(Turns{}) }

// arrivals gives turns to all that reaches the process, whichever configuration it is for: what they share is the CPUs.
var arrivals = intake.New(func(d time.Duration) { instruments.turnWait.Observe(d.Seconds()) })

// Turns is the listener wrapper `robots`: what clients send is taken in by turns (package intake), so that a rush of
// requests to new sites does not keep those to known ones waiting. The directive `robots` sets it by itself, unless the
// global option `servers` has been given: that replaces all wrappers, and has to name it among its own. Of them it must be
// the first; TLS comes behind it.
//
//	servers {
//		listener_wrappers {
//			robots
//			tls
//		}
//	}
type Turns struct{}

// CaddyModule implements caddy.Module.
func (Turns) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.robots", New: func() caddy.Module { return new(Turns) }}
}

// UnmarshalCaddyfile reads the line `robots`.
func (*Turns) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the wrapper's name
	if d.NextArg() || d.NextBlock(d.Nesting()) {
		return d.Errf(`listener wrapper "robots" takes nothing, found %q`, d.Val())
	}
	return nil
}

// WrapListener implements caddy.ListenerWrapper.
func (Turns) WrapListener(l net.Listener) net.Listener { return turnsListener{l} }

type turnsListener struct{ net.Listener }

// Accept implements net.Listener. What is not TCP, or has been wrapped before, stays as it is.
func (l turnsListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok {
		return arrivals.Conn(tcp), err
	}
	return c, err
}

// watchTurns tells when a server's connections have none, by the first one over TCP. It asks the outer connection nothing: under
// the PROXY protocol that would wait for the client, and all others with it.
func watchTurns(server *caddyhttp.Server, logger *zap.Logger) {
	var once sync.Once
	server.RegisterConnContext(func(ctx context.Context, c net.Conn) context.Context {
		if _, without := innermost(c).(*net.TCPConn); without {
			once.Do(func() {
				logger.Warn("requests are not taken in by turns; name `robots` first in listener_wrappers of the global option servers, before `tls`")
			})
		}
		return ctx
	})
}

// innermost unwraps a connection as far as possible. What wraps it may be TLS, Caddy's check for HTTP/2, which has its inner one
// in an embedded field, or the PROXY protocol.
func innermost(c net.Conn) net.Conn {
	for {
		switch outer := c.(type) {
		case *intake.Conn, *net.TCPConn:
			return c
		case interface{ NetConn() net.Conn }:
			c = outer.NetConn()
			continue
		case interface{ Raw() net.Conn }:
			c = outer.Raw()
			continue
		}
		v := reflect.Indirect(reflect.ValueOf(c))
		if v.Kind() != reflect.Struct {
			return c
		}
		field := v.FieldByName("Conn")
		if !field.IsValid() || !field.CanInterface() {
			return c
		}
		inner, ok := reflect.TypeAssert[net.Conn](field)
		if !ok || inner == nil {
			return c
		}
		c = inner
	}
}

// Interface guards.
var (
	_ caddy.ListenerWrapper = (*Turns)(nil)
	_ caddyfile.Unmarshaler = (*Turns)(nil)
)
