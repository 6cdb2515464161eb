package testorigin

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// reservePort gets a free port of addr from the kernel and keeps it with a socket that is bound to
// it and never listens. With SO_REUSEADDR, a listener can be opened and closed beside it, while the
// kernel gives the port to no process that asks for a free one. So a site can refuse connections
// for a while and then listen at the same address. The port is also free at all other addresses of
// this machine: a gateway under test refuses its own port at each of them.
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

// bind opens a socket that is bound to a port; 0 means any.
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

// listenStamped makes a socket whose connections record when data arrives.
func listenStamped(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) {
		err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_TIMESTAMPNS, 1)
	}); e != nil {
		return e
	}
	return os.NewSyscallError("setsockopt", err)
}

// stampedConn is a connection that records when the kernel received the last byte that was read. On
// a busy machine a process may read its data much later, and the record of when requests arrived
// must not depend on that.
type stampedConn struct {
	*net.TCPConn
	raw     syscall.RawConn
	arrived atomic.Int64 // nanoseconds since 1970; 0 if unknown
}

// stamped wraps an accepted connection.
func stamped(conn net.Conn) net.Conn {
	tcp, ok := conn.(*net.TCPConn)
	if !ok {
		return conn
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return conn
	}
	return &stampedConn{TCPConn: tcp, raw: raw}
}

// Read implements net.Conn.
func (c *stampedConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return c.TCPConn.Read(p)
	}
	var (
		n, oobn int
		oob     [64]byte
		failed  error
	)
	err := c.raw.Read(func(fd uintptr) bool {
		for {
			n, oobn, _, _, failed = syscall.Recvmsg(int(fd), p, oob[:], 0)
			if failed != syscall.EINTR {
				return failed != syscall.EAGAIN
			}
		}
	})
	switch {
	case err != nil:
		return 0, err
	case failed != nil:
		return 0, &net.OpError{Op: "read", Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("recvmsg", failed)}
	case n == 0:
		return 0, io.EOF
	}
	c.arrived.Store(stampOf(oob[:oobn]))
	return n, nil
}

// stampOf returns the time of a control message, or 0 if the message has no time.
func stampOf(oob []byte) int64 {
	messages, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return 0
	}
	for _, m := range messages {
		var ts syscall.Timespec
		if m.Header.Level == syscall.SOL_SOCKET && m.Header.Type == syscall.SCM_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(ts)) {
			ts = *(*syscall.Timespec)(unsafe.Pointer(&m.Data[0]))
			return ts.Nano()
		}
	}
	return 0
}

// arrival returns when the last byte read from a connection arrived, given the time now. If that is
// unknown, it returns now.
func arrival(conn net.Conn, now time.Time) time.Time {
	c, ok := conn.(*stampedConn)
	if !ok {
		return now
	}
	const credible = time.Minute // the wall clock may have been set in between
	stamp := c.arrived.Load()
	age := time.Duration(now.UnixNano() - stamp)
	if stamp == 0 || age < 0 || age > credible {
		return now
	}
	return now.Add(-age)
}
