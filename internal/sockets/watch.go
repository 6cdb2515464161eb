package sockets

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// The greatest age of an answer. A look takes milliseconds if there are many descriptors. Five new
// looks a second are justified for an address of this machine, and for one that is not public and
// so may become one of this machine's; for others they are not.
const (
	nearAge = 200 * time.Millisecond
	farAge  = 10 * time.Second
)

// Process watches the sockets of this process, whichever configuration opened them: a request of an
// old configuration must not reach the admin endpoint of a new one.
var Process = Watch{Own: Own, Interfaces: interfaceAddrs}

// Watch knows the TCP sockets at which this process listens and the addresses of this machine, as
// they were a moment ago. It is safe for concurrent use. Own, and Interfaces, which lists the
// addresses of this machine, are set before first use.
type Watch struct {
	Own        func() ([]Socket, error)
	Interfaces func() ([]netip.Addr, error)

	changes atomic.Uint64 // how often Changed was called
	mu      sync.Mutex    // held while looking
	last    atomic.Pointer[sight]
}

// sight is the result of one look.
type sight struct {
	sockets  []netip.AddrPort
	unknown  error // why sockets cannot be listed
	addrs    []netip.Addr
	allLocal bool // the addresses cannot be listed, so any may be this machine's
	began    time.Time
	changes  uint64
}

// Changed discards the last look. Call it after a socket began to listen.
func (w *Watch) Changed() { w.changes.Add(1) }

// At returns the addresses at which this process listens at the port of ap, if the address of ap is
// one of this machine's. It does not matter which one: firewall rules may lead from one of them to
// another. The address must have no zone and no IPv4-mapped form. public means that it is not in a
// block for private or other special use. A socket is known 0.2 seconds after it began to listen,
// or at once after [Watch.Changed]. An error means that ap is an address of this machine, whose
// sockets cannot be listed.
func (w *Watch) At(ap netip.AddrPort, public bool) ([]netip.AddrPort, error) {
	if public && !w.look(farAge).local(ap.Addr()) {
		return nil, nil
	}
	s := w.look(nearAge)
	switch {
	case !s.local(ap.Addr()):
		return nil, nil
	case s.unknown != nil:
		return nil, s.unknown
	}
	var at []netip.AddrPort
	for _, l := range s.sockets {
		if l.Port() == ap.Port() {
			at = append(at, l)
		}
	}
	return at, nil
}

// look returns the last look if it is no older than age, and otherwise looks again.
func (w *Watch) look(age time.Duration) *sight {
	fresh := func(s *sight) bool {
		return s != nil && s.changes == w.changes.Load() && time.Since(s.began) < age
	}
	if s := w.last.Load(); fresh(s) {
		return s
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.last.Load(); fresh(s) {
		return s
	}
	s := w.see()
	w.last.Store(s)
	return s
}

func (w *Watch) see() *sight {
	s := &sight{began: time.Now(), changes: w.changes.Load()}
	sockets, err := w.Own()
	s.unknown = err
	for _, l := range sockets {
		if l.Addr.IsValid() {
			s.sockets = append(s.sockets, l.Addr)
		}
	}
	if s.addrs, err = w.Interfaces(); err == nil {
		return s
	}
	if last := w.last.Load(); last != nil { // the process may be out of descriptors
		s.addrs, s.allLocal = last.addrs, last.allLocal
	} else {
		s.allLocal = true
	}
	return s
}

// local reports whether an address is this machine's. A connection to 0.0.0.0 or :: goes to its
// loopback address.
func (s *sight) local(addr netip.Addr) bool {
	return s.allLocal || addr.IsLoopback() || addr.IsUnspecified() || slices.Contains(s.addrs, addr)
}

func interfaceAddrs() ([]netip.Addr, error) {
	nets, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("listing this machine's addresses: %w", err)
	}
	addrs := make([]netip.Addr, 0, len(nets))
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n.String()); err == nil {
			addrs = append(addrs, p.Addr().WithZone("").Unmap())
		}
	}
	return addrs, nil
}
