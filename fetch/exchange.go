package fetch

import (
	"context"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// exchange is one request and the header of its answer. Each of its phases has
// its own limit, and close ends it whatever state it is in.
type exchange struct {
	*http.Response

	ctx    context.Context
	cancel context.CancelCauseFunc
	stall  time.Duration
	slots  chan struct{}
}

// get sends a non-conditional GET (seed 000) and waits for the header of the
// answer. The caller must close the exchange.
func (f *Fetcher) get(ctx context.Context, u *url.URL) (*exchange, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	turn := TurnOf(ctx)
	turn.Asked()
	headerTimeout := f.headerTimeout
	if u.Scheme == "ftp" {
		headerTimeout = f.timeout // some servers look us up before they greet, and six replies follow
	}
	limit := newStopwatch(headerTimeout, func() { cancel(errHeaderTimeout) })
	defer limit.end()
	var answered atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// The connection is not read from before the hook returns: that is no time of the server's.
		GotFirstResponseByte: func() {
			answered.Store(true)
			limit.pause()
			turn.Answered(ctx)
			limit.resume()
		},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, failf(CauseProtocol, "making the request: %s", reason(err))
	}
	// An empty value keeps net/http from naming itself.
	req.Header.Set("User-Agent", f.userAgent)
	req.Header.Set("Accept", "text/plain, */*;q=0.5")
	req.Header.Set("Accept-Encoding", acceptEncoding)

	resp, err := f.transport.RoundTrip(req) //nolint:bodyclose // exchange.close does
	if err != nil {
		fail := failed(ctx, err)
		cancel(nil)
		if fail.cause.forbidden() && answered.Load() {
			// An FTP server that was reached names a data connection that the guard refuses.
			fail = failf(CauseFTP, "data connection: %s", fail.detail)
		}
		return nil, fail
	}
	return &exchange{Response: resp, ctx: ctx, cancel: cancel, stall: f.stallTimeout, slots: f.decoders}, nil
}

// close drops what is left of the answer. A connection with an unread body is
// closed with it.
func (x *exchange) close() {
	x.cancel(nil)
	x.Body.Close() //nolint:errcheck,gosec // nothing more is wanted of it
}

// text reads and decodes the body, to at most limit octets; more says that there
// were more. An incomplete body is a failure unless limit octets of it came.
func (x *exchange) text(limit int) (text []byte, more bool, fail *failure) {
	codings, err := parseCodings(x.Header)
	if err != nil {
		return nil, false, failf(CauseEncoding, "%s", err)
	}
	if len(codings) == 0 {
		text, more, err = x.read(limit)
		if err != nil && len(text) < limit {
			return nil, false, brokenBody(x.ctx, err)
		}
		return text, more || err != nil, nil
	}

	// Coded data is taken in first and decoded then: decoders hold megabytes, and
	// so no slow server can hold a decoder.
	data, _, readErr := x.read(codedLimit(limit))
	if len(data) == 0 && readErr == nil && x.framed() {
		return nil, false, nil // an empty file that was not worth coding
	}
	if fail := x.takeSlot(); fail != nil {
		return nil, false, fail
	}
	text, more, err = decode(data, codings, limit)
	<-x.slots
	switch {
	case more:
		return text, true, nil
	case readErr != nil:
		return nil, false, brokenBody(x.ctx, readErr)
	case err != nil:
		return nil, false, failf(CauseEncoding, "%s", err)
	default:
		return text, false, nil
	}
}

// takeSlot waits for one of the places in which bodies are decoded.
func (x *exchange) takeSlot() *failure {
	select {
	case x.slots <- struct{}{}:
		return nil
	case <-x.ctx.Done():
		return failed(x.ctx, x.ctx.Err())
	}
}

// framed reports whether the end of the body is told by the protocol and not
// just by the end of the connection.
func (x *exchange) framed() bool {
	return x.ContentLength >= 0 || len(x.TransferEncoding) > 0 || x.ProtoMajor >= 2
}

// read reads at most limit octets of the body as sent; more says that there were
// more. What came before an error is returned with it.
func (x *exchange) read(limit int) (data []byte, more bool, err error) {
	body := &stallReader{r: x.Body, limit: x.stall}
	body.timer = time.AfterFunc(x.stall, func() { x.cancel(errStalled) })
	defer body.timer.Stop()
	data, err = io.ReadAll(io.LimitReader(body, int64(limit)+1))
	if len(data) > limit {
		return data[:limit:limit], true, nil
	}
	return data, false, err
}

// stallReader restarts its timer with every read.
type stallReader struct {
	r     io.Reader
	timer *time.Timer
	limit time.Duration
}

// Read implements io.Reader.
func (s *stallReader) Read(p []byte) (int, error) {
	s.timer.Reset(s.limit)
	return s.r.Read(p)
}
