//go:build unix

package h1

import (
	"net"
	"syscall"
)

// nothingToRead reports whether a connection is open and has no bytes to read. It looks at the
// socket, because a Read would wait for bytes.
func nothingToRead(c net.Conn) bool {
	socket, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return false
	}
	var peeked error
	err = raw.Control(func(fd uintptr) {
		_, _, peeked = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err == nil && peeked == syscall.EAGAIN
}
