package proxy

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/stall"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/signals/htmlhead"
)

// exchange is one request on its way through the gateway. The access log, metrics, events,
// placeholders and spans all read its request, its decision and its result.
type exchange struct {
	site      *Site
	w         http.ResponseWriter
	r         *http.Request
	ctx       context.Context  // the request's, which a stop can end
	entry     *engine.InFlight // its place among what a stop can end
	began     time.Time
	line      *stall.Line // of the access log; nil outside of a server
	tunnel    *tunnel     // that the request came through, or nil
	own       bool        // a request for the gateway itself, without a decision
	early     bool        // the client came back before its Retry-After was over
	identity  enforce.Identity
	target    origin.Target // of a CONNECT, only the origin
	decision  enforce.Decision
	message   string      // the refusal in a line, if it was refused
	clock     string      // the key of the host's clock, once it was asked for a slot
	slot      pace.Slot   // the host's
	dial      step        // of a connection; records nothing until it has begun
	reached   bool        // a connection was made, and the request may go
	missed    error       // why it may not go over the connection
	sentAt    time.Time   // when it began to go over the connection; zero if it did not
	written   atomic.Bool // it may have reached the site
	sent      egress.Result
	signature enforce.Signature
	budget    *spending           // nil if its agent has no budget
	page      *enforce.Page       // the answer, if its tags are read; else nil
	pageUntil time.Time           // until when its tags may wait to be read
	copied    *htmlhead.Collector // of the page as it passes; nil where it is held
}

// proxy handles a request in absolute form: it identifies the sender, decides, waits for the host's
// turn and sends.
func (x *exchange) proxy(next caddyhttp.Handler) error {
	s := x.site
	var err error
	if x.target, err = origin.NewTarget(x.r.URL); err != nil {
		return x.fail(enforce.ReasonBadTarget, err.Error())
	}
	x.identify()
	x.early = engine.CameEarly(x.identity.Agent, x.r)
	if x.ctx, x.entry, err = s.Engine.EnterRequest(x.ctx, x.target.Origin, x.identity.StopName()); err != nil {
		return x.refuseExcess(x.identity, x.target.Origin, err.Error())
	}
	defer x.entry.Leave()
	if x.decide(); !x.decision.Allowed {
		return x.refuse()
	}
	x.show("")
	itself := enforce.FetchesRobotsTxt(x.r.Method, x.target.Path)
	if x.identity.Config.HasBudget() {
		if err := x.spend(itself); err != nil {
			return x.refuseSlot(err)
		}
		defer x.settle()
	}
	if itself {
		return x.serveRobotsTxt()
	}
	if err := x.pace(); err != nil {
		return x.refuseSlot(err)
	}
	defer x.slot.Done()
	if s.egressOff {
		x.sentAt = time.Now()
		if x.identity.Config.Signs() {
			x.signature.Unsigned = enforce.UnsignedEgressOff
		}
		return next.ServeHTTP(x.w, x.r.WithContext(x.ctx))
	}
	return x.forward()
}

// decide decides whether the request may leave. It is a separate function so that its stack is
// freed before the request is sent.
func (x *exchange) decide() {
	ctx, step := startStep(x.ctx, spanDecide)
	x.decision = x.site.Enforcer.Decide(ctx, enforce.Request{Method: x.r.Method, Target: x.target, Identity: x.identity})
	step.decided(&x.decision)
}

func (x *exchange) identify() {
	if identifier := x.site.Identifier; x.tunnel != nil {
		x.identity = identifier.Inner(x.tunnel.sentBy(x.ctx, identifier), x.r.UserAgent())
	} else {
		x.identity = identifier.Identify(x.ctx, senderOf(x.r))
	}
}

// noteStop corrects the reason of a failed decision if a stop ended the exchange.
func (x *exchange) noteStop() {
	if stop := engine.StoppedBy(x.ctx); stop != nil && x.decision.Reason.Failure() {
		x.deny(enforce.ReasonKillSwitch, stop.Error())
	}
}

// pace waits for the host's turn. A boundary of the agent may close, and an exception may end,
// during that wait or the earlier one for the rules, and another configuration may be loaded.
func (x *exchange) pace() error {
	d, o := &x.decision, x.target.Origin
	if !d.Paced() {
		return nil
	}
	request, err := x.site.Engine.Config.Politeness.Request(*d, func() netip.Addr { return x.address(o) })
	if err != nil {
		return err
	}
	x.clock = request.Key
	defer egress.WatchLeaving(x.r, func() { x.entry.Cancel(context.Canceled) })()
	began := time.Now()
	_, step := startStep(x.ctx, spanWait)
	x.slot, err = x.site.Engine.Pacer().Acquire(x.ctx, request)
	d.Wait = time.Since(began)
	step.waited(d, err)
	if err == nil {
		if err = x.beyond(); err != nil {
			x.slot.Cancel()
		}
	}
	return err
}

// beyond returns an error if the request may not go any more. After a reload, a site of the current
// configuration must let it go, because the operator may have taken its host away.
func (x *exchange) beyond() (err error) {
	refuses := func(e *enforce.Enforcer, a *enforce.Agent) error {
		return cmp.Or(e.Beyond(a, x.target.Origin, x.r.Method), e.StillExempt(&x.decision, x.target.Path))
	}
	here := x.site.SitePolicy
	err = refuses(here.Enforcer, x.identity.Config)
	if here.Server == nil || here.Life.Err() == nil {
		return err
	}
	for _, next := range here.Successors() { // none while the gateway stops
		now, _ := next.Identifier.Named(x.identity.Agent) // its block may be missing
		if err = refuses(next.Enforcer, now.Config); err == nil {
			return nil
		}
	}
	return err
}

// address resolves the host for a clock of addresses. A name that does not resolve keeps the host's
// clock; the request will fail on its way out, and say why.
func (x *exchange) address(o origin.Origin) netip.Addr {
	addr, _ := x.site.Engine.Config.Egress.Dialer.Address(x.ctx, o.Scheme, o.Host, o.Port)
	return addr
}

// forward sends the request out and the answer back.
func (x *exchange) forward() error {
	x.dial, x.sent.Hooks = step{noop.Span{}}, x
	agent := x.identity.Config
	x.sent.Pass = egress.Pass{Price: agent.Passes(enforce.PassPrice), Signature: agent.Passes(enforce.PassSignature)}
	x.sent.Send = agent.Sends()
	u := x.target.URL()
	if x.r.Method == http.MethodOptions && x.r.URL.Path == "" && x.target.Path == "/" {
		u.Opaque = "*" // RFC 9112 section 3.2.4
	}
	failure := x.site.forwarder.Forward(x.ctx, x.entry.Cancel, x.w, x.r, u, &x.sent)
	if failure == nil {
		return nil
	}
	if !x.reached && x.missed == nil {
		x.dial.endFailed(reasonOf(failure), failure)
	}
	if x.missed != nil || !x.reached && failure.NeverReached() {
		x.slot.Cancel()
	}
	if failure.Kind == egress.KindWithheld {
		return x.refuse()
	}
	if x.missed != nil && !errors.Is(x.missed, context.Canceled) {
		return x.refuseSlot(x.missed)
	}
	return x.fail(reasonOf(failure), failure.Err.Error())
}

// Connecting begins the step of a connection. The exchange is the [egress.Hooks] of its request.
func (x *exchange) Connecting() {
	if !x.written.Load() { // the connection before was gone
		x.sentAt, x.signature = time.Time{}, enforce.Signature{}
	}
	_, x.dial = startStep(x.ctx, spanDial)
}

// Connected asks whether it is still this request's turn and whether it may still go, because the
// connection may have taken long. If so, it signs the request. If not, the end of the context keeps
// the transport from writing. A connection of HTTP/2 stays open, as it serves other requests.
func (x *exchange) Connected(conn net.Conn, out *http.Request) {
	x.dial.dialed(conn)
	if x.missed = cmp.Or(x.slot.Confirm(x.ctx), x.beyond()); x.missed == nil {
		x.reached, x.sentAt = true, time.Now()
		x.signature = x.identity.Config.Signature(out, x.decision.Origin, x.sentAt)
		return
	}
	x.sentAt, x.signature = time.Time{}, enforce.Signature{} // of a connection that was gone before
	x.entry.Cancel(x.missed)
	if t, ok := conn.(*tls.Conn); !ok || t.ConnectionState().NegotiatedProtocol != "h2" {
		_ = conn.Close()
	}
}

// Sent tells the clock when the site sees the request: between its last byte and the answer's first
// byte.
func (x *exchange) Sent() {
	x.written.Store(true)
	x.slot.Sent()
}

// Answered blocks the host for the time that the header of its answer asks for. It withholds the
// answer from the client if the site does not want the agent's use of it.
func (x *exchange) Answered(status int, header http.Header) bool {
	if pause, asked := enforce.AsksForPause(status, header, time.Now()); asked && x.clock != "" {
		x.site.Engine.Pacer().RecordFailure(x.clock, pause)
	}
	x.show(x.decision.ReadAnswer(status, header))
	if x.decision.Allowed {
		x.findPage(status, header)
	}
	return x.decision.Allowed
}

// show sets the header fields that tell the crawler the decision and, once known, the site's
// signals.
func (x *exchange) show(dictionary string) {
	x.w.Header().Set(enforce.HeaderDecision, x.decision.Header())
	if dictionary != "" {
		x.w.Header().Set(enforce.HeaderSignals, dictionary)
	}
}

// reasonOf returns the decision's reason for a failure to send. The two sets share their spellings,
// except for a client that left and a withheld answer.
func reasonOf(e *egress.Error) enforce.Reason {
	if e.Kind == egress.KindClientGone {
		return enforce.ReasonCanceled
	}
	if e.Kind == egress.KindWithheld {
		return enforce.ReasonPreferenceDenied
	}
	return enforce.Reason(cmp.Or(e.Kind, egress.KindInternal))
}

// deny turns the decision into a refusal, for a reason that a later step found. It does not answer.
func (x *exchange) deny(reason enforce.Reason, detail string) {
	x.decision = x.decision.Refuse(reason, detail, 0)
}

// fail refuses for a reason that a later step found, and answers.
func (x *exchange) fail(reason enforce.Reason, detail string) error {
	x.deny(reason, detail)
	return x.refuse()
}

func (x *exchange) refuseSlot(err error) error {
	x.decision = x.decision.RefuseSlot(x.ctx, err)
	return x.refuse()
}

// refuse answers a request that was not sent, or that failed, according to its decision.
func (x *exchange) refuse() error {
	x.noteStop()
	d := &x.decision
	if d.Reason == enforce.ReasonCanceled {
		// Nobody reads the answer. The error makes the log show 499, as Caddy's own reverse proxy does.
		return caddyhttp.Error(enforce.StatusClientClosedRequest, errors.New("the client left"))
	}
	asked := x.asked()
	asked.Docs = docsURL(x.r)
	refusal := enforce.Render(*d, asked)
	x.message = refusal.Reason
	if d.Reason == enforce.ReasonBadRequest && x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close") // what follows may be ambiguous too
	}
	if x.site.Server != nil && x.site.Server.Errors != nil {
		return x.refuseByRoutes(refusal)
	}
	if x.r.Method == http.MethodConnect {
		egress.Refuse(x.w, x.r, egress.Refusal(refusal))
		return nil
	}
	egress.PrepareRefusal(x.w, x.r)
	maps.Copy(x.w.Header(), refusal.Header)
	answer(x.w, x.r, refusal.Status, refusal.Body)
	return nil
}

// refuseExcess refuses a request or tunnel beyond the limit of its agent, before it costs a fetch
// or a place in the queue.
func (x *exchange) refuseExcess(id enforce.Identity, o origin.Origin, detail string) error {
	x.decision = x.site.Enforcer.RefuseExcess(id, o, detail)
	x.decision.PathVisible = x.r.Method != http.MethodConnect
	return x.refuse()
}

// refuseByRoutes leaves the answer to the server's error routes. They write the body, but the
// fields that mark the answer as the gateway's stay.
func (x *exchange) refuseByRoutes(refusal enforce.Refusal) error {
	egress.PrepareRefusal(x.w, x.r)
	h := x.w.Header()
	for name, values := range refusal.Header {
		if name != "Content-Type" && name != "Content-Security-Policy" {
			h[name] = values
		}
	}
	return caddyhttp.HandlerError{StatusCode: refusal.Status, Err: errors.New(refusal.Reason)}
}

// asked returns what the client asked for, in the form that a refusal shows.
func (x *exchange) asked() enforce.RequestInfo {
	a := enforce.RequestInfo{
		Method: x.r.Method, URL: x.r.URL.String(), Accept: strings.Join(x.r.Header["Accept"], ","),
		Help: x.site.Engine.Config.Help,
	}
	if x.r.Method == http.MethodConnect {
		a.URL = x.r.Host
	}
	return a
}

// decoding bounds how many pages are decoded at a time: each may need 8 MiB.
var decoding = make(chan struct{}, max(2, runtime.GOMAXPROCS(0)))

// findPage looks at the header of an answer. If it is a page, findPage makes its beginning copied
// or read ahead.
func (x *exchange) findPage(status int, header http.Header) {
	reads := x.site.Enforcer.Reads
	kind := header.Get("Content-Type")
	if !reads.HTML.Reads() || !htmlhead.Wanted(kind, status, x.r.Method, header.Get("Content-Range")) {
		// The middle of a page says nothing about its head.
		x.decision.SignalsCut = x.decision.SignalsCut || reads.HTML.Reads() && status == http.StatusPartialContent && htmlhead.IsPage(kind)
		return
	}
	x.page = &enforce.Page{Type: kind, Coding: header["Content-Encoding"]}
	x.pageUntil = time.Now().Add(egress.AheadTime)
	if reads.HTML == enforce.HTMLHold {
		x.sent.Ahead = enforce.HTMLMax
		return
	}
	x.copied = htmlhead.NewCollector(enforce.HTMLMax)
	x.sent.Copy = x.copied
}

// Began reads the tags of a page before the crawler gets any of it.
func (x *exchange) Began(head []byte, whole bool) bool {
	x.page.Head, x.page.Whole = head, whole
	x.show(x.readPage())
	return x.decision.Allowed
}

// readPassed reads the tags of a page that has been passed on, completely or in part.
func (x *exchange) readPassed(whole bool) {
	if x.copied == nil {
		return
	}
	defer x.copied.Release()
	x.pageUntil = time.Now().Add(egress.AheadTime)
	x.page.Head, x.page.Whole, x.page.Sent = x.copied.Bytes(), whole && !x.copied.Cut(), true
	x.readPage()
}

// readPage waits for permission to decode, until the time of the page is up. Without it, the page
// passes unread, and the log says so.
func (x *exchange) readPage() (dictionary string) {
	select {
	case decoding <- struct{}{}:
	default:
		select {
		case decoding <- struct{}{}:
		case <-time.After(time.Until(x.pageUntil)):
			x.decision.SignalsCut = true
			return ""
		}
	}
	defer func() { <-decoding }()
	return x.decision.ReadPage(*x.page)
}
