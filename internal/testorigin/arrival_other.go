//go:build !linux

package testorigin

import (
	"net"
	"syscall"
	"time"
)

// stampedConn is for Linux, where the kernel tells when data arrived.
type stampedConn struct{ *net.TCPConn }

func listenStamped(string, string, syscall.RawConn) error { return nil }

func stamped(conn net.Conn) net.Conn { return conn }

func arrival(_ net.Conn, now time.Time) time.Time { return now }
