//go:build unix

package h1

import (
	"net"
	"syscall"
)

// writeQuietly calls write if a kept connection is open and has no bytes to read, and then waits
// until it has some. It returns write's error, or errUnquiet, after which nothing was sent. It does
// not report that the wait failed, because a Read fails for the same reason.
//
// A Read after write would ask the socket again before it waits, mostly in vain. So this look is
// the first attempt to read the answer, made before the request leaves, and the whole exchange has
// no more system calls than without a look.
func writeQuietly(c net.Conn, write func() error) error {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return errUnquiet
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return errUnquiet
	}
	looked, err := false, errUnquiet
	_ = raw.Read(func(fd uintptr) (done bool) {
		if looked {
			return true
		}
		looked = true
		// What arrives after this look ends the wait, even if write has not returned yet.
		if _, failure := syscall.Read(int(fd), make([]byte, 1)); failure == syscall.EAGAIN {
			err = write()
		}
		return err != nil
	})
	return err
}
