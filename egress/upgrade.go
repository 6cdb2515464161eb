package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
)

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
	client, err := hijack(x.w, x.r)
	if err != nil {
		x.res.Err = &Error{Kind: KindInternal, Err: err}
		return x.res.Err
	}
	defer func() { _ = client.Close() }()
	x.res.Started = true
	if err := writeHead(client, "101 Switching Protocols", h); err != nil {
		x.res.Err = &Error{Kind: KindClientGone, Err: err}
		return nil
	}
	x.w.WriteHeader(http.StatusSwitchingProtocols) // for the log: the connection is out of the writer's hands
	traffic, err := relay(ctx, client, origin, x.f.idle())
	x.res.BytesIn, x.res.BytesOut = traffic.Up, traffic.Down
	if err != nil {
		x.res.Err = &Error{Kind: relayKind(err), Err: err}
	}
	return nil
}

// writeHead writes an HTTP/1.1 status line and header.
func writeHead(w io.Writer, status string, h http.Header) error {
	bw := bufio.NewWriter(w)
	_, _ = bw.WriteString("HTTP/1.1 " + status + "\r\n") // errors of a bufio.Writer stay until Flush
	_ = h.Write(bw)
	_, _ = bw.WriteString("\r\n")
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("writing %q to the client: %w", status, err)
	}
	return nil
}
