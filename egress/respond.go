package egress

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"strings"
	"sync"

	"golang.org/x/net/http/httpguts"
)

// maxInterim bounds the interim responses of one request; an origin may not send them without end.
const maxInterim = 64

// respond sends a response to the client.
func (x *forwarding) respond(ctx context.Context, resp *http.Response) {
	h := x.w.Header()
	dropServerFields(h)
	responseFields(h, resp.Header, x.f.Name, x.f.HeaderPrefix)
	x.announce(h, resp)
	if _, ok := h["Content-Type"]; !ok {
		h["Content-Type"] = nil // keeps the server from guessing one
	}
	x.closeBehindBody()
	x.res.Started = true
	x.w.WriteHeader(resp.StatusCode)
	if x.bodiless(resp) {
		return
	}
	if x.copyBody(ctx, resp) {
		x.trailers(resp)
	}
}

// bodiless reports whether no body follows, whatever length is announced (RFC 9110 section 6.4.1).
// net/http's HTTP/2 client reports a 304 that announces a length as broken off.
func (x *forwarding) bodiless(resp *http.Response) bool {
	return resp.Body == http.NoBody || x.r.Method == http.MethodHead ||
		resp.StatusCode == http.StatusNoContent || resp.StatusCode == http.StatusNotModified
}

// dropServerFields removes the fields that the outer server puts into every response in its own
// name: this response is the origin's, or begins a tunnel.
func dropServerFields(h http.Header) {
	delete(h, "Server")
	delete(h, "Alt-Svc")
}

// announce tells the client which trailers will follow. In HTTP/1.1 trailers can only follow
// chunks, so announce drops the length.
func (x *forwarding) announce(h http.Header, resp *http.Response) {
	var names []string
	for name := range resp.Trailer {
		if mayTrail(name) && !hopByHop[name] && !strings.HasPrefix(name, x.f.HeaderPrefix) {
			names = append(names, name)
		}
	}
	if len(names) == 0 || !x.takesTrailers() {
		return
	}
	h["Trailer"] = []string{strings.Join(names, ", ")}
	if x.r.ProtoMajor == 1 {
		delete(h, "Content-Length")
	}
}

func (x *forwarding) takesTrailers() bool {
	return x.r.ProtoAtLeast(1, 1) && x.r.Method != http.MethodHead
}

// trailers sends the trailers, announced or not, if the body is chunked or the client speaks
// HTTP/2.
func (x *forwarding) trailers(resp *http.Response) {
	received, sent := make(http.Header, len(resp.Trailer)), make(http.Header, len(resp.Trailer))
	for name, values := range resp.Trailer { // RFC 9112 section 5.1: no blanks before a colon
		name = http.CanonicalHeaderKey(strings.TrimRight(name, " "))
		if mayTrail(name) && len(values) > 0 {
			received[name] = append(received[name], values...)
		}
	}
	responseFields(sent, received, x.f.Name, x.f.HeaderPrefix)
	if len(sent) == 0 || !x.takesTrailers() {
		return
	}
	// Without a flush the server would add a length to a short body at its end, and drop the trailers.
	_ = x.rc.Flush()
	h := x.w.Header()
	for name, values := range sent {
		if !httpguts.HeaderValuesContainsToken(h["Trailer"], name) {
			name = http.TrailerPrefix + name
		}
		h[name] = values // in place of a field of the same name, which has been sent
	}
}

// copyBufferSize bounds one read of a body or tunnel. 32 KiB holds two of TLS's largest records.
const copyBufferSize = 32 << 10

// buffers holds copy buffers. All are of one size, so nothing oversized is ever kept.
var buffers = sync.Pool{New: func() any { return new([copyBufferSize]byte) }}

func getBuffer() *[copyBufferSize]byte {
	return buffers.Get().(*[copyBufferSize]byte) //nolint:forcetypeassert // see New
}

func putBuffer(b *[copyBufferSize]byte) { buffers.Put(b) }

// copyBody streams the body to the client, and sends all bytes as soon as it has read them. It
// reports false if the body broke off.
func (x *forwarding) copyBody(ctx context.Context, resp *http.Response) (whole bool) {
	rate := x.f.MinRate
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		rate = 0 // it may be long until the next event
	}
	x.body.answer()
	buffered := 0
	if b, ok := resp.Body.(interface{ Buffered() int }); ok {
		buffered = b.Buffered()
	}
	// Otherwise the whole body is here.
	if resp.ContentLength < 0 || resp.ContentLength > int64(buffered) {
		x.watch.start(theOrigin, rate)
	}
	if buffered == 0 {
		_ = x.flush() // the header does not wait for the body; a failure shows in the next write
	}
	buf := getBuffer()
	defer putBuffer(buf)
	for {
		n, err := resp.Body.Read(buf[:])
		if n > 0 {
			x.watch.turn(theClient, n)
			m, werr := x.w.Write(buf[:n])
			if werr == nil && err == nil {
				werr = x.flush() // otherwise the end of the response sends it
			}
			x.watch.turn(theOrigin, 0)
			x.res.Bytes += int64(m)
			if x.res.Copy != nil {
				_, _ = x.res.Copy.Write(buf[:m]) // its errors are the caller's concern
			}
			if werr != nil {
				return x.abort(&Error{Kind: writeKind(werr), Err: werr})
			}
		}
		if err == io.EOF {
			return true
		}
		if err != nil {
			e := x.classify(ctx, err, stageBody)
			// The client may leave once it has the whole body, before an HTTP/2 origin ends the stream.
			if e.Kind == KindClientGone && errors.Is(context.Cause(ctx), context.Canceled) && x.res.Bytes == resp.ContentLength {
				return true
			}
			return x.abort(e)
		}
	}
}

func (x *forwarding) flush() error {
	if err := x.rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

// abort ends a response that has begun, so that the client sees that it is not whole: HTTP/1.1
// closes the connection before the full length or the last chunk, HTTP/2 resets the stream. If
// abort returns, it returns false.
func (x *forwarding) abort(e *Error) bool {
	x.res.Err = e
	if e.Kind != KindClientGone && e.Kind != KindClientTimeout {
		_ = x.flush() // the client may have the header
	}
	if !x.r.ProtoAtLeast(1, 1) {
		x.reset()
	}
	if x.res.Broken == nil {
		panic(http.ErrAbortHandler)
	}
	*x.res.Broken = true
	return false
}

// reset breaks the connection of an HTTP/1.0 client, for which a mere close could be the regular
// end of the body.
func (x *forwarding) reset() {
	conn, _, err := x.rc.Hijack()
	if err != nil {
		return
	}
	breakOff(notedConn(x.r, conn))
	_ = conn.Close()
}

// interim guards the writer while interim responses arrive: the transport reports them in its own
// goroutine, possibly after the round trip was given up.
type interim struct {
	mu    sync.Mutex
	count int
	over  bool
}

// got1xx passes an interim response on (RFC 9110 section 15.2): 103 Early Hints, 102 or any other.
// HTTP/1.0 has no interim responses, so its clients get none.
func (x *forwarding) got1xx(code int, header textproto.MIMEHeader) error {
	x.interim.mu.Lock()
	defer x.interim.mu.Unlock()
	if x.interim.over {
		return nil
	}
	if x.interim.count++; x.interim.count > maxInterim {
		return errManyInterim
	}
	if !x.r.ProtoAtLeast(1, 1) {
		return nil
	}
	if code == http.StatusContinue && x.expecting {
		return nil // the server sends it when the transport reads the body, as it does now
	}
	h := x.w.Header()
	final := maps.Clone(h) // fields that are already set are for the final response
	clear(h)
	responseFields(h, http.Header(header), x.f.Name, x.f.HeaderPrefix)
	x.w.WriteHeader(code)
	clear(h)
	maps.Copy(h, final)
	return nil
}

// endInterim returns the writer to the handler.
func (x *forwarding) endInterim() {
	x.interim.mu.Lock()
	defer x.interim.mu.Unlock()
	x.interim.over = true
}
