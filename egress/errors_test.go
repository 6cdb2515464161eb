package egress

import (
	"fmt"
	"net"
	"syscall"
	"testing"
)

// TestClassifyExhausted checks that in every phase of a dial a missing resource of this machine is
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
				t.Errorf("ClassifyDial(%v) = %s, want exhausted", err, got.Kind)
			}
		}
	}
	if got := ClassifyDial(&DialError{Phase: PhaseResolve, Err: &net.DNSError{Err: "no such host"}}); got.Kind != KindDNS {
		t.Errorf("ClassifyDial of a missing name = %s, want dns", got.Kind)
	}
}

// TestNeverReached checks that only failures before the first packet to the site count as unnoticed
// by it.
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
			t.Errorf("NeverReached of %s = %v, want %v", k, got, unaware[k])
		}
	}
}
