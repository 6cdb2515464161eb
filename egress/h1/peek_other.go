//go:build !unix

package h1

import "net"

// writeQuietly cannot look on this system, so that no connection is used twice.
func writeQuietly(net.Conn, func() error) error { return errUnquiet }
