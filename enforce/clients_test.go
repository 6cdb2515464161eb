package enforce

import (
	"net/netip"
	"testing"
)

func TestClientAllowed(t *testing.T) {
	t.Parallel()
	parse := func(ranges ...string) (list []netip.Prefix) {
		for _, r := range ranges {
			list = append(list, netip.MustParsePrefix(r))
		}
		return list
	}
	any := parse("0.0.0.0/0", "::/0")
	for _, tt := range []struct {
		clients []netip.Prefix
		source  string
		want    bool
	}{
		{nil, "127.0.0.1", true},
		{nil, "127.255.255.255", true},
		{nil, "::1", true},
		{nil, "::ffff:127.0.0.1", true},
		{nil, "10.255.255.255", true},
		{nil, "172.15.255.255", false},
		{nil, "172.16.0.0", true},
		{nil, "172.31.255.255", true},
		{nil, "172.32.0.0", false},
		{nil, "192.168.1.1", true},
		{nil, "169.254.1.1", true},
		{nil, "fc00::1", true},
		{nil, "fd12:3456::1", true},
		{nil, "fe80::1%eth0", true},
		{nil, "100.64.0.1", false},
		{nil, "0.0.0.0", false},
		{nil, "::", false},
		{nil, "8.8.8.8", false},
		{nil, "2001:db8::1", false},
		{nil, "::ffff:8.8.8.8", false},
		{nil, "64:ff9b::10.0.0.1", false},
		{[]netip.Prefix{}, "8.8.8.8", false},
		{parse("10.0.0.0/8"), "127.0.0.1", false},
		{parse("10.0.0.0/8"), "10.1.2.3", true},
		{parse("10.0.0.0/8"), "::ffff:10.1.2.3", true},
		{parse("8.8.8.8/32", "2001:db8::/32"), "8.8.8.8", true},
		{parse("8.8.8.8/32", "2001:db8::/32"), "8.8.8.9", false},
		{parse("8.8.8.8/32", "2001:db8::/32"), "2001:db8::1%1", true},
		{any, "8.8.8.8", true},
		{any, "2001:db8::1", true},
	} {
		if got := ClientAllowed(tt.clients, netip.MustParseAddr(tt.source)); got != tt.want {
			t.Errorf("ClientAllowed(%v, %s) = %t, want %t", tt.clients, tt.source, got, tt.want)
		}
	}
	for _, clients := range [][]netip.Prefix{nil, any} {
		if ClientAllowed(clients, netip.Addr{}) {
			t.Errorf("%v: an unknown address is allowed", clients)
		}
	}
}
