package egress

import (
	"context"
	"net/http"
	"syscall"
	"time"
)

// leaveTick bounds how late [WatchLeaving] notices that a client has left.
const leaveTick = 250 * time.Millisecond

// WatchLeaving calls left, once, if the client of r closes its connection, or its sending half,
// until stop is called. An HTTP/1.1 server looks for that end only after the handler has read the
// request's body, so the context of a request that has one does not end before. Of other requests
// nothing is watched, because their context ends. It needs a connection that was noted by
// [WithConn], and Linux. An end that comes after more bytes than the kernel keeps for the connection,
// some 64 KiB, is not seen.
func WatchLeaving(r *http.Request, left func()) (stop func()) {
	socket, ok := find[syscall.Conn](notedConn(r, nil))
	if !ok || r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return func() {}
	}
	ctx, stop := context.WithCancel(r.Context())
	go func() {
		tick := time.NewTicker(leaveTick)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if hungUp(raw) {
				left()
				return
			}
		}
	}()
	return stop
}
