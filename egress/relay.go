package egress

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// errRelayed ends a relay if one of its ends cannot close its sending half alone.
var errRelayed = errors.New("the other end has ended")

// Relay copies bytes between the client and origin until both have ended, half-closing each side
// when the other ends, and closes both. It ends early with ctx, and with [KindStalled] when nothing
// has passed for five minutes. The error is nil for a regular end.
func (t *Tunnel) Relay(ctx context.Context, origin net.Conn) error {
	_, err := relay(ctx, t, origin, &watch{idle: defaultIdle})
	return err
}

// relay copies bytes both ways until both directions have ended, and closes both ends. When one
// direction ends, relay closes the sending half of the other end; if that is impossible, the relay
// ends. A failure, the end of ctx, or the watch's idle time without a byte either way ends both
// directions. The error is an [*Error]. passed is how many bytes have been read from both.
func relay(ctx context.Context, client, origin io.ReadWriteCloser, w *watch) (passed int64, err error) {
	ctx, end := context.WithCancelCause(ctx)
	closeBoth := func() { _, _ = client.Close(), origin.Close() }
	defer context.AfterFunc(ctx, closeBoth)()
	w.ended = end
	w.start(nobody, 0)
	defer w.stop()
	half := func(dst io.Writer, src io.Reader, dstKind, srcKind Kind) {
		if err := relayHalf(dst, src, w, dstKind, srcKind); err != nil {
			end(err)
		}
	}
	var up sync.WaitGroup
	up.Go(func() { half(origin, client, KindIncomplete, KindClientGone) })
	half(client, origin, KindClientGone, KindIncomplete)
	up.Wait()
	cause := context.Cause(ctx)
	closeBoth()
	if cause == nil || errors.Is(cause, errRelayed) {
		return w.passed, nil
	}
	if known, ok := errors.AsType[*Error](cause); ok {
		return w.passed, known
	}
	return w.passed, &Error{Kind: KindClientGone, Err: cause}
}

// relayHalf copies bytes from src to dst until src ends, and passes the end on. dstKind and srcKind
// are the kinds of a failure of dst and of src.
func relayHalf(dst io.Writer, src io.Reader, w *watch, dstKind, srcKind Kind) error {
	buf := getBuffer()
	defer putBuffer(buf)
	for {
		n, err := src.Read(buf[:])
		if n > 0 {
			w.touch(n)
			if _, werr := dst.Write(buf[:n]); werr != nil {
				return &Error{Kind: dstKind, Err: fmt.Errorf("writing: %w", werr)}
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if closeWrite(dst) != nil {
				return errRelayed
			}
			return nil
		case err != nil:
			return &Error{Kind: srcKind, Err: fmt.Errorf("reading: %w", err)}
		}
	}
}

// upgrade passes a granted WebSocket upgrade on and relays until both sides have ended.
func (x *forwarding) upgrade(ctx context.Context, resp *http.Response) *Error {
	origin, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return x.fail(ctx, fmt.Errorf("taking over the origin's connection: %T is not writable", resp.Body))
	}
	h := make(http.Header, len(resp.Header)+2)
	responseFields(h, resp.Header, x.f.Name, x.f.HeaderPrefix)
	h["Connection"] = []string{"Upgrade"}
	h["Upgrade"] = []string{"websocket"}
	conn, err := hijack(x.w, x.r)
	if err != nil {
		x.res.Err = &Error{Kind: KindInternal, Err: err}
		return x.res.Err
	}
	defer func() { _ = conn.Close() }()
	x.res.Started = true
	if err := writeHead(conn, "101 Switching Protocols", h); err != nil {
		x.res.Err = &Error{Kind: KindClientGone, Err: err}
		return nil
	}
	x.w.WriteHeader(http.StatusSwitchingProtocols) // for the log only
	x.res.Uploaded, err = relay(ctx, newTunnel(conn), origin, &watch{idle: cmp.Or(x.f.idle, defaultIdle), tell: x.res.Tell})
	x.res.Err, _ = errors.AsType[*Error](err)
	return nil
}
