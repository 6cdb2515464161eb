package egress

import (
	"fmt"
	"net"
	"syscall"
	"testing"
)

// TestClassifyExhausted: in every phase of a dial, a resource that this machine lacks is
// distinguished from a failure of an origin or a proxy.
func TestClassifyExhausted(t *testing.T) {
	t.Parallel()
	for _, lack := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.EADDRNOTAVAIL} {
		socket := fmt.Errorf("socket: %w", lack)
		resolver := &net.DNSError{Err: "dial udp 10.9.8.7:53: " + socket.Error(), Name: "a.example"}
		for _, err := range []error{
			&DialError{Phase: PhaseResolve, Host: "a.example", Err: resolver},
			&DialError{Phase: PhaseConnect, Host: "a.example", Err: socket},
			&DialError{Phase: PhaseProxy, Host: "proxy.example", Err: &DialError{Phase: PhaseConnect, Err: socket}},
			fmt.Errorf("writing: %w", socket),
		} {
			if got := ClassifyDial(err); got.Kind != KindExhausted {
				t.Errorf("%v is %s", err, got.Kind)
			}
		}
	}
	if got := ClassifyDial(&DialError{Phase: PhaseResolve, Err: &net.DNSError{Err: "no such host"}}); got.Kind != KindDNS {
		t.Errorf("a name that does not exist is %s", got.Kind)
	}
}

// TestNeverReached: only failures before the first packet to the site leave it unaware of the
// request.
func TestNeverReached(t *testing.T) {
	t.Parallel()
	unaware := map[Kind]bool{
		KindLoop: true, KindForbidden: true, KindForbiddenPort: true, KindForbiddenOwn: true,
		KindDNS: true, KindDNSTimeout: true, KindExhausted: true,
	}
	for _, k := range []Kind{
		KindLoop, KindForbidden, KindForbiddenPort, KindForbiddenOwn, KindDNS, KindDNSTimeout, KindExhausted,
		KindInternal, KindClientGone, KindClientTimeout, KindRefused, KindConnectTimeout, KindUnroutable, KindUnavailable,
		KindTLSCertificate, KindTLSAlert, KindTLS, KindTimeout, KindReset, KindUpstream, "",
	} {
		if got := (&Error{Kind: k}).NeverReached(); got != unaware[k] {
			t.Errorf("%s: %v", k, got)
		}
	}
}
