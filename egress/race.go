package egress

import (
	"context"
	"maps"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

// attemptDelay is how long one attempt runs alone before the next address is tried as well (RFC
// 8305 section 5).
const attemptDelay = 250 * time.Millisecond

// interleave makes address families alternate, beginning with the family of the first address (RFC
// 8305 section 4). Within a family it keeps the resolver's order (RFC 6724), and each address once.
func interleave(addrs []netip.Addr) []netip.Addr {
	var tried [2]int // of each family
	turn := make(map[netip.Addr]int, len(addrs))
	for _, a := range addrs {
		if _, again := turn[a]; again {
			continue
		}
		family := 0
		if a.Is4() != addrs[0].Is4() {
			family = 1
		}
		turn[a] = 2*tried[family] + family
		tried[family]++
	}
	return slices.SortedFunc(maps.Keys(turn), func(a, b netip.Addr) int { return turn[a] - turn[b] })
}

type attemptResult struct {
	conn *net.TCPConn
	addr netip.AddrPort
	err  error
}

// race connects to the first of targets that answers. It tries them in order: the next attempt
// starts after attemptDelay, or as soon as one before it has failed. targets must not be empty.
// Losing attempts are cancelled and closed. If all fail, race returns the error and the address of
// the most telling failure.
func race(
	ctx context.Context, targets []netip.AddrPort, attempt func(context.Context, netip.AddrPort) (*net.TCPConn, error),
) (*net.TCPConn, netip.AddrPort, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan attemptResult, len(targets)) // room for all, so that no attempt is left blocked
	next := time.NewTimer(0)
	defer next.Stop()
	var failed attemptResult
	for started, ended := 0, 0; ended < len(targets); {
		select {
		case <-next.C:
			if started < len(targets) {
				target := targets[started]
				started++
				go func() {
					conn, err := attempt(ctx, target)
					results <- attemptResult{conn, target, err}
				}()
				next.Reset(attemptDelay)
			}
		case r := <-results:
			ended++
			if r.err == nil {
				go closeLosers(results, started-ended)
				return r.conn, r.addr, nil
			}
			if failed.err == nil || !informative(failed.err) && informative(r.err) {
				failed = r
			}
			next.Reset(0)
		}
	}
	return nil, failed.addr, failed.err
}

func closeLosers(results <-chan attemptResult, pending int) {
	for range pending {
		if r := <-results; r.conn != nil {
			_ = r.conn.Close()
		}
	}
}

// informative reports whether a failure says something about the origin. The lack of a route on
// this machine does not: on an IPv4-only machine every IPv6 address fails that way.
func informative(err error) bool {
	return !isAny(err, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT)
}
