//go:build !linux

package testorigin

import (
	"net"
	"net/netip"
	"syscall"
	"time"
)

// reservePort finds a free port. Here it is not reserved while the site refuses connections.
func reservePort(netip.Addr) (port uint16, release func(), err error) {
	l, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.IPv4Unspecified(), 0)))
	if err != nil {
		return 0, nil, err
	}
	defer l.Close() //nolint:errcheck // it was opened for its port alone
	port = l.Addr().(*net.TCPAddr).AddrPort().Port()
	return port, func() {}, nil
}

// stampedConn exists only on Linux, whose kernel reports when data arrived.
type stampedConn struct{ *net.TCPConn }

func listenStamped(string, string, syscall.RawConn) error { return nil }

func stamped(conn net.Conn) net.Conn { return conn }

func arrival(_ net.Conn, now time.Time) time.Time { return now }
