package egress

import (
	"net/http"
	"syscall"
	"time"
)

// leaveTick bounds how late [WatchLeaving] notices that a client has left.
const leaveTick = 250 * time.Millisecond

// WatchLeaving calls left, once, if the client of r closes its connection, or its sending half,
// before stop is called. An HTTP/1.1 server looks for that only after the handler has read the
// request's body, so the context of a request with a body does not end earlier. WatchLeaving
// ignores other requests, because their contexts do end. It needs Linux, and a connection that
// [WithConn] noted. It does not see an end behind more unread bytes than the kernel keeps for the
// connection, some 64 KiB.
func WatchLeaving(r *http.Request, left func()) (stop func()) {
	socket, ok := find[syscall.Conn](notedConn(r, nil))
	if !ok || r.ProtoMajor != 1 || r.Body == nil || r.Body == http.NoBody {
		return func() {}
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return func() {}
	}
	done := make(chan struct{})
	timer := time.AfterFunc(leaveTick, func() {
		tick := time.NewTicker(leaveTick)
		defer tick.Stop()
		for !hungUp(raw) {
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
		left()
	})
	return func() {
		timer.Stop()
		close(done)
	}
}
