package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
)

// firstByte bounds the wait for the client's first byte in its tunnel. Crawlers do not need servers
// that speak first.
const firstByte = 30 * time.Second

const (
	httpPort  = 80
	httpsPort = 443

	detailOtherHost = "the TLS handshake names another host than the tunnel"
)

// connect is a CONNECT and the tunnel that it opens. The decision and the log record are its
// exchange's.
type connect struct {
	*exchange
	opens *tunnel // what requests inside inherit
	// relisted is closed when a file of hosts changes after the decision began.
	relisted <-chan struct{}
	client   *egress.Tunnel // nil until the CONNECT is accepted
	dialed   net.Conn       // to the origin; nil before the dial
}

// connect takes a CONNECT. If the gateway may intercept, it accepts the tunnel and decides about
// each request inside: many clients do not show the answer to a CONNECT, and all show the answers
// inside. Otherwise it opens the tunnel only for an agent that the site restricts nowhere. Only the
// first byte tells what the client speaks. Plain HTTP, which undici and got also send through a
// tunnel, is enforced like any other request, whatever the policy for CONNECT.
func (x *exchange) connect() error {
	s := x.site
	authority, err := egress.ConnectAuthority(x.r)
	if err != nil {
		return x.fail(enforce.ReasonBadTarget, err.Error())
	}
	o, err := origin.FromAuthority("https", authority)
	if err != nil {
		return x.fail(enforce.ReasonBadTarget, err.Error())
	}
	if s.tunnels == nil {
		x.decision.Origin = o
		return x.fail(enforce.ReasonConnectDenied, "the handler runs outside of a server")
	}
	x.target.Origin = o
	c := &connect{exchange: x, opens: &tunnel{home: s.SitePolicy, began: x.began, from: senderOf(x.r)}, relisted: s.Identifier.Relisted()}
	// A blind tunnel shows no more about the client than its CONNECT.
	id := s.Identifier.Opaque(x.ctx, c.opens.from)
	own := o.Host == enforce.OwnHost && s.minter != nil
	intercept := own || s.Operator.Connect(o) == enforce.ConnectIntercept
	if x.ctx, x.entry, err = s.Engine.EnterTunnel(x.ctx, o, id.StopName(), !intercept); err != nil {
		return x.refuseExcess(id, o, err.Error())
	}
	defer x.entry.Leave()
	if intercept {
		_, step := startStep(x.ctx, spanDecide)
		x.decision = s.Enforcer.DecideIntercept(c.opens.sentBy(x.ctx, s.Identifier), o)
		step.decided(&x.decision)
		x.decision.UserAgent = x.r.UserAgent()
		if !x.decision.Allowed {
			return x.refuse()
		}
		return c.open(c.intercept)
	}
	x.identity = id
	return c.openBlind()
}

// openBlind opens a tunnel that is relayed unseen if the client speaks TLS in it.
func (c *connect) openBlind() error {
	if c.target.Origin.Port == httpPort {
		// With a server of plain HTTP, a fetch over https would wait for the handshake.
		c.decision = c.site.Enforcer.DecideOpening(c.identity, c.target.Origin)
	} else {
		c.decide(c.ctx)
	}
	if !c.decision.Allowed && !c.decision.MayBePlain() {
		return c.refuse()
	}
	// A failure to connect can be reported only before the 200.
	if c.decision.Allowed && c.target.Origin.Port == httpsPort && !c.dialOrigin() {
		c.settle()
		return c.refuse()
	}
	return c.open(c.relay)
}

// open answers 200, looks at the first byte, and calls the given function for TLS.
func (c *connect) open(handleTLS func()) error {
	defer c.hangUp()
	server := c.site.tunnels
	defer server.enter(c.r)()
	liftIdleLimits(c.r)
	var err error
	if c.client, err = egress.Accept(c.w, c.r); err != nil {
		return c.fail(enforce.ReasonInternal, err.Error())
	}
	engine.TunnelsOpen.Inc()
	defer engine.TunnelsOpen.Dec()
	ctx, done := endingWith(c.ctx, server.draining)
	defer done()
	first := c.client.First(ctx, firstByte)
	engine.TunnelsTotal.WithLabelValues(string(first)).Inc()
	switch {
	case c.ended(ctx):
		c.end(context.Cause(ctx))
	case first == egress.FirstSilent || first == egress.FirstClosed:
		c.decision.Detail = "the client said nothing in the tunnel"
	case first == egress.FirstHTTP:
		c.servePlain()
	case first == egress.FirstTLS:
		handleTLS()
	default:
		c.deny(enforce.ReasonBadTarget, "neither TLS nor HTTP in the tunnel")
	}
	return nil
}

// endingWith returns a context that ends with either of two contexts, with the cause of that one.
// The caller must call done.
func endingWith(ctx, other context.Context) (both context.Context, done func()) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() {
		stop()
		cancel(nil)
	}
}

// noLimit stands for no limit, because the server treats 0 as a limit that has already passed.
const noLimit = 365 * 24 * time.Hour

// liftIdleLimits keeps the server's limits for idle bodies from cutting an HTTP/2 tunnel, whose
// body is the tunnel. Requests inside have limits of their own.
func liftIdleLimits(r *http.Request) {
	read, write := caddyhttp.IdleTimeoutsFromContext(r.Context())
	if read != nil {
		read.Override(noLimit, 0)
	}
	if write != nil {
		write.Override(noLimit, 0, 0)
	}
}

// hangUp closes the connections that are open.
func (c *connect) hangUp() {
	if c.client != nil {
		_ = c.client.Close()
	}
	if c.dialed != nil {
		_ = c.dialed.Close()
	}
	c.slot.Done()
	c.settle()
}

// inside returns what requests inside know about their tunnel.
func (c *connect) inside() *egress.ConnectContext {
	return &egress.ConnectContext{
		Host: c.target.Origin.Host, Port: c.target.Origin.Port, Outer: c.r, Minter: c.site.minter, Value: c.opens,
	}
}

func (c *connect) servePlain() {
	if c.budget != nil {
		c.budget.taken.Back() // the requests inside count
		c.budget = nil
	}
	if d := &c.decision; !d.PathVisible {
		waited := d.Wait
		*d = c.site.Enforcer.DecidePlain(c.identity, c.target.Origin)
		d.Wait = waited
	}
	c.decision.Detail = enforce.DetailPlain
	// Not under the exchange's context, because a stop ends each request inside by itself.
	ctx, done := endingWith(c.r.Context(), c.site.tunnels.cut)
	defer done()
	c.end(c.site.tunnels.ServePlain(ctx, c.client, c.inside()))
}

// intercept terminates TLS and serves the requests inside.
func (c *connect) intercept() {
	ctx, done := endingWith(c.r.Context(), c.site.tunnels.cut)
	defer done()
	err := c.site.tunnels.ServeTLS(ctx, c.client, c.inside())
	handshake, failed := errors.AsType[*egress.HandshakeError](err)
	if !failed {
		c.end(err)
		return
	}
	engine.HandshakeFailuresTotal.WithLabelValues(string(handshake.Reason)).Inc()
	if handshake.Reason == egress.HandshakeName {
		c.deny(enforce.ReasonMisdirected, detailOtherHost)
		return
	}
	c.decision.Detail = "TLS handshake failed: " + string(handshake.Reason)
}

// decide applies the rules for the tunnel once the client speaks TLS.
func (c *connect) decide(ctx context.Context) {
	ctx, step := startStep(ctx, spanDecide)
	c.decision = c.site.Enforcer.DecideTunnel(ctx, c.identity, c.target.Origin)
	step.decided(&c.decision)
}

// relay copies TLS in both directions without decrypting it. The server name in the handshake must
// be the host of the decision. Otherwise a tunnel to one host of a shared server could reach
// another (domain fronting).
func (c *connect) relay() {
	ctx, done := endingWith(c.ctx, c.site.tunnels.cut)
	defer done()
	if c.target.Origin.Port == httpPort { // opened before its rules were known
		c.decide(ctx)
		c.noteStop()
	}
	if !c.decision.Allowed {
		return // it was accepted for plain HTTP only; the log says why TLS is refused
	}
	name, err := c.client.ServerName(ctx, firstByte)
	_, toAddress := c.target.Origin.Addr() // a handshake with an address has no server name (RFC 6066 section 3)
	switch {
	case c.ended(ctx):
		c.end(context.Cause(ctx))
		return
	case err != nil:
		c.deny(enforce.ReasonBadTarget, "no readable TLS handshake in the tunnel")
		return
	case name == "" && !toAddress:
		c.deny(enforce.ReasonMisdirected, "the TLS handshake names no host")
		return
	case name != "" && !c.named(name):
		c.deny(enforce.ReasonMisdirected, detailOtherHost)
		return
	}
	if c.dialed == nil && !c.dialOrigin() {
		c.noteStop()
		return
	}
	if c.identity.Config.Signs() {
		c.signature.Unsigned = enforce.UnsignedTunnel
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	age := time.Duration(c.site.Engine.Config.Limits.TunnelAge)
	ctx, old := context.WithDeadlineCause(ctx, c.opens.began.Add(age), errTooOld)
	defer old()
	go c.watch(ctx, cancel, c.decision.Reason == enforce.ReasonException)
	to := c.dialed
	if c.budget != nil {
		to = &metered{to, c.exchange, ctx, cancel}
	}
	c.end(c.client.Relay(ctx, to))
}

// named reports whether the server name of a handshake is the tunnel's host. RFC 6066 section 3
// permits no address as a server name, but some clients send one.
func (c *connect) named(serverName string) bool {
	o, err := origin.FromAuthority("https", serverName)
	return err == nil && o.Host == c.target.Origin.Host
}

// ended reports whether the gateway ended a context of the tunnel.
func (c *connect) ended(ctx context.Context) bool {
	return ctx.Err() != nil && c.r.Context().Err() == nil
}

// end records why the gateway ended a tunnel, and records nothing if the client left. Over HTTP/2
// the context of the CONNECT also ends when the gateway closes its own end first.
func (c *connect) end(err error) {
	stop := engine.StoppedBy(c.ctx)
	_, spent := errors.AsType[*budget.SpentError](err)
	switch {
	case err == nil:
	case stop != nil:
		c.deny(enforce.ReasonKillSwitch, stop.Error())
	case spent:
		c.decision = c.decision.RefuseSlot(c.ctx, err)
	case c.r.Context().Err() == nil, errors.Is(err, errNotReopened), errors.Is(err, errBeyond), errors.Is(err, errExceptionOver), errors.Is(err, errTooOld), errors.Is(err, errStopping):
		c.decision.Detail = fmt.Sprintf("the tunnel ended early: %v", err)
	}
}

// dialOrigin waits for the host's turn and connects. If that fails, the decision says why.
func (c *connect) dialOrigin() (connected bool) {
	var err error
	if c.identity.Config.HasBudget() {
		err = c.spend(false)
	}
	if err == nil {
		err = c.pace()
	}
	if err != nil {
		c.decision = c.decision.RefuseSlot(c.ctx, err)
		return false
	}
	_, step := startStep(c.ctx, spanDial)
	conn, err := c.site.Engine.Transport.DialTunnel(c.ctx, c.target.Origin.Host, c.target.Origin.Port)
	if err != nil {
		failure := egress.ClassifyDial(err)
		step.endFailed(reasonOf(failure), failure)
		if failure.NeverReached() {
			c.slot.Cancel()
		}
		c.slot.Done()
		c.deny(reasonOf(failure), failure.Err.Error())
		return false
	}
	c.slot.Sent() // the site counts from when the connection reached it
	// The connection may have taken long.
	if err := c.beyond(); err != nil {
		_ = conn.Close()
		c.slot.Done()
		c.decision = c.decision.RefuseSlot(c.ctx, err)
		return false
	}
	c.sentAt = time.Now()
	c.dialed = conn
	c.sent.Dialed, _ = egress.DialedOf(conn)
	step.dialed(conn)
	return true
}
