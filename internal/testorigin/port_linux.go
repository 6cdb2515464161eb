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
// The port is free at all other addresses of this machine too: a gateway that is
// under test refuses its own port at each of them.
func reservePort(addr netip.Addr) (port uint16, release func(), err error) {
	everywhere, port, err := bind(netip.IPv4Unspecified(), 0)
	if err != nil {
		return 0, nil, err
	}
	defer syscall.Close(everywhere) //nolint:errcheck // it was opened for its port alone
	fd, port, err := bind(addr, port)
	if err != nil {
		return 0, nil, err
	}
	return port, func() { _ = syscall.Close(fd) }, nil
}

// bind opens a socket that is bound to a port, 0 for any.
func bind(addr netip.Addr, port uint16) (fd int, bound uint16, err error) {
	if fd, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0); err != nil {
		return 0, 0, os.NewSyscallError("socket", err)
	}
	if bound, err = bindTo(fd, addr, port); err != nil {
		_ = syscall.Close(fd)
	}
	return fd, bound, err
}

func bindTo(fd int, addr netip.Addr, port uint16) (uint16, error) {
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, os.NewSyscallError("setsockopt", err)
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: addr.As4(), Port: int(port)}); err != nil {
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
