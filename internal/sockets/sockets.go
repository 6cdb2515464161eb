// Package sockets lists the TCP addresses at which this process listens, and the other processes
// that listen there. Caddy has no way to ask for the address of its admin API, and a reload moves
// listeners, so the system is asked.
package sockets

import (
	"net/netip"
	"slices"
)

// Socket is a socket in the state "listen".
type Socket struct {
	// Addr is where it listens, without zone, an IPv4-mapped address as IPv4. It is the zero AddrPort
	// where the socket is not one of TCP, such as a unix socket.
	Addr netip.AddrPort
	// Inode identifies the socket on this machine; 0 where the system has none.
	Inode uint64
}

// Foreign lists the TCP sockets of this machine that are not among own. The error is
// errors.ErrUnsupported on all systems but Linux. A caller takes own first: a socket that this
// process closes in between is in neither list then.
func Foreign(own []Socket) ([]Socket, error) {
	table, err := listening()
	if err != nil {
		return nil, err
	}
	return without(table, own), nil
}

// without takes own out of the table. A socket of own whose inode is not there is taken out by its
// address: not every kernel shows the same inode in both places.
func without(table, own []Socket) []Socket {
	rest := slices.Clone(table)
	isOwn := func(inode uint64) bool {
		return slices.ContainsFunc(own, func(s Socket) bool { return s.Inode == inode })
	}
	taken := make(map[uint64]bool, len(own))
	for _, s := range own {
		if !s.Addr.IsValid() || taken[s.Inode] {
			continue
		}
		taken[s.Inode] = s.Inode != 0
		i := slices.Index(rest, s)
		if i < 0 {
			i = slices.IndexFunc(rest, func(t Socket) bool { return t.Addr == s.Addr && !isOwn(t.Inode) })
		}
		if i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		}
	}
	return rest
}

// Overlap reports whether one connection could reach sockets at both addresses: the ports are the
// same, and so are the addresses, or one of them stands for all of the machine's. An IPv6 one does
// so for IPv4 too.
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
