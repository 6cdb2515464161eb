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

// response is an answer whose header has come, and whose body may be read. Each of its phases has
// its own limit, and close ends it whatever state it is in.
type response struct {
	*http.Response

	ctx      context.Context
	cancel   context.CancelCauseFunc
	stall    time.Duration
	decoders chan struct{}
}

// get sends a non-conditional GET (seed 000) and waits for the header of the
// answer. The caller must close it.
func (r *retrieval) get(ctx context.Context, u *url.URL) (*response, *failure) {
	ctx, cancel := context.WithCancelCause(ctx)
	headerTimeout := r.cfg.HeaderTimeout
	if u.Scheme == "ftp" {
		headerTimeout = r.cfg.Timeout // some servers look us up before they greet, and six replies follow
	}
	deadline := time.Now().Add(headerTimeout)
	limit := time.AfterFunc(headerTimeout, func() { cancel(errHeaderTimeout) })
	defer limit.Stop()
	var answered atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		// The connection is not read from before the hook returns: that is no time of the server's.
		GotFirstResponseByte: func() {
			answered.Store(true)
			if left := time.Until(deadline); r.gate != nil && limit.Stop() {
				r.gate(ctx)
				limit.Reset(left)
			}
		},
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel(nil)
		return nil, failf(CauseProtocol, "making the request: %s", reason(err))
	}
	// An empty value keeps net/http from naming itself.
	req.Header.Set("User-Agent", r.cfg.UserAgent)
	req.Header.Set("Accept", "text/plain, */*;q=0.5")
	req.Header.Set("Accept-Encoding", acceptEncoding)

	got, err := r.cfg.Transport.RoundTrip(req)
	if err == nil && ctx.Err() != nil {
		// net/http may give the answer that comes as the time runs out, or may give the error.
		got.Body.Close() //nolint:errcheck,gosec // nothing is wanted of it
		err = ctx.Err()
	}
	if err != nil {
		fail := failed(ctx, err)
		cancel(nil)
		if fail.cause.forbidden() && answered.Load() {
			// An FTP server that was reached names a data connection that the guard refuses.
			fail = failf(CauseFTP, "data connection: %s", fail.detail)
		}
		return nil, fail
	}
	return &response{Response: got, ctx: ctx, cancel: cancel, stall: r.cfg.StallTimeout, decoders: r.decoders}, nil
}

// close drops what is left of the answer. A connection with an unread body is
// closed with it.
func (resp *response) close() {
	resp.cancel(nil)
	resp.Body.Close() //nolint:errcheck,gosec // nothing more is wanted of it
}

// text reads and decodes the body, to at most limit bytes; more says that there
// were more. An incomplete body is a failure unless limit bytes of it came.
func (resp *response) text(limit int) (text []byte, more bool, fail *failure) {
	codings, err := parseCodings(resp.Header)
	if err != nil {
		return nil, false, failf(CauseEncoding, "%s", err)
	}
	if len(codings) == 0 {
		text, more, err = resp.read(limit)
		if err != nil && len(text) < limit {
			return nil, false, brokenBody(resp.ctx, err)
		}
		return text, more || err != nil, nil
	}

	// Coded data is taken in first and decoded then: decoders hold megabytes, and
	// so no slow server can hold a decoder.
	data, _, readErr := resp.read(codedLimit(limit))
	if len(data) == 0 && readErr == nil && resp.framed() {
		return nil, false, nil // an empty file that was not worth coding
	}
	if fail := resp.takeDecoder(); fail != nil {
		return nil, false, fail
	}
	text, more, err = decode(data, codings, limit)
	<-resp.decoders
	switch {
	case more:
		return text, true, nil
	case readErr != nil:
		return nil, false, brokenBody(resp.ctx, readErr)
	case err != nil:
		return nil, false, failf(CauseEncoding, "%s", err)
	default:
		return text, false, nil
	}
}

// takeDecoder waits for one of the places in which bodies are decoded.
func (resp *response) takeDecoder() *failure {
	select {
	case resp.decoders <- struct{}{}:
		return nil
	case <-resp.ctx.Done():
		return failed(resp.ctx, resp.ctx.Err())
	}
}

// framed reports whether the end of the body is told by the protocol and not
// just by the end of the connection.
func (resp *response) framed() bool {
	return resp.ContentLength >= 0 || len(resp.TransferEncoding) > 0 || resp.ProtoMajor >= 2
}

// read reads at most limit bytes of the body as sent; more says that there were
// more. What came before an error is returned with it.
func (resp *response) read(limit int) (data []byte, more bool, err error) {
	body := &stallReader{r: resp.Body, limit: resp.stall}
	body.timer = time.AfterFunc(resp.stall, func() { resp.cancel(errStalled) })
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
