// Package egress sends requests to origins and serves CONNECT tunnels.
//
// From the inside out it has: the dialer (resolve once, check with package guard, dial the checked
// address), the transport (connections to origins, directly or through upstream proxies), the
// forwarder (one proxied request out and its response back), the tunnel (CONNECT) and the
// interceptor (TLS ended inside a tunnel, so that its requests can be seen).
//
// Everything that comes from clients and origins is bounded in size and time, and every wait ends
// with the context of its request. The package knows nothing about robots.txt, Caddy or logging. It
// returns results as values ([Result], [Dialed], [Error]), and the caller decides how to log and
// answer them.
package egress

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// defaultIdle is how long the bodies of an exchange, an upgraded connection or a tunnel may pass no
// bytes.
const defaultIdle = 5 * time.Minute

// Forwarder sends proxied requests to origins and their responses back. It is safe for concurrent
// use; its fields are set before first use. An origin may leave the bodies of an exchange, or an
// upgraded connection, idle for five minutes. This limit does not bound the wait for a response
// (see TransportConfig.ResponseHeaderTimeout) or an idle client (the server's own limits do).
type Forwarder struct {
	Transport *Transport
	// Name is the gateway's name in Proxy-Status and Cache-Status. Members of that name from origins
	// are removed.
	Name string
	// HeaderPrefix begins the names of the gateway's own fields, in canonical form ("Crawlgate-"). It
	// is required. Such fields pass neither from clients to origins nor from origins to clients.
	HeaderPrefix string
	// MinRate is the lowest rate, in body bytes per second, at which client and origin each must send
	// and receive, averaged over a minute or more of their own turns; 0 means no limit. It does not
	// apply to event streams and upgraded connections.
	MinRate int64
	// BodyTimeout is how long a request's body may take, counted from the client's first byte; 0 means
	// no limit.
	BodyTimeout time.Duration

	idle time.Duration // 0 means defaultIdle, which is too long for tests
}

// Hooks has a hook for each step of an exchange. Forward calls them one after the other. The
// transport may try more than one connection: then it calls Connecting and Connected again, and the
// last calls count.
type Hooks interface {
	// Connecting is called when a connection is wanted.
	Connecting()
	// Connected is called when there is one, with the request that is about to be written: its header
	// may still be changed. If the context of the exchange has ended when it returns, nothing is sent.
	Connected(conn net.Conn, out *http.Request)
	// Sent is called when the request has been written, and again with the first byte of its answer.
	Sent()
	// Answered is called with the origin's final status and header, before the client gets any of it.
	// It may set [Result.Ahead] and [Result.Copy]. If it reports false, the client gets nothing of the
	// answer, and the exchange fails with [KindWithheld].
	Answered(status int, header http.Header) bool
	// Began is called with the beginning of the answer's body if Result.Ahead is above 0; whole says
	// that this is the whole body. Its result means the same as Answered's.
	Began(head []byte, whole bool) bool
}

// Result describes the outcome of one exchange. It is also filled in if [Forwarder.Forward] panics.
type Result struct {
	Hooks Hooks       // set by the caller
	Pass  Pass        // set by the caller
	Send  http.Header // set by the caller: fields that take the place of the client's
	Tell  func(n int) // set by the caller, or nil: told of bytes of bodies as they pass, either way

	// Ahead is how many bytes of the answer's body are read before its header goes out, for at most
	// 100 ms. Copy receives the bytes of the body that the client has received. The hooks may
	// set both.
	Ahead int
	Copy  io.Writer

	Removed int    // lines of the request's header that Pass kept back
	Status  int    // final status received from the origin; 0 if there was none
	Dialed  Dialed // how the connection was made or failed; the times are 0 if it was reused
	Bytes   int64  // of the response's body, as far as the client has taken them
	// Uploaded is how many bytes of the request's body were read, or have passed either way over an
	// upgraded connection.
	Uploaded int64
	Started  bool   // the response has begun; nothing else can be answered any more
	Broken   *bool  // if not nil, Forward sets *Broken and does not panic: the caller breaks off
	Err      *Error // why the exchange failed; nil if it is complete
}

// Forward sends r to target and the response to w. The bytes of target are the bytes on the wire:
// path and query as target.RequestURI gives them, Host from target.Host. When ctx, which is r's or
// a child of it, ends, everything ends; cancel must end ctx.
//
// Forward leaves out hop-by-hop fields, proxy credentials and fields that describe the network
// inside; see [RequestHeader]. Bodies stream both ways, trailers and interim responses (1xx) pass,
// and a WebSocket upgrade turns the connection into a relay; Forward returns when the relay has
// ended. It passes on no other upgrade: after one to HTTP/2 in clear text, requests that were never
// judged could follow.
//
// res must not be nil; it receives the outcome. Forward returns res.Err only if nothing has been
// written to w, and the caller then has to answer; otherwise it returns nil. If a response breaks
// off in the middle, Forward panics with [http.ErrAbortHandler] or sets res.Broken, so that no
// client takes a part for the whole.
func (f *Forwarder) Forward(
	ctx context.Context, cancel context.CancelCauseFunc, w http.ResponseWriter, r *http.Request, target *url.URL, res *Result,
) *Error {
	if f.Transport.Looped(r.Header) {
		res.Err = errLoop
		return errLoop
	}
	x := &forwarding{f: f, w: w, r: r, target: target, rc: http.NewResponseController(w), res: res}
	x.watch.tell = res.Tell
	defer func() {
		_ = x.body.Close()
		n, _ := x.body.state()
		res.Uploaded += n
	}()
	x.watch.idle, x.watch.ended = cmp.Or(f.idle, defaultIdle), func(cause error) {
		cancel(cause)
		if e, ok := errors.AsType[*Error](cause); ok && e.Kind == KindClientTimeout {
			// The transport waits for the read of the body that is in progress. Only a writer that is not a
			// server's cannot set a deadline.
			_ = x.rc.SetReadDeadline(time.Unix(1, 0))
		}
	}
	defer x.watch.stop()
	out := x.request(x.trace(ctx))
	x.out = out
	if x.lastHop(out.Header) {
		return nil
	}
	resp, err := f.Transport.RoundTrip(out)
	x.endInterim()
	if err != nil {
		return x.fail(ctx, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := x.acceptable(ctx, resp); err != nil {
		return x.fail(ctx, err)
	}
	res.Status = resp.StatusCode
	if !x.passes(ctx, resp) {
		return x.fail(ctx, errWithheld)
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return x.upgrade(ctx, resp)
	}
	x.respond(ctx, resp)
	return nil
}

// passes asks the caller whether the client may get the answer.
func (x *forwarding) passes(ctx context.Context, resp *http.Response) bool {
	if !x.res.Hooks.Answered(resp.StatusCode, resp.Header) {
		return false
	}
	if x.res.Ahead <= 0 || x.bodiless(resp) || resp.StatusCode == http.StatusSwitchingProtocols {
		return true
	}
	return x.res.Hooks.Began(readAhead(ctx, resp, x.res.Ahead))
}

// forwarding is one request and its response.
type forwarding struct {
	f         *Forwarder
	w         http.ResponseWriter
	r         *http.Request
	target    *url.URL
	rc        *http.ResponseController
	res       *Result
	out       *http.Request // that leaves
	watch     watch
	body      requestBody
	expecting bool // the client waits for 100 Continue
	upgrading bool // the client asks for WebSocket
	reached   bool // there was a connection, which Result.Dialed describes
	interim   interim
}

// request returns the request to send.
func (x *forwarding) request(ctx context.Context) *http.Request {
	out := new(http.Request).WithContext(ctx)
	out.Method, out.URL, out.Host = x.r.Method, x.target, x.target.Host
	out.Proto, out.ProtoMajor, out.ProtoMinor = "HTTP/1.1", 1, 1
	out.Header, x.res.Removed = RequestHeader(x.r.Header, x.f.HeaderPrefix, x.res.Pass)
	maps.Copy(out.Header, x.res.Send)
	x.body.watch, x.body.limit = &x.watch, x.f.BodyTimeout
	if x.r.ContentLength != 0 && x.r.Body != nil && x.r.Body != http.NoBody {
		x.attachBody(out)
	}
	x.expectations(out)
	if x.r.ProtoMajor == 1 && isWebSocket(x.r.Header) {
		x.upgrading = true
		out.Header["Connection"] = []string{"Upgrade"}
		out.Header["Upgrade"] = []string{"websocket"}
	}
	return out
}

// trace returns a context through which the transport reports its steps.
func (x *forwarding) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) {
			x.res.Hooks.Connecting()
			x.reached, x.res.Dialed = false, Dialed{}
		},
		GotConn:        x.gotConn,
		Got1xxResponse: x.got1xx,
		WroteRequest: func(httptrace.WroteRequestInfo) {
			x.res.Hooks.Sent()
			x.body.written()
		},
		GotFirstResponseByte: x.res.Hooks.Sent,
	})
}

// gotConn notes the connection. The transport calls it in the goroutine of the round trip.
func (x *forwarding) gotConn(info httptrace.GotConnInfo) {
	x.res.Hooks.Connected(info.Conn, x.out)
	x.reached = true
	x.res.Dialed, _ = DialedOf(info.Conn)
	if info.Reused {
		x.res.Dialed.DNS, x.res.Dialed.Connect = 0, 0
	}
}

func (x *forwarding) attachBody(out *http.Request) {
	x.body.src, x.body.reading = x.r.Body, make(chan struct{}, 1)
	// Only HTTP/2 can say that it has not processed a request.
	x.body.keeping = out.URL.Scheme == "https"
	// An origin that stops reading the body may never answer.
	x.watch.start(nobody, x.f.MinRate)
	out.Body, out.ContentLength = &x.body, x.r.ContentLength
	if len(x.r.Trailer) > 0 || x.r.ContentLength < 0 {
		x.attachTrailer(out)
	}
	if x.r.ProtoMajor == 1 {
		// Without this the server itself reads and discards the rest of the body as soon as the response
		// begins. Only a writer that is not a server's cannot do it.
		_ = x.rc.EnableFullDuplex()
	}
}

// attachTrailer forwards the client's trailers after the body. Their values are known only when the
// body has ended.
func (x *forwarding) attachTrailer(out *http.Request) {
	out.Trailer = make(http.Header, len(x.r.Trailer))
	for name := range x.r.Trailer {
		if x.mayTrail(name) {
			out.Trailer[name] = nil
		}
	}
	if len(out.Trailer) > 0 {
		out.ContentLength = -1 // in HTTP/1.1 trailers can only follow chunks
		delete(out.Header, "Content-Length")
	}
	x.body.trailer = func() {
		for name, values := range x.r.Trailer {
			if x.mayTrail(name) {
				out.Trailer[name] = values
			}
		}
	}
}

// mayTrail reports whether a trailer of the client may be sent on. Some servers take an underscore
// for a hyphen, so Caddy removes such fields from a header, but not from a trailer.
func (x *forwarding) mayTrail(name string) bool {
	return !strings.Contains(name, "_") && mayTrail(name) && mayLeave(name, x.f.HeaderPrefix) && len(x.res.Pass.field(name, []string{""})) > 0
}

// expectations handles Expect: 100-continue. It passes the field on if there is a body to wait for;
// the connection to the origin is then closed after the response. Otherwise net/http would send the
// body even after a refusal, to save the connection, and would ask the client for a body in vain.
// From HTTP/2 clients the expectation never arrives here: Go's server removes the field and asks
// for the body when it is read.
func (x *forwarding) expectations(out *http.Request) {
	if !httpguts.HeaderValuesContainsToken(x.r.Header["Expect"], "100-continue") {
		return
	}
	if x.body.src == nil || !x.r.ProtoAtLeast(1, 1) {
		delete(out.Header, "Expect")
		return
	}
	x.expecting, out.Close = true, true
}

// acceptable returns an error for responses that must not be passed on.
func (x *forwarding) acceptable(ctx context.Context, resp *http.Response) error {
	// An origin that sees a body end halfway may answer before the connection is gone. The client
	// would take that for the answer to the whole body.
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if _, failed := x.body.state(); failed != nil {
		return failed
	}
	switch code := resp.StatusCode; {
	case code == http.StatusSwitchingProtocols && !x.upgrading:
		return errUnasked101
	case code == http.StatusSwitchingProtocols && !isWebSocket(resp.Header):
		return errUpgrade
	case code < 200 && code != http.StatusSwitchingProtocols, code > 999:
		return errBadStatus
	case code == http.StatusProxyAuthRequired:
		// If it were passed on, it would say that this gateway wants credentials, and clients would send
		// or drop theirs.
		if up := x.f.Transport.upstream(x.target.Hostname()); up != nil {
			return up.granted(resp)
		}
		return errOrigin407
	default:
		return nil
	}
}

// fail classifies an error that came before the response began.
func (x *forwarding) fail(ctx context.Context, err error) *Error {
	at := stageConnect
	if x.reached {
		at = stageHeader
	}
	x.res.Err = x.classify(ctx, err, at)
	if !x.reached {
		x.res.Dialed = Dialed{Addr: x.res.Err.Addr}
		if d, ok := errors.AsType[*DialError](err); ok {
			x.res.Dialed = d.Dialed
		}
	}
	if n, _ := x.body.state(); n == 0 {
		PrepareRefusal(x.w, x.r)
	}
	x.closeBehindBody()
	return x.res.Err
}

// closeBehindBody has the connection closed after a response that begins before the whole body was
// read. net/http, although told to leave the body alone, would read the rest of it after the
// handler returns, take its end as a signal to watch the connection, and panic when it reads the
// next request. If the origin refused the body before 100 Continue, it is also unknown whether the
// client will still send it.
func (x *forwarding) closeBehindBody() {
	if x.r.ProtoMajor == 1 && x.body.left() {
		x.w.Header()["Connection"] = []string{"close"}
	}
}

// classify decides whether err is the client's failure or the origin's. A client that leaves, or
// whose body breaks off, makes the transport fail too.
func (x *forwarding) classify(ctx context.Context, err error, at stage) *Error {
	cause := context.Cause(ctx)
	if _, ok := errors.AsType[*Error](cause); ok {
		return classify(cause, at)
	} else if errors.Is(ctx.Err(), context.Canceled) { // only the server can have ended it
		if errors.Is(cause, context.Canceled) {
			x.body.settle()
		}
		if _, failed := x.body.state(); failed != nil && clientKind(failed) == KindClientTimeout {
			return &Error{Kind: KindClientTimeout, Err: failed}
		}
		return &Error{Kind: KindClientGone, Err: cause}
	}
	if _, failed := x.body.state(); failed != nil {
		return &Error{Kind: clientKind(failed), Err: failed}
	}
	e := classify(err, at)
	if x.reached && !e.Addr.IsValid() {
		e.Addr = x.res.Dialed.Addr
	}
	return e
}

// lastHop counts Max-Forwards down (RFC 9110 section 7.6.2). If the request may go no further, it
// answers OPTIONS with an empty 200 and TRACE with 501.
func (x *forwarding) lastHop(out http.Header) bool {
	if x.r.Method != http.MethodOptions && x.r.Method != http.MethodTrace {
		return false
	}
	n, err := strconv.ParseUint(out.Get("Max-Forwards"), 10, 32)
	if err != nil {
		return false
	}
	if n > 0 {
		out["Max-Forwards"] = []string{strconv.FormatUint(n-1, 10)}
		return false
	}
	x.res.Status, x.res.Started = http.StatusOK, true
	if x.r.Method == http.MethodTrace {
		x.res.Status = http.StatusNotImplemented
	}
	x.w.Header()["Content-Length"] = []string{"0"}
	x.w.WriteHeader(x.res.Status)
	return true
}
