//go:build !unix

package h1

import "net"

// nothingToRead does not know, so that no connection is used twice.
func nothingToRead(net.Conn) bool { return false }
