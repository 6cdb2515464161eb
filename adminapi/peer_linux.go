package adminapi

import (
	"net"
	"syscall"
)

// peerUID returns the id of the user that connected to a unix socket, as reported by the
// kernel.
func peerUID(conn net.Conn) (uid int, known bool) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, false
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			uid, known = int(cred.Uid), true
		}
	})
	return uid, known && err == nil
}
