package crawlgate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/enforce/pace"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// firstOctet bounds the wait for what a client says first in its tunnel. Servers that speak first have no business with
// crawlers.
const firstOctet = 30 * time.Second

// connect is a CONNECT on its way through the gateway.
type connect struct {
	*exchange
	origin  origin.Origin
	sender  enforce.Tunnel
	conn    *egress.Tunnel
	dialed  net.Conn // towards the origin, where it was dialed before the answer
	granted pace.Slot
}

// serveConnect takes a CONNECT. Where it may be looked into, it is accepted and all else is decided inside, where
// clients see the answers (clients.md 18). Where not, it is opened only for an agent that the site restricts nowhere.
// What comes is known from the first octet only: plain HTTP, which several clients send this way too (clients.md 5),
// is enforced like any other request, whatever the policy for CONNECT.
func (h *Handler) serveConnect(x *exchange) error {
	x.decision.UserAgent = userAgent(x.r)
	o, err := connectOrigin(x.r)
	if err != nil {
		return x.refuse(x.decision.Refuse(enforce.ReasonBadTarget, err.Error(), 0))
	}
	c := &connect{exchange: x, origin: o, sender: h.identifier.Tunnel(x.r.Context(), evidence(x.r))}
	if h.interceptor == nil {
		x.decision.Origin = o
		return x.refuse(x.decision.Refuse(enforce.ReasonConnectDenied, "the handler runs outside of a server", 0))
	}
	if h.operator.Connect(o) == enforce.ConnectIntercept {
		x.decision = h.enforcer.DecideIntercept(c.sender, o)
		x.decision.UserAgent = userAgent(x.r)
		if x.decision.Verdict != enforce.Allow {
			return x.refuse(x.decision)
		}
		return c.open(c.intercept)
	}
	// All that the client will show of itself is here.
	x.identity = h.identifier.Opaque(x.r.Context(), evidence(x.r))
	x.enter(o)
	x.decision = h.enforcer.DecideTunnel(x.ctx, x.identity, o)
	if x.decision.Verdict != enforce.Allow && !mayBePlain(x.decision) {
		return x.refuse(x.decision)
	}
	if x.decision.Verdict == enforce.Allow && o.Port == httpsPort {
		// A failure to connect can be told only before the 200.
		if d, failed := c.dial(); failed {
			return x.refuse(d)
		}
	}
	return c.open(c.relay)
}

const (
	httpPort  = 80
	httpsPort = 443
)

// connectOrigin reads the target of a CONNECT as an https origin. It is a host and a port and nothing else (RFC 9112
// section 3.2.3); net/http is content with less, and finds the rest in Host.
func connectOrigin(r *http.Request) (origin.Origin, error) {
	if _, port, err := net.SplitHostPort(r.Host); err != nil || port == "" {
		return origin.Origin{}, errors.New("CONNECT needs a host and a port")
	}
	if u := r.URL; u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery {
		return origin.Origin{}, errors.New("CONNECT takes a host and a port, and nothing else")
	}
	return origin.FromAuthority("https", r.Host)
}

// mayBePlain reports whether a CONNECT whose TLS is refused should be accepted all the same, because what comes may be
// plain HTTP: at any port but that of https, unless something there speaks TLS and its rules are known.
func mayBePlain(d enforce.Decision) bool {
	port := d.Origin.Port
	if d.Reason == enforce.ReasonConnectDenied {
		return port != httpsPort
	}
	noTLS := d.Cause == fetch.CauseTLS || d.Cause == fetch.CauseProtocol || d.Cause == fetch.CauseReset
	return d.Reason == enforce.ReasonUnreachable && (port == httpPort || port != httpsPort && noTLS)
}

// open answers 200, looks at the first octet, and has TLS handled by the given function.
func (c *connect) open(handleTLS func(context.Context)) error {
	defer c.hangUp()
	liftIdleLimits(c.r)
	var err error
	if c.conn, err = egress.Accept(c.w, c.r); err != nil {
		return c.refuse(c.decision.Refuse(enforce.ReasonInternal, err.Error(), 0))
	}
	instruments.tunnelsOpen.Inc()
	defer instruments.tunnelsOpen.Dec()
	first, err := c.conn.First(c.ctx, firstOctet)
	instruments.tunnels.WithLabelValues(first.String()).Inc()
	switch {
	case stopOf(c.ctx) != nil:
		c.end(context.Cause(c.ctx))
	case err != nil || first == egress.FirstSilent || first == egress.FirstClosed:
		c.decision.Detail = "the client said nothing in the tunnel"
	case first == egress.FirstHTTP:
		c.decision.Detail = "plain HTTP in the tunnel; each request has its own line"
		// Not under c.ctx: an order of the kill switch is told to each request inside.
		c.end(c.h.interceptor.ServePlain(c.r.Context(), c.conn, c.inside()))
	case first == egress.FirstTLS:
		handleTLS(c.ctx)
	default:
		c.decision = c.decision.Refuse(enforce.ReasonBadTarget, "neither TLS nor HTTP in the tunnel", 0)
	}
	return nil
}

// hangUp closes whatever is open.
func (c *connect) hangUp() {
	if c.conn != nil {
		_ = c.conn.Close()
	}
	if c.dialed != nil {
		_ = c.dialed.Close()
	}
	c.granted.Done()
}

// inside is what the requests inside know of their tunnel.
func (c *connect) inside() *egress.Passage {
	return &egress.Passage{Host: c.origin.Host, Port: c.origin.Port, Outer: c.r, Value: c.sender}
}

// intercept ends TLS and has the requests inside served.
func (c *connect) intercept(ctx context.Context) {
	err := c.h.interceptor.ServeTLS(ctx, c.conn, c.inside())
	var handshake *egress.HandshakeError
	if !errors.As(err, &handshake) {
		c.end(err)
		return
	}
	instruments.handshakes.WithLabelValues(string(handshake.Reason)).Inc()
	detail := "TLS handshake failed: " + string(handshake.Reason)
	if handshake.Reason == egress.HandshakeName {
		c.decision = c.decision.Refuse(enforce.ReasonMisdirected, "the TLS handshake names another host than the tunnel", 0)
		return
	}
	c.decision.Detail = detail
}

// relay passes TLS through unseen. The name that the client asks for inside must be the one that was judged: else a
// tunnel to one host of a shared server would reach another (domain fronting).
func (c *connect) relay(ctx context.Context) {
	if c.decision.Verdict != enforce.Allow {
		return // it was accepted for plain HTTP only; the log says why TLS is refused
	}
	hello, err := c.conn.ClientHello(ctx, firstOctet)
	switch {
	case stopOf(ctx) != nil:
		c.end(context.Cause(ctx))
		return
	case err != nil:
		c.decision = c.decision.Refuse(enforce.ReasonBadTarget, "no readable TLS handshake in the tunnel", 0)
		return
	case hello.ServerName != "" && !c.named(hello.ServerName):
		c.decision = c.decision.Refuse(enforce.ReasonMisdirected, "the TLS handshake names another host than the tunnel", 0)
		return
	}
	if c.dialed == nil {
		if d, failed := c.dial(); failed {
			c.decision = c.stopped(d)
			return
		}
	}
	c.end(c.conn.Relay(ctx, c.dialed, 0))
}

// named reports whether the server name of a handshake is the tunnel's host. An address has no server name, but some
// clients send it as one (clients.md 9).
func (c *connect) named(serverName string) bool {
	o, err := origin.FromAuthority("https", strings.TrimSuffix(serverName, "."))
	return err == nil && o.Host == c.origin.Host
}

// end notes how a tunnel ended.
func (c *connect) end(err error) {
	if err == nil || errors.Is(err, http.ErrServerClosed) || c.r.Context().Err() != nil {
		return
	}
	if stop := stopOf(c.ctx); stop != nil {
		c.decision = c.decision.Refuse(enforce.ReasonKillSwitch, stop.Error(), 0)
		return
	}
	c.decision.Detail = fmt.Sprintf("the tunnel ended early: %v", err)
}

// dial waits for the host's turn and connects. Where that fails it gives the decision to answer with.
func (c *connect) dial() (d enforce.Decision, failed bool) {
	slot, err := c.h.pace(c.exchange, c.origin)
	if err != nil {
		return c.late(err), true
	}
	conn, err := c.h.app.transport.DialTunnel(c.ctx, c.origin.Host, c.origin.Port)
	if err != nil {
		slot.Done()
		failure := egress.ClassifyDial(err)
		return c.decision.Refuse(reasonOf(failure), failure.Err.Error(), 0), true
	}
	slot.Sent() // what counts for the site is when the connection reached it
	c.dialed, c.granted = conn, slot
	c.sent.Dialed, _ = egress.DialedOf(conn)
	return enforce.Decision{}, false
}

// noLimit stands for none: the server takes a limit of 0 for one that has passed already.
const noLimit = 365 * 24 * time.Hour

// liftIdleLimits keeps the server's limits for idle bodies from cutting an HTTP/2 tunnel, whose body is the tunnel. What
// is inside has limits of its own.
func liftIdleLimits(r *http.Request) {
	read, write := caddyhttp.IdleTimeoutsFromContext(r.Context())
	if read != nil {
		read.Override(noLimit, 0)
	}
	if write != nil {
		write.Override(noLimit, 0, 0)
	}
}
