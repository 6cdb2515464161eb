package egress

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/egress/guard"
)

// names is a resolver that knows the given names and counts its lookups.
type names struct {
	addrs map[string][]string
	asked atomic.Int32
	err   error
}

func (n *names) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	n.asked.Add(1)
	if n.err != nil {
		return nil, n.err
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var out []netip.Addr
	for _, a := range n.addrs[strings.TrimSuffix(host, ".")] {
		out = append(out, netip.MustParseAddr(a))
	}
	return out, nil
}

// listen opens a listener on loopback that accepts and holds connections until the test ends.
func listen(t *testing.T, addr string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return netip.MustParseAddrPort(l.Addr().String())
}

func loopbackGuard() *guard.Guard {
	return &guard.Guard{AllowPrivate: prefixes("127.0.0.0/8", "::1/128")}
}

func TestDialerDialsTheCheckedAddress(t *testing.T) {
	t.Parallel()
	target := listen(t, "127.0.0.1:0")
	r := &names{addrs: map[string][]string{
		"site":   {"127.0.0.1"},
		"mapped": {"::ffff:127.0.0.1"},
		"some":   {"10.9.9.9", "169.254.169.254", "127.0.0.1"},
	}}
	d := &Dialer{Guard: loopbackGuard(), Resolver: r}
	for i, host := range []string{"site", "mapped", "some", "127.0.0.1", "::ffff:127.0.0.1"} {
		before := r.asked.Load()
		c, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort(host, fmt.Sprint(target.Port())))
		if err != nil {
			t.Fatalf("dialing %s: %v", host, err)
		}
		defer c.Close()
		info, ok := DialedOf(c)
		if !ok || info.Addr != target {
			t.Errorf("%s: dialed %v, %v, want %v", host, info, ok, target)
		}
		asked := r.asked.Load() - before
		if literal := i > 2; literal && (asked != 0 || info.DNS != 0) || !literal && asked != 1 {
			t.Errorf("%s: %d lookups, which took %v", host, asked, info.DNS)
		}
	}
}

func TestDialerRefuses(t *testing.T) {
	t.Parallel()
	r := &names{addrs: map[string][]string{
		"private": {"10.1.1.1", "fd00::1"},
		"mapped":  {"::ffff:127.0.0.1"},
		"nat64":   {"64:ff9b::7f00:1"},
		"rebind":  {"8.8.8.8", "127.0.0.1"},
		"rebind6": {"fd00::1", "2606:4700::1"},
		"cloud":   {"8.8.8.8", "168.63.129.16"},
	}}
	d := &Dialer{Resolver: r} // with the zero guard
	tests := []struct {
		addr string
		want guard.Class
	}{
		{"private:80", "private"},
		{"mapped:80", "loopback"},
		{"nat64:80", "loopback"},
		{"rebind:80", guard.ClassMixed},
		{"rebind6:25", guard.ClassMixed},
		{"cloud:443", guard.ClassMixed},
		{"127.0.0.1:80", "loopback"},
		{"[::1]:80", "loopback"},
		{"[::ffff:127.0.0.1]:80", "loopback"},
		{"[fe80::1%lo]:80", "link_local"},
		{"8.8.8.8:25", guard.ClassPort},
	}
	for _, tt := range tests {
		c, err := d.DialContext(t.Context(), "tcp", tt.addr)
		if c != nil {
			t.Errorf("%s: got a connection with error %v", tt.addr, err)
		}
		checkRefusal(t, tt.addr, err, tt.want)
	}
}

// TestDialerSocketGuard checks that the guard is asked again at the socket, about the address to
// connect to.
func TestDialerSocketGuard(t *testing.T) {
	t.Parallel()
	target := listen(t, "127.0.0.1:0")
	asked := 0
	_, err := attempt(t.Context(), target, func(ap netip.AddrPort) error {
		asked++
		if ap != target {
			t.Errorf("the guard was asked about %v, want %v", ap, target)
		}
		return &guard.ForbiddenError{Addr: ap, Class: "loopback"}
	})
	checkRefusal(t, "socket", err, "loopback")
	if asked != 1 {
		t.Errorf("the guard was asked %d times, want 1", asked)
	}
}

func TestDialerErrors(t *testing.T) {
	t.Parallel()
	free := freePort(t)
	tests := []struct {
		name, addr string
		resolver   *names
		want       Kind
	}{
		{"no such name", "none:80", &names{}, KindDNS},
		{"resolver fails", "h:80", &names{err: &net.DNSError{Err: "server misbehaving", Name: "h"}}, KindDNS},
		{"resolver silent", "h:80", &names{err: &net.DNSError{Err: "i/o timeout", Name: "h", IsTimeout: true}}, KindDNSTimeout},
		{"refused", fmt.Sprintf("127.0.0.1:%d", free), nil, KindRefused},
		{"all refused", fmt.Sprintf("two:%d", free), &names{addrs: map[string][]string{"two": {"127.0.0.1", "127.0.0.2"}}}, KindRefused},
		{"not public", "10.0.0.1:80", nil, KindForbidden},
		{"port", "127.0.0.1:25", nil, KindForbiddenPort},
	}
	for _, tt := range tests {
		d := &Dialer{Guard: loopbackGuard()}
		if tt.resolver != nil {
			d.Resolver = tt.resolver
		}
		_, err := d.DialContext(t.Context(), "tcp", tt.addr)
		if err == nil {
			t.Errorf("%s: the dial succeeded", tt.name)
			continue
		}
		if got := ClassifyDial(err); got.Kind != tt.want {
			t.Errorf("%s: %v is %v, want %v", tt.name, err, got.Kind, tt.want)
		}
	}
	for _, bad := range []string{"h", "h:http", "h:0", "h:70000", "a:b:80"} {
		if _, err := new(Dialer).DialContext(t.Context(), "tcp", bad); err == nil {
			t.Errorf("the dial of %q succeeded", bad)
		}
	}
}

// freePort returns a port on which nothing listens.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// stuck is a resolver that answers only when the context ends.
type stuck struct{}

func (stuck) LookupNetIP(ctx context.Context, _, host string) ([]netip.Addr, error) {
	<-ctx.Done()
	return nil, &net.DNSError{Err: ctx.Err().Error(), Name: host, IsTimeout: ctx.Err() == context.DeadlineExceeded, UnwrapErr: ctx.Err()}
}

func TestDialerTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		_, err := (&Dialer{Resolver: stuck{}}).dial(t.Context(), "h", 80, toOrigin)
		if kind := ClassifyDial(err).Kind; kind != KindDNSTimeout {
			t.Errorf("%v is %v, want %v", err, kind, KindDNSTimeout)
		}
		if took := time.Since(start); took != DefaultDialTimeout {
			t.Errorf("the dial gave up after %v, want %v", took, DefaultDialTimeout)
		}
	})
}

func TestDialerHonoursContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := (&Dialer{Resolver: stuck{}}).dial(ctx, "h", 80, toOrigin); err == nil {
			t.Error("the dial succeeded")
		}
		if took := time.Since(start); took != time.Second {
			t.Errorf("the dial went on for %v after the end of the context", took-time.Second)
		}
	})
}

func TestDialerCheckWantsEveryAddressAllowed(t *testing.T) {
	t.Parallel()
	d := &Dialer{Guard: loopbackGuard(), Resolver: &names{addrs: map[string][]string{
		"good":  {"8.8.8.8", "2606:4700::1"},
		"nat64": {"8.8.8.8", "64:ff9b::808:808"}, // has the class of the address inside
		"some":  {"127.0.0.1", "10.0.0.1"},
		"mixed": {"8.8.8.8", "10.0.0.1"},
	}}}
	for _, host := range []string{"good", "nat64"} {
		if _, err := d.check(t.Context(), host, 443, toOrigin); err != nil {
			t.Errorf("%s: %v", host, err)
		}
	}
	for host, want := range map[string]guard.Class{"some": "private", "mixed": guard.ClassMixed} {
		_, err := d.check(t.Context(), host, 443, toOrigin)
		checkRefusal(t, host, err, want)
	}
}

// TestDialerRefusesMixedNames checks that a name with both public and non-public addresses is
// refused, even if the guard allows both.
func TestDialerRefusesMixedNames(t *testing.T) {
	t.Parallel()
	target := listen(t, "127.0.0.1:0")
	d := &Dialer{
		Guard:    &guard.Guard{AllowPrivate: prefixes("0.0.0.0/0", "::/0")},
		Resolver: &names{addrs: map[string][]string{"rebind": {"127.0.0.1", "8.8.8.8"}, "local": {"127.0.0.1", "::1"}}},
	}
	_, err := d.dial(t.Context(), "rebind", target.Port(), toOrigin)
	checkRefusal(t, "dial", err, guard.ClassMixed)
	if got := ClassifyDial(err); got.Kind != KindForbidden || !strings.Contains(err.Error(), "name rebind has a public and a non-public address") {
		t.Errorf("%v is %v", err, got.Kind)
	}
	_, err = d.check(t.Context(), "rebind", target.Port(), toOrigin)
	checkRefusal(t, "check", err, guard.ClassMixed)
	c, err := d.dial(t.Context(), "local", target.Port(), toOrigin)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.Close()
}

// searching is a resolver with a search list: it finds "pub" as pub.test, but not "pub.".
type searching struct{ asked []string }

func (s *searching) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	s.asked = append(s.asked, host)
	if strings.HasSuffix(host, ".") {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
}

// TestTargetNamesAreAbsolute checks that a name from a client or a site is not looked up in the
// search list of resolv.conf. Otherwise a client could evade a rule for pub.test with the name pub.
// The name of an upstream proxy comes from the operator.
func TestTargetNamesAreAbsolute(t *testing.T) {
	t.Parallel()
	r := new(searching)
	d := &Dialer{Guard: loopbackGuard(), Resolver: r}
	direct := newTestTransport(t, TransportConfig{Dialer: d})
	upstream := newTestTransport(t, TransportConfig{Dialer: d, Upstreams: []Upstream{{URL: mustURL(t, "http://proxy:1")}}})
	for what, ask := range map[string]func() error{
		"request": func() error {
			_, err := direct.RoundTrip(request(t, t.Context(), "GET", "http://pub/", nil))
			return err
		},
		"tunnel":   func() error { _, err := direct.DialTunnel(t.Context(), "pub", 443); return err },
		"check":    func() error { _, err := d.check(t.Context(), "pub", 80, toOrigin); return err },
		"upstream": func() error { _, err := upstream.DialTunnel(t.Context(), "pub", 80); return err },
	} {
		r.asked = nil
		err := ask()
		if got := ClassifyDial(err); got.Kind != KindDNS || !slices.Equal(r.asked, []string{"pub."}) {
			t.Errorf("%s: looked up %q, error %v, want only pub.", what, r.asked, err)
		}
		if dns, ok := errors.AsType[*net.DNSError](err); !ok || dns.Name != "pub" {
			t.Errorf("%s: the error %v is not about the requested name", what, err)
		}
	}
	r.asked = nil
	_, err := upstream.DialTunnel(t.Context(), "127.0.0.1", 80)
	if got := ClassifyDial(err); got.Kind != KindUpstream || !slices.Equal(r.asked, []string{"proxy"}) {
		t.Errorf("proxy: looked up %q, error %v", r.asked, err)
	}
}

// TestHostsFile checks that every build finds names of the hosts file, although they are looked up
// as absolute names.
func TestHostsFile(t *testing.T) {
	t.Parallel()
	addrs, took, err := new(Dialer).lookup(t.Context(), "localhost", 80, toOrigin)
	if err != nil || took == 0 || !slices.ContainsFunc(addrs, netip.Addr.IsLoopback) {
		t.Errorf("localhost has the addresses %v, error %v", addrs, err)
	}
}

func TestInterleaveRFC8305(t *testing.T) {
	t.Parallel()
	parse := func(texts ...string) (out []netip.Addr) {
		for _, s := range texts {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	tests := []struct{ in, want []netip.Addr }{
		{nil, nil},
		{parse("1.1.1.1"), parse("1.1.1.1")},
		{parse("2001::1", "2001::2", "1.1.1.1", "2001::3", "1.1.1.2"), parse("2001::1", "1.1.1.1", "2001::2", "1.1.1.2", "2001::3")},
		{parse("1.1.1.1", "1.1.1.2", "2001::1"), parse("1.1.1.1", "2001::1", "1.1.1.2")},
		{parse("1.1.1.1", "2001::1", "1.1.1.1"), parse("1.1.1.1", "2001::1")},
	}
	for _, tt := range tests {
		if got := interleave(tt.in); !slices.Equal(got, tt.want) {
			t.Errorf("interleave(%v) = %v, want %v", tt.in, got, tt.want)
		}
	}
}

func TestPermittedIsBounded(t *testing.T) {
	t.Parallel()
	many := make([]netip.Addr, 0, 100)
	for i := range 100 {
		many = append(many, netip.AddrFrom4([4]byte{8, 8, 8, byte(i)}))
	}
	got, err := permitted(many, 80, new(guard.Guard).Allow)
	if err != nil || len(got) != maxAddresses {
		t.Errorf("%d addresses are tried, error %v, want %d", len(got), err, maxAddresses)
	}
}

// script is an attempt function with a plan for each address: fail after a time, hang, or connect.
type script map[string]struct {
	after time.Duration
	err   error
	hang  bool
}

func (s script) attempt(ctx context.Context, ap netip.AddrPort) (*net.TCPConn, error) {
	p := s[ap.Addr().String()]
	if p.hang {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	select {
	case <-time.After(p.after):
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if p.err != nil {
		return nil, p.err
	}
	return new(net.TCPConn), nil
}

func TestRaceRFC8305(t *testing.T) {
	t.Parallel()
	dead := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	noRoute := fmt.Errorf("dial: %w", syscall.ENETUNREACH)
	tests := []struct {
		name    string
		plan    script
		targets []string
		winner  string
		took    time.Duration
		err     error
	}{
		{"first answers", script{"1.1.1.1": {after: 100 * time.Millisecond}}, []string{"1.1.1.1", "2.2.2.2"}, "1.1.1.1", 100 * time.Millisecond, nil},
		{"first hangs", script{"1.1.1.1": {hang: true}, "2.2.2.2": {after: 10 * time.Millisecond}}, []string{"1.1.1.1", "2.2.2.2"}, "2.2.2.2", 260 * time.Millisecond, nil},
		{"first fails", script{"1.1.1.1": {after: 5 * time.Millisecond, err: dead}, "2.2.2.2": {after: 10 * time.Millisecond}}, []string{"1.1.1.1", "2.2.2.2"}, "2.2.2.2", 15 * time.Millisecond, nil},
		{"slow first wins", script{"1.1.1.1": {after: 300 * time.Millisecond}, "2.2.2.2": {after: 90 * time.Millisecond}}, []string{"1.1.1.1", "2.2.2.2"}, "1.1.1.1", 300 * time.Millisecond, nil},
		{"two hang", script{"1.1.1.1": {hang: true}, "2.2.2.2": {hang: true}}, []string{"1.1.1.1", "2.2.2.2", "3.3.3.3"}, "3.3.3.3", 500 * time.Millisecond, nil},
		{"all fail", script{"1.1.1.1": {err: noRoute}, "2.2.2.2": {after: 20 * time.Millisecond, err: dead}}, []string{"1.1.1.1", "2.2.2.2"}, "2.2.2.2", 20 * time.Millisecond, dead},
		{"all fail, first tells", script{"1.1.1.1": {err: dead}, "2.2.2.2": {err: noRoute}}, []string{"1.1.1.1", "2.2.2.2"}, "1.1.1.1", 0, dead},
		{"all hang", script{"1.1.1.1": {hang: true}, "2.2.2.2": {hang: true}}, []string{"1.1.1.1", "2.2.2.2"}, "", 10 * time.Second, context.DeadlineExceeded},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { // a remaining goroutine fails the test
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				var targets []netip.AddrPort
				for _, s := range tt.targets {
					targets = append(targets, netip.AddrPortFrom(netip.MustParseAddr(s), 80))
				}
				start := time.Now()
				conn, winner, err := race(ctx, targets, tt.plan.attempt)
				if !errors.Is(err, tt.err) || (conn == nil) != (tt.err != nil) {
					t.Errorf("race = %v, %v, want error %v", conn, err, tt.err)
				}
				if tt.winner != "" && winner.Addr().String() != tt.winner {
					t.Errorf("winner is %v, want %v", winner, tt.winner)
				}
				if took := time.Since(start); took != tt.took {
					t.Errorf("took %v, want %v", took, tt.took)
				}
			})
		})
	}
}
