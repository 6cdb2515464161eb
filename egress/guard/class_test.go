package guard

import (
	"net/netip"
	"testing"
)

// Each block of the IANA special-purpose registries is tested with its first and last address and,
// if they are public, its neighbours. So are the addresses of several metadata services.
func TestClassify(t *testing.T) {
	t.Parallel()
	tests := []struct {
		addr string
		want Class
	}{
		{"0.0.0.0", "this_network"},
		{"0.255.255.255", "this_network"},
		{"1.0.0.0", ClassPublic},
		{"9.255.255.255", ClassPublic},
		{"10.0.0.0", "private"},
		{"10.255.255.255", "private"},
		{"11.0.0.0", ClassPublic},
		{"100.63.255.255", ClassPublic},
		{"100.64.0.0", "shared"},
		{"100.127.255.255", "shared"},
		{"100.128.0.0", ClassPublic},
		{"126.255.255.255", ClassPublic},
		{"127.0.0.1", "loopback"},
		{"127.255.255.255", "loopback"},
		{"128.0.0.0", ClassPublic},
		{"169.253.255.255", ClassPublic},
		{"169.254.0.0", "link_local"},
		{"169.254.255.255", "link_local"},
		{"169.255.0.0", ClassPublic},
		{"172.15.255.255", ClassPublic},
		{"172.16.0.0", "private"},
		{"172.31.255.255", "private"},
		{"172.32.0.0", ClassPublic},
		{"191.255.255.255", ClassPublic},
		{"192.0.0.0", "protocol_assignment"},
		{"192.0.0.255", "protocol_assignment"},
		{"192.0.1.0", ClassPublic},
		{"192.0.2.0", "documentation"},
		{"192.0.2.255", "documentation"},
		{"192.0.3.0", ClassPublic},
		{"192.88.98.255", ClassPublic},
		{"192.88.99.1", "6to4_relay"},
		{"192.88.100.0", ClassPublic},
		{"192.167.255.255", ClassPublic},
		{"192.168.0.0", "private"},
		{"192.168.255.255", "private"},
		{"192.169.0.0", ClassPublic},
		{"198.17.255.255", ClassPublic},
		{"198.18.0.0", "benchmark"},
		{"198.19.255.255", "benchmark"},
		{"198.20.0.0", ClassPublic},
		{"198.51.99.255", ClassPublic},
		{"198.51.100.0", "documentation"},
		{"198.51.100.255", "documentation"},
		{"198.51.101.0", ClassPublic},
		{"203.0.112.255", ClassPublic},
		{"203.0.113.0", "documentation"},
		{"203.0.113.255", "documentation"},
		{"203.0.114.0", ClassPublic},
		{"223.255.255.255", ClassPublic},
		{"224.0.0.0", "multicast"},
		{"239.255.255.255", "multicast"},
		{"240.0.0.0", ClassReserved},
		{"255.255.255.254", ClassReserved},
		{"255.255.255.255", "broadcast"},

		{"169.254.169.254", ClassMetadata},
		{"169.254.169.253", ClassMetadata},
		{"169.254.170.2", ClassMetadata},
		{"169.254.170.23", ClassMetadata},
		{"100.100.100.200", ClassMetadata},
		{"168.63.129.16", ClassMetadata},
		{"168.63.129.17", ClassPublic},
		{"fd00:ec2::23", ClassMetadata},
		{"fd00:ec2::253", ClassMetadata},
		{"fd00:ec2::254", ClassMetadata},
		{"fd20:ce::254", ClassMetadata},

		{"::", "unspecified"},
		{"::1", "loopback"},
		{"::2", "ipv4_compatible"},
		{"::8.8.8.8", "ipv4_compatible"},
		{"::ffff:127.0.0.1", "loopback"},
		{"::ffff:8.8.8.8", ClassPublic},
		{"::ffff:169.254.169.254", ClassMetadata},
		{"::ffff:0:8.8.8.8", "ipv4_translated"},
		{"64:ff9b::8.8.8.8", ClassPublic},
		{"64:ff9b::10.1.2.3", "private"},
		{"64:ff9b::127.0.0.1", "loopback"},
		{"64:ff9b::169.254.169.254", ClassMetadata},
		{"64:ff9b:0:0:0:1::", ClassReserved},
		{"64:ff9b:1::", "nat64_local"},
		{"64:ff9b:1:ffff:ffff:ffff:ffff:ffff", "nat64_local"},
		{"64:ff9b:2::", ClassReserved},
		{"100::", "discard"},
		{"100::ffff:ffff:ffff:ffff", "discard"},
		{"100:0:0:1::1", "discard"},
		{"100:0:0:2::", ClassReserved},
		{"2001::1", "teredo"},
		{"2001:0:ffff:ffff:ffff:ffff:ffff:ffff", "teredo"},
		{"2001:1::1", "protocol_assignment"},
		{"2001:2::1", "benchmark"},
		{"2001:2:1::", "protocol_assignment"},
		{"2001:10::", "protocol_assignment"},
		{"2001:20::", "protocol_assignment"},
		{"2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff", "protocol_assignment"},
		{"2001:200::", ClassPublic},
		{"2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", ClassPublic},
		{"2001:db8::", "documentation"},
		{"2001:db9::", ClassPublic},
		{"2002::", "6to4"},
		{"2002:808:808::1", "6to4"},
		{"2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "6to4"},
		{"2003::", ClassPublic},
		{"1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ClassReserved},
		{"2000::", ClassPublic},
		{"2606:4700::1111", ClassPublic},
		{"3ffe:ffff:ffff:ffff:ffff:ffff:ffff:ffff", ClassPublic},
		{"3fff::", "documentation"},
		{"3fff:fff:ffff::", "documentation"},
		{"3fff:1000::", ClassPublic},
		{"4000::", ClassReserved},
		{"5f00::1", "segment_routing"},
		{"fbff:ffff::", ClassReserved},
		{"fc00::", "unique_local"},
		{"fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "unique_local"},
		{"fe00::", ClassReserved},
		{"fe80::", "link_local"},
		{"fe80::1%eth0", "link_local"},
		{"febf:ffff::1", "link_local"},
		{"fec0::", "site_local"},
		{"feff::1", "site_local"},
		{"ff00::", "multicast"},
		{"ff02::1", "multicast"},
	}
	for _, tt := range tests {
		if got := Classify(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("Classify(%s) = %v, want %v", tt.addr, got, tt.want)
		}
	}
	if got := Classify(netip.Addr{}); got != ClassInvalid {
		t.Errorf("Classify of the zero address = %v, want %v", got, ClassInvalid)
	}
}

func TestEmbedded(t *testing.T) {
	t.Parallel()
	tests := []struct{ addr, want string }{
		{"64:ff9b::10.1.2.3", "10.1.2.3"},
		{"64:ff9b::10.1.2.3%eth0", "10.1.2.3"},
		{"2002:0a01:0203::1", "10.1.2.3"},
		{"2001:0:4136:e378:8000:63bf:3fff:fdd2", "192.0.2.45"}, // RFC 4380 section 4's own form
		{"::10.1.2.3", "10.1.2.3"},
		{"::ffff:0:10.1.2.3", "10.1.2.3"},
		{"::1", ""},
		{"::", ""},
		{"10.1.2.3", ""},
		{"::ffff:10.1.2.3", ""},
		{"2606:4700::1111", ""},
	}
	for _, tt := range tests {
		got, ok := Embedded(netip.MustParseAddr(tt.addr))
		if ok != (tt.want != "") || ok && got.String() != tt.want {
			t.Errorf("Embedded(%s) = %v, %v, want %q", tt.addr, got, ok, tt.want)
		}
	}
}

func BenchmarkClassify(b *testing.B) {
	b.ReportAllocs()
	addr := netip.MustParseAddr("2606:4700::1111") // public, which searches the whole table
	for b.Loop() {
		if Classify(addr) != ClassPublic {
			b.Fatal("the address is not public")
		}
	}
}
