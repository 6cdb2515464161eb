package crawlgate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/enforce/pace"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
)

// firstOctet bounds the wait for what a client says first in its tunnel. Servers that speak first have no business with
// crawlers.
const firstOctet = 30 * time.Second

// connect is a CONNECT on its way through the gateway.
type connect struct {
	*exchange
	origin  origin.Origin
	tunnel  *tunnel
	server  *tunnelServer // while it is open
	conn    *egress.Tunnel
	dialed  net.Conn // towards the origin, where it was dialed before the answer
	granted pace.Slot
}

// serveConnect takes a CONNECT. Where it may be looked into, it is accepted and all else is decided inside, where
// clients see the answers (clients.md 18). Where not, it is opened only for an agent that the site restricts nowhere.
// What comes is known from the first octet only: plain HTTP, which several clients send this way too (clients.md 5),
// is enforced like any other request, whatever the policy for CONNECT.
func (h *Handler) serveConnect(x *exchange) error {
	x.decision.UserAgent = x.r.UserAgent()
	o, err := connectOrigin(x.r)
	if err != nil {
		return x.refuse(x.decision.Refuse(enforce.ReasonBadTarget, err.Error(), 0))
	}
	c := &connect{exchange: x, origin: o, tunnel: &tunnel{home: h.site, began: x.began, from: senderOf(x.r)}}
	if h.tunnels == nil {
		x.decision.Origin = o
		return x.refuse(x.decision.Refuse(enforce.ReasonConnectDenied, "the handler runs outside of a server", 0))
	}
	// All that the client will show of itself is here.
	id := h.site.Identifier.Opaque(x.r.Context(), c.tunnel.from)
	agent := id.KillName()
	if limit := h.site.Engine.Config.Limits.TunnelsPerAgent; !tunnels.Enter(agent, limit) {
		return x.refuseExcess(id, o, fmt.Sprintf("%d tunnels are open", limit))
	}
	defer tunnels.Leave(agent)
	if h.site.Operator.Connect(o) == enforce.ConnectIntercept {
		_, step := startStep(x.ctx, spanDecide)
		x.decision = h.site.Enforcer.DecideIntercept(c.tunnel.sentBy(x.r.Context(), h.site.Identifier), o)
		step.decided(x.decision)
		x.decision.UserAgent = x.r.UserAgent()
		if x.decision.Verdict != enforce.Allow {
			return x.refuse(x.decision)
		}
		return c.open(c.intercept)
	}
	x.identity = id
	x.enter(o)
	handleTLS := c.relay
	if o.Port == httpPort {
		// A plain server would keep a fetch by https waiting for its part of the handshake.
		x.decision, handleTLS = h.site.Enforcer.DecideOpening(x.identity, o), c.decideAndRelay
	} else {
		c.decide(x.ctx)
	}
	if x.decision.Verdict != enforce.Allow && !x.decision.MayBePlain() {
		return x.refuse(x.decision)
	}
	if x.decision.Verdict == enforce.Allow && o.Port == httpsPort {
		// A failure to connect can be told only before the 200.
		if d, failed := c.dial(); failed {
			return x.refuse(d)
		}
	}
	return c.open(handleTLS)
}

const (
	httpPort  = 80
	httpsPort = 443
)

// connectOrigin reads the target of a CONNECT as an https origin.
func connectOrigin(r *http.Request) (origin.Origin, error) {
	authority, err := egress.ConnectAuthority(r)
	if err != nil {
		return origin.Origin{}, err
	}
	return origin.FromAuthority("https", authority)
}

// open answers 200, looks at the first octet, and has TLS handled by the given function.
func (c *connect) open(handleTLS func()) error {
	defer c.hangUp()
	server, leave, err := enterTunnelServer(c.h.tunnels.limits, c.r)
	if err != nil {
		return c.refuse(c.decision.Refuse(enforce.ReasonInternal, err.Error(), 0))
	}
	defer leave()
	c.server = server
	liftIdleLimits(c.r)
	if c.conn, err = egress.Accept(c.w, c.r); err != nil {
		return c.refuse(c.decision.Refuse(enforce.ReasonInternal, err.Error(), 0))
	}
	defer engine.TunnelOpened()()
	ctx, done := endingWith(c.ctx, server.draining)
	defer done()
	first, err := c.conn.First(ctx, firstOctet)
	engine.TunnelSpoke(string(first))
	switch {
	case c.ended(ctx):
		c.end(context.Cause(ctx))
	case err != nil || first == egress.FirstSilent || first == egress.FirstClosed:
		c.decision.Detail = "the client said nothing in the tunnel"
	case first == egress.FirstHTTP:
		c.servePlain()
	case first == egress.FirstTLS:
		handleTLS()
	default:
		c.decision = c.decision.Refuse(enforce.ReasonBadTarget, "neither TLS nor HTTP in the tunnel", 0)
	}
	return nil
}

// endingWith gives a context that ends with either of two, and with the cause of that one. The caller must call done.
func endingWith(ctx, other context.Context) (both context.Context, done func()) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() {
		stop()
		cancel(nil)
	}
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
func (c *connect) inside() *egress.ConnectContext {
	return &egress.ConnectContext{Host: c.origin.Host, Port: c.origin.Port, Outer: c.r, Minter: c.h.minter, Value: c.tunnel}
}

// servePlain serves the requests of plain HTTP.
func (c *connect) servePlain() {
	c.decision.Detail = "plain HTTP in the tunnel; each request has its own line"
	// Not under c.ctx: an order of the kill switch is told to each request inside.
	ctx, done := endingWith(c.r.Context(), c.server.cut)
	defer done()
	c.end(c.server.ServePlain(ctx, c.conn, c.inside()))
}

// intercept ends TLS and has the requests inside served.
func (c *connect) intercept() {
	ctx, done := endingWith(c.r.Context(), c.server.cut)
	defer done()
	err := c.server.ServeTLS(ctx, c.conn, c.inside())
	var handshake *egress.HandshakeError
	if !errors.As(err, &handshake) {
		c.end(err)
		return
	}
	engine.HandshakeFailed(string(handshake.Reason))
	detail := "TLS handshake failed: " + string(handshake.Reason)
	if handshake.Reason == egress.HandshakeName {
		c.decision = c.decision.Refuse(enforce.ReasonMisdirected, "the TLS handshake names another host than the tunnel", 0)
		return
	}
	c.decision.Detail = detail
}

// decide asks for the rules that hold for the tunnel if TLS comes.
func (c *connect) decide(ctx context.Context) {
	ctx, step := startStep(ctx, spanDecide)
	c.decision = c.h.site.Enforcer.DecideTunnel(ctx, c.identity, c.origin)
	step.decided(c.decision)
}

// decideAndRelay is relay for a tunnel that was opened without the rules.
func (c *connect) decideAndRelay() {
	ctx, done := endingWith(c.ctx, c.server.cut)
	defer done()
	c.decide(ctx)
	c.decision = c.stopped(c.decision)
	c.relay()
}

// relay passes TLS through unseen. The name that the client asks for inside must be the one that was judged: else a
// tunnel to one host of a shared server would reach another (domain fronting).
func (c *connect) relay() {
	if c.decision.Verdict != enforce.Allow {
		return // it was accepted for plain HTTP only; the log says why TLS is refused
	}
	ctx, done := endingWith(c.ctx, c.server.cut)
	defer done()
	name, err := c.conn.ServerName(ctx, firstOctet)
	switch {
	case c.ended(ctx):
		c.end(context.Cause(ctx))
		return
	case err != nil:
		c.decision = c.decision.Refuse(enforce.ReasonBadTarget, "no readable TLS handshake in the tunnel", 0)
		return
	case name == "" && !c.toAddress():
		c.decision = c.decision.Refuse(enforce.ReasonMisdirected, "the TLS handshake names no host", 0)
		return
	case name != "" && !c.named(name):
		c.decision = c.decision.Refuse(enforce.ReasonMisdirected, "the TLS handshake names another host than the tunnel", 0)
		return
	}
	if c.dialed == nil {
		if d, failed := c.dial(); failed {
			c.decision = c.stopped(d)
			return
		}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ctx, old := context.WithDeadlineCause(ctx, c.began.Add(c.h.site.Engine.Config.Limits.TunnelAge), errTooOld)
	defer old()
	go c.watch(ctx, cancel)
	c.end(c.conn.Relay(ctx, c.dialed, 0))
}

// errTooOld is why a blind tunnel ends after a day or another time that the operator chose.
var errTooOld = errors.New("it is older than tunnel_age")

// errNotReopened is why a blind tunnel ends at a reload.
var errNotReopened = errors.New("the configuration loaded since would not open it")

// watch ends a blind tunnel as soon as a configuration is in force that would not have opened it.
func (c *connect) watch(ctx context.Context, end context.CancelCauseFunc) {
	for s := c.h.site; ; {
		select {
		case <-s.Life.Done():
		case <-ctx.Done():
			return
		}
		next := s.Successors()
		if len(next) == 0 || slices.ContainsFunc(next, func(s *engine.SitePolicy) bool { return !c.stillAllowed(ctx, s) }) {
			end(errNotReopened)
			return
		}
		s = next[0]
	}
}

// stillAllowed reports whether a site would open the tunnel for the same agent without looking inside.
func (c *connect) stillAllowed(ctx context.Context, s *engine.SitePolicy) bool {
	if s.Operator.Connect(c.origin) == enforce.ConnectIntercept || !s.Admits(c.tunnel.from.Source) {
		return false
	}
	id := s.Identifier.Opaque(ctx, c.tunnel.from)
	return id.KillName() == c.identity.KillName() && s.Enforcer.DecideTunnel(ctx, id, c.origin).Verdict == enforce.Allow
}

// named reports whether the server name of a handshake is the tunnel's host. An address has no server name, but some
// clients send it as one (clients.md 9).
func (c *connect) named(serverName string) bool {
	o, err := origin.FromAuthority("https", strings.TrimSuffix(serverName, "."))
	return err == nil && o.Host == c.origin.Host
}

// toAddress reports whether the tunnel is to an address, for which a handshake has no server name (RFC 6066 section 3).
func (c *connect) toAddress() bool {
	_, err := netip.ParseAddr(c.origin.Host)
	return err == nil
}

// ended reports whether a context of the tunnel ended by the gateway's doing.
func (c *connect) ended(ctx context.Context) bool {
	return ctx.Err() != nil && c.r.Context().Err() == nil
}

// end notes how a tunnel ended. A client that has left is no news. But over HTTP/2 the context of its request also ends when
// the gateway closes its own end first.
func (c *connect) end(err error) {
	stop := engine.StoppedBy(c.ctx)
	switch {
	case err == nil:
	case stop != nil:
		c.decision = c.decision.Refuse(enforce.ReasonKillSwitch, stop.Error(), 0)
	case c.r.Context().Err() == nil, errors.Is(err, errNotReopened), errors.Is(err, errTooOld), errors.Is(err, errStopping):
		c.decision.Detail = fmt.Sprintf("the tunnel ended early: %v", err)
	}
}

// dial waits for the host's turn and connects. Where that fails it gives the decision to answer with.
func (c *connect) dial() (d enforce.Decision, failed bool) {
	slot, err := c.h.pace(c.exchange, c.origin)
	if err != nil {
		return c.decision.RefuseSlot(c.ctx, err), true
	}
	_, step := startStep(c.ctx, spanDial)
	conn, err := c.h.site.Engine.Transport().DialTunnel(c.ctx, c.origin.Host, c.origin.Port)
	if err != nil {
		failure := egress.ClassifyDial(err)
		step.endFailed(reasonOf(failure), failure)
		if failure.NeverReached() {
			slot.Cancel()
		}
		slot.Done()
		return c.decision.Refuse(reasonOf(failure), failure.Err.Error(), 0), true
	}
	slot.Sent() // what counts for the site is when the connection reached it
	c.dialed, c.granted = conn, slot
	c.sent.Dialed, _ = egress.DialedOf(conn)
	step.dialed(conn)
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
