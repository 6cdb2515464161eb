package testorigin

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"
)

// reservePort takes a free port of addr from the kernel and keeps it: a socket
// that is bound to it and never listens. With SO_REUSEADDR a listener may come
// and go beside it, while the kernel gives the port to nobody who asks for any.
// So a site can refuse connections for a while and come back at the same place.
func reservePort(addr netip.Addr) (port uint16, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	release = func() { _ = syscall.Close(fd) }
	port, err = bindAny(fd, addr)
	if err != nil {
		release()
		return 0, nil, err
	}
	return port, release, nil
}

func bindAny(fd int, addr netip.Addr) (uint16, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: addr.As4()}); err != nil {
		return 0, os.NewSyscallError("bind", err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, os.NewSyscallError("getsockname", err)
	}
	inet4, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("getsockname: %T is no IPv4 address", name)
	}
	return uint16(inet4.Port), nil
}
