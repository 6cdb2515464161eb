package crawlgate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/enforce/pace"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/opencount"
	"github.com/crawlgate/crawlgate/internal/version"
	"github.com/crawlgate/crawlgate/origin"
)

// exchange is one request on its way through the gateway, with what the log will say about it.
type exchange struct {
	h        *Handler
	w        http.ResponseWriter
	r        *http.Request
	ctx      context.Context // the request's, which an order of the kill switch can end
	entry    *engine.Entry
	began    time.Time
	own      bool // for the gateway itself: no decision was made
	identity enforce.Identity
	decision enforce.Decision
	message  string // the refusal in a line, where there is one
	clock    string // of the host, once it was asked for a slot
	reached  bool   // a connection was made, and the request may go
	sent     egress.Result
}

// account writes the exchange into the access log and counts it, on every way out.
func (x *exchange) account() {
	if x.own {
		return
	}
	x.h.site.Engine.CloseIdle()
	if e := x.sent.Err; e != nil && x.decision.Verdict == enforce.Allow {
		// The answer had begun when it broke off: the client sees that it is cut, and the log says why.
		x.decision = x.stopped(x.decision.Refuse(reasonOf(e), e.Err.Error(), 0))
	}
	rec := x.decision.Record()
	rec.Gateway, rec.Version = x.h.site.Engine.Config.Name, version.Read().Version
	rec.DialMillis = (x.sent.Dialed.DNS + x.sent.Dialed.Connect).Milliseconds()
	if x.sent.Dialed.Addr.IsValid() {
		rec.Address = x.sent.Dialed.Addr.String()
	}
	logRecord(x.r, rec)
	if x.sent.Started {
		x.h.site.Engine.Config.Redact.HideSent(x.w.Header())
	}
	engine.Decided(x.decision)
	if rec.Decision == enforce.Deny.String() || rec.WouldDeny {
		x.h.site.Engine.TellDenied(logObject{&rec}, x.r.Method, x.withoutQuery)
	}
}

// withoutQuery is what was asked for, without what may be private.
func (x *exchange) withoutQuery() string {
	if x.r.Method == http.MethodConnect {
		return x.r.Host
	}
	u := *x.r.URL
	u.User, u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = nil, "", false, "", ""
	return u.String()
}

// enter registers the exchange with the kill switch, from before its decision on.
func (x *exchange) enter(o origin.Origin) {
	x.ctx, x.entry = x.h.site.Engine.Enter(x.ctx, o, x.identity.KillName())
}

// stopped returns the decision with the reason why it really failed, where the kill switch ended the exchange.
func (x *exchange) stopped(d enforce.Decision) enforce.Decision {
	if stop := engine.StoppedBy(x.ctx); stop != nil && d.Reason.Failure() {
		return d.Refuse(enforce.ReasonKillSwitch, stop.Error(), 0)
	}
	return d
}

// serveProxied takes a request in absolute form: who asks, for what, may it, when, and out.
func (h *Handler) serveProxied(x *exchange, next caddyhttp.Handler) error {
	target, err := origin.NewTarget(x.r.URL)
	if err != nil {
		x.decision.UserAgent = x.r.UserAgent()
		return x.refuse(x.decision.Refuse(enforce.ReasonBadTarget, err.Error(), 0))
	}
	x.identity = h.identify(x.r)
	agent := x.identity.KillName()
	if limit := h.site.Engine.Config.Limits.RequestsPerAgent; !requests.Enter(agent, limit) {
		return x.refuseExcess(x.identity, target.Origin, fmt.Sprintf("%d requests are under way", limit))
	}
	defer requests.Leave(agent)
	x.enter(target.Origin)
	ctx, step := startStep(x.ctx, spanDecide)
	x.decision = h.site.Enforcer.Decide(ctx, enforce.Request{Method: x.r.Method, Target: target, Identity: x.identity})
	step.decided(x.decision)
	if x.decision.Verdict != enforce.Allow {
		return x.refuse(x.decision)
	}
	if h.DecisionHeader {
		x.w.Header().Set(enforce.HeaderDecision, x.decision.Header())
	}
	if x.decision.Reason == enforce.ReasonRobotsTxt {
		return h.serveRobotsTxt(x, target)
	}
	slot, err := h.pace(x, target.Origin)
	if err != nil {
		return x.refuse(x.decision.RefuseSlot(x.ctx, err))
	}
	defer slot.Done()
	if h.EgressOff {
		return next.ServeHTTP(x.w, x.r.WithContext(x.ctx))
	}
	return h.forward(x, target, slot)
}

// requests and tunnels count what each agent has under way in the process, over reloads. An agent is
// counted by the name by which the kill switch knows it.
var requests, tunnels opencount.Count[string]

// refuseExcess refuses what is one too many of an agent, before it costs a fetch or a place in line.
func (x *exchange) refuseExcess(id enforce.Identity, o origin.Origin, detail string) error {
	x.decision = x.h.site.Enforcer.RefuseExcess(id, o, detail)
	x.decision.PathVisible = x.r.Method != http.MethodConnect
	return x.refuse(x.decision)
}

// identify tells who sends the request.
func (h *Handler) identify(r *http.Request) enforce.Identity {
	if t := tunnelOf(r); t != nil {
		return h.site.Identifier.Inner(t.sentBy(r.Context(), h.site.Identifier), r.UserAgent())
	}
	return h.site.Identifier.Identify(r.Context(), senderOf(r))
}

// ambiguity says what makes a request one that two readers could understand in two ways; empty for nothing. Of two fields
// the gateway would judge one and the site could see the other. HTTP/2 lets any octets be a method.
func ambiguity(r *http.Request) string {
	if !httpguts.ValidHeaderFieldName(r.Method) { // a token, as a method is (RFC 9110 section 9.1)
		return "the method is no token"
	}
	for _, name := range []string{"User-Agent", "Proxy-Authorization"} {
		if len(r.Header[name]) > 1 {
			return "more than one field " + name
		}
	}
	return ""
}

// sourceOf is the address that Caddy takes for the client's, which is another than the connection's where trusted_proxies
// says so. A client over a unix socket is one of this machine.
func sourceOf(r *http.Request) netip.Addr {
	ip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	source, err := netip.ParseAddr(ip)
	if err == nil {
		return source
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && strings.HasPrefix(local.Network(), "unix") {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.Addr{}
}

// clientOf is the address of the client. Inside a tunnel it is that of the CONNECT: fields of a request inside are the
// client's own, and no proxy's in between.
func clientOf(r *http.Request) netip.Addr {
	if t := tunnelOf(r); t != nil {
		return t.from.Source
	}
	return sourceOf(r)
}

// senderOf is what a request shows of its sender.
func senderOf(r *http.Request) enforce.Sender {
	e := enforce.Sender{UserAgent: r.UserAgent(), ProxyAuthorization: r.Header.Get("Proxy-Authorization"), Source: sourceOf(r)}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		leaf := r.TLS.VerifiedChains[0][0]
		e.CertificateNames = append(e.CertificateNames, leaf.Subject.CommonName)
		e.CertificateNames = append(e.CertificateNames, leaf.DNSNames...)
		e.CertificateNames = append(e.CertificateNames, leaf.EmailAddresses...)
		for _, u := range leaf.URIs {
			e.CertificateNames = append(e.CertificateNames, u.String())
		}
	}
	return e
}

// pace waits for the host's turn.
func (h *Handler) pace(x *exchange, o origin.Origin) (pace.Slot, error) {
	d := &x.decision
	if !d.Paced() {
		return pace.Slot{}, nil
	}
	polite := h.site.Engine.Config.Politeness
	if h.MaxWait != nil {
		polite.Wait = time.Duration(*h.MaxWait)
	}
	request, err := polite.Request(*d, func() netip.Addr { return h.addressFor(x, o) })
	if err != nil {
		return pace.Slot{}, err
	}
	x.clock = request.Key
	began := time.Now()
	_, step := startStep(x.ctx, spanWait)
	slot, err := h.site.Engine.Pacer().Acquire(x.ctx, request)
	d.Wait = time.Since(began)
	step.waited(*d, err)
	return slot, err
}

// addressFor resolves the host where its address is what a clock stands for. A name that does not resolve keeps the
// host's clock; the request will fail on its way out, and say why.
func (h *Handler) addressFor(x *exchange, o origin.Origin) netip.Addr {
	check := h.site.Engine.Dialer().Check
	if o.Scheme == "ftp" {
		check = h.site.Engine.Dialer().CheckFTP
	}
	addrs, err := check(x.ctx, o.Host, o.Port)
	if err != nil || len(addrs) == 0 {
		return netip.Addr{}
	}
	return addrs[0].Addr()
}

// forward sends the request out and the answer back.
func (h *Handler) forward(x *exchange, target origin.Target, slot pace.Slot) error {
	// What counts for the site is when the request reaches it: between its last octet and the answer's first. And what
	// counts for the slot is whether it is still this request's turn when the connection is there.
	var (
		missed error
		dial   step
	)
	r := x.r.WithContext(httptrace.WithClientTrace(x.ctx, &httptrace.ClientTrace{
		GetConn: func(string) { _, dial = startStep(x.ctx, spanDial) },
		GotConn: func(info httptrace.GotConnInfo) {
			dial.dialed(info.Conn)
			if missed = slot.Confirm(x.ctx); missed != nil {
				x.abandon(info.Conn, missed)
				return
			}
			x.reached = true
		},
		WroteRequest:         func(httptrace.WroteRequestInfo) { slot.Sent() },
		GotFirstResponseByte: slot.Sent,
	}))
	x.sent.Answered = func(status int, header http.Header) { h.heed(x, status, header) }
	failure := h.forwarder.Forward(x.w, r, target.URL(), &x.sent)
	if failure == nil {
		return nil
	}
	if !x.reached && missed == nil {
		dial.endFailed(reasonOf(failure), failure)
	}
	if missed != nil || !x.reached && failure.NeverReached() {
		slot.Cancel()
	}
	if _, late := errors.AsType[*pace.Refused](missed); late {
		return x.refuse(x.decision.RefuseSlot(x.ctx, missed))
	}
	return x.refuse(x.decision.Refuse(reasonOf(failure), failure.Err.Error(), 0))
}

// abandon ends the exchange before an octet of its request has been written: net/http asks no hook for leave to write,
// but does not write after its context has ended, or to a connection that is closed. One that speaks HTTP/2 serves others.
func (x *exchange) abandon(conn net.Conn, why error) {
	x.entry.Cancel(why)
	if t, ok := conn.(*tls.Conn); ok && t.ConnectionState().NegotiatedProtocol == "h2" {
		return
	}
	_ = conn.Close()
}

// heed keeps the site's wish to be left alone for a while, from the moment it is known.
func (h *Handler) heed(x *exchange, status int, header http.Header) {
	if pause, asked := enforce.AsksForPause(status, header, time.Now()); asked && x.clock != "" {
		h.site.Engine.Pacer().RecordFailure(x.clock, pause)
	}
}

// reasonOf is the decision's reason for a failure on the way out. The two sets share their spellings, but for the
// client that left.
func reasonOf(e *egress.Error) enforce.Reason {
	if e.Kind == egress.KindClientGone {
		return enforce.ReasonCanceled
	}
	return enforce.Reason(e.Kind.String())
}
