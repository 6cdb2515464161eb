//go:build !unix

package h1

import "net"

// nothingToRead cannot tell on this system, so that no connection is used twice.
func nothingToRead(net.Conn) bool { return false }
