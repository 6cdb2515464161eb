package sockets

import (
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"testing"
)

func listen(tb testing.TB, network, addr string) net.Listener {
	tb.Helper()
	l, err := net.Listen(network, addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

func supported(tb testing.TB, err error) {
	tb.Helper()
	if errors.Is(err, errors.ErrUnsupported) {
		tb.Skip("this system does not tell")
	}
	if err != nil {
		tb.Fatal(err)
	}
}

// TestOwn opens sockets of all kinds and checks which of them are listed.
func TestOwn(t *testing.T) {
	wild := listen(t, "tcp", ":0")
	v4, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", v4.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer packets.Close()
	listen(t, "unix", filepath.Join(t.TempDir(), "s"))

	list, err := Own()
	supported(t, err)
	at := func(addr string) int {
		return slices.IndexFunc(list, func(s Socket) bool { return s.Addr.String() == addr })
	}
	for _, l := range []net.Listener{wild, v4} {
		if at(l.Addr().String()) < 0 {
			t.Errorf("%s is not in %v", l.Addr(), list)
		}
	}
	for _, addr := range []string{conn.LocalAddr().String(), packets.LocalAddr().String()} {
		if at(addr) >= 0 {
			t.Errorf("%s does not listen but is in %v", addr, list)
		}
	}
	if !slices.ContainsFunc(list, func(s Socket) bool { return !s.Addr.IsValid() }) {
		t.Errorf("%v has no unix socket", list)
	}
	addr := v4.Addr().String()
	_ = v4.Close()
	if list, err = Own(); err != nil || at(addr) >= 0 {
		t.Errorf("%s is closed but is in %v, %v", addr, list, err)
	}
}

// TestForeign makes this process look like another one by hiding one of its sockets from it.
func TestForeign(t *testing.T) {
	l := listen(t, "tcp", "127.0.0.1:0")
	addr := netip.MustParseAddrPort(l.Addr().String())
	list, err := Own()
	supported(t, err)
	foreign, err := Foreign(list)
	supported(t, err)
	if slices.Contains(foreign, addr) {
		t.Errorf("%s belongs to this process but is in %v", addr, foreign)
	}
	others := slices.DeleteFunc(list, func(s Socket) bool { return s.Addr == addr })
	foreign, err = Foreign(others)
	if err != nil || !slices.Contains(foreign, addr) {
		t.Fatalf("%s is not in %v, %v", addr, foreign, err)
	}
}

func socket(addr string, inode uint64) Socket { return Socket{netip.MustParseAddrPort(addr), inode} }

func addrPorts(list ...string) (addrs []netip.AddrPort) {
	for _, text := range list {
		addrs = append(addrs, netip.MustParseAddrPort(text))
	}
	return addrs
}

func TestWithout(t *testing.T) {
	t.Parallel()
	a, b, c := socket("127.0.0.1:1", 11), socket("127.0.0.1:1", 12), socket("[::]:2", 13)
	one, both, all := addrPorts("127.0.0.1:1"), addrPorts("127.0.0.1:1", "127.0.0.1:1"), addrPorts("127.0.0.1:1", "127.0.0.1:1", "[::]:2")
	for _, tt := range []struct {
		name string
		all  []netip.AddrPort
		own  []Socket
		want []netip.AddrPort
	}{
		{"nothing", nil, nil, nil},
		{"nothing of ours", all, nil, all},
		{"all ours", all, []Socket{a, b, c}, nil},
		{"one shared", both, []Socket{b}, one},
		{"two descriptors", both, []Socket{b, b}, one},
		{"closed in between", one, []Socket{b, a}, nil},
		{"another port", all, []Socket{c}, both},
		{"unix", one, []Socket{{Inode: 11}}, one},
		{"no inodes", both, []Socket{socket("127.0.0.1:1", 0), socket("127.0.0.1:1", 0)}, nil},
	} {
		if got := without(tt.all, tt.own); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestOverlap(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		a, b string
		want bool
	}{
		{"127.0.0.1:80", "127.0.0.1:80", true},
		{"127.0.0.1:80", "127.0.0.1:81", false},
		{"127.0.0.1:80", "127.0.0.2:80", false},
		{"127.0.0.1:80", "0.0.0.0:80", true},
		{"127.0.0.1:80", "[::]:80", true},
		{"[::1]:80", "[::]:80", true},
		{"[::1]:80", "0.0.0.0:80", false},
		{"[::1]:80", "127.0.0.1:80", false},
		{"[::]:80", "0.0.0.0:80", true},
		{"[::]:80", "[::]:81", false},
	} {
		a, b := netip.MustParseAddrPort(tt.a), netip.MustParseAddrPort(tt.b)
		if Overlap(a, b) != tt.want || Overlap(b, a) != tt.want {
			t.Errorf("%s and %s: want %t", a, b, tt.want)
		}
	}
	if Overlap(netip.AddrPort{}, netip.MustParseAddrPort("0.0.0.0:80")) {
		t.Error("Overlap of an invalid address = true")
	}
}
