package egress

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// hungUp reports whether the other end has closed its sending half or reset the connection, even if
// earlier bytes are still unread.
func hungUp(raw syscall.RawConn) (hung bool) {
	err := raw.Control(func(fd uintptr) {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(polled, 0)
		hung = err == nil && n > 0
	})
	return hung || err != nil
}
