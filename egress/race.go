package egress

import (
	"context"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// attemptDelay is how long one attempt runs alone before the next address is tried as well (RFC
// 8305 section 5).
const attemptDelay = 250 * time.Millisecond

// interleave makes address families alternate, beginning with the family of the first address (RFC
// 8305 section 4). Within a family it keeps the resolver's order (RFC 6724).
func interleave(addrs []netip.Addr) []netip.Addr {
	if len(addrs) < 2 {
		return addrs
	}
	var turns [2][]netip.Addr
	for _, a := range addrs {
		family := 0
		if a.Is4() != addrs[0].Is4() {
			family = 1
		}
		turns[family] = append(turns[family], a)
	}
	out := make([]netip.Addr, 0, len(addrs))
	for i := 0; len(out) < len(addrs); i++ {
		for _, t := range turns {
			if i < len(t) {
				out = append(out, t[i])
			}
		}
	}
	return out
}

type attemptResult struct {
	conn *net.TCPConn
	addr netip.AddrPort
	err  error
}

// race connects to the first of targets that answers. It tries them in order: the next attempt
// starts after attemptDelay, or sooner if all before it have failed. targets must not be empty.
// Losing attempts are cancelled and closed. If all fail, race returns the error and the address of
// the most telling failure.
func race(
	ctx context.Context, targets []netip.AddrPort, attempt func(context.Context, netip.AddrPort) (*net.TCPConn, error),
) (*net.TCPConn, netip.AddrPort, error) {
	if len(targets) == 1 {
		conn, err := attempt(ctx, targets[0])
		return conn, targets[0], err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan attemptResult, len(targets)) // room for all, so that no attempt is left blocked
	next, pending := 0, 0
	start := func() {
		target := targets[next]
		next++
		pending++
		go func() {
			conn, err := attempt(ctx, target)
			results <- attemptResult{conn, target, err}
		}()
	}
	timer := time.NewTimer(attemptDelay)
	defer timer.Stop()
	var failed attemptResult
	for start(); pending > 0; {
		select {
		case <-timer.C:
			if next < len(targets) {
				start()
				timer.Reset(attemptDelay)
			}
		case r := <-results:
			pending--
			if r.err == nil {
				go closeLosers(results, pending)
				return r.conn, r.addr, nil
			}
			if failed.err == nil || !informative(failed.err) && informative(r.err) {
				failed = r
			}
			if next < len(targets) && ctx.Err() == nil {
				start()
				timer.Reset(attemptDelay)
			}
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
