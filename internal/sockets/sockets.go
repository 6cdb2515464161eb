// Package sockets lists the TCP addresses at which this process and other processes listen. It asks
// the operating system, because Caddy does not tell the address of its admin API, and a reload
// moves listeners.
package sockets

import (
	"net/netip"
	"slices"
)

// Socket is a socket in the state "listen".
type Socket struct {
	// Addr is where it listens, without a zone; an IPv4-mapped address is an IPv4 one here. It is the
	// zero AddrPort for sockets other than TCP's, such as unix sockets.
	Addr netip.AddrPort
	// Inode identifies the socket on this machine; it is 0 if the system has none.
	Inode uint64
}

// Foreign lists the TCP addresses at which other processes of this machine listen. own is the
// result of [Own] a moment before: a socket that this process closes in between is in neither list.
// The error is errors.ErrUnsupported on all systems but Linux.
func Foreign(own []Socket) ([]netip.AddrPort, error) {
	all, err := listening()
	if err != nil {
		return nil, err
	}
	return without(all, own), nil
}

// without removes own from all, one address for each socket. It does not compare inodes, because a
// kernel may show another inode for an MPTCP socket in its table.
func without(all []netip.AddrPort, own []Socket) []netip.AddrPort {
	rest, seen := slices.Clone(all), make(map[uint64]bool, len(own))
	for _, s := range own {
		if seen[s.Inode] {
			continue // another descriptor of the same socket
		}
		seen[s.Inode] = s.Inode != 0
		if i := slices.Index(rest, s.Addr); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
	}
	return rest
}

// Overlap reports whether one connection could reach sockets at both addresses: their ports are
// equal, and so are their IP addresses, or one of these is unspecified. The unspecified IPv6
// address stands for IPv4 too.
func Overlap(a, b netip.AddrPort) bool {
	if a.Port() != b.Port() {
		return false
	}
	x, y := a.Addr(), b.Addr()
	covers := func(wild, other netip.Addr) bool {
		return wild.IsUnspecified() && (wild.Is6() || other.Is4() || other.IsUnspecified())
	}
	return x == y || covers(x, y) || covers(y, x)
}
