package guard

import "net/netip"

// Class is the kind of place that an address belongs to, after the IANA special-purpose registries
// (RFC 6890). Its text is stable, for logs and messages. Every class but [ClassPublic] is refused,
// the zero value too.
type Class string

// The classes that the guard treats in ways of their own. The last three are not properties of an
// address: the guard assigns them to listeners of its own process, to ports that are not open for
// egress, and to names with both public and non-public addresses. All others are in classified.
const (
	ClassInvalid  Class = "invalid"      // not an address
	ClassPublic   Class = "public"       // globally reachable unicast
	ClassMetadata Class = "metadata"     // instance metadata services of clouds, by their vendors' documents
	ClassReserved Class = "reserved"     // 240.0.0.0/4, RFC 1112 section 4; everything outside 2000::/3, RFC 4291 section 2.4
	ClassOwn      Class = "own_listener" // a listener of this process
	ClassPort     Class = "port"         // the port is not open for egress
	ClassMixed    Class = "mixed"        // the name has public and non-public addresses
)

// classified lists the address blocks that are not public. The first block that contains an address
// decides its class, so narrow blocks come before the wide ones that contain them.
var classified = []struct {
	block netip.Prefix
	class Class
}{
	{netip.MustParsePrefix("169.254.169.254/32"), ClassMetadata}, // AWS, Azure, Google, Oracle, DigitalOcean and others
	{netip.MustParsePrefix("169.254.169.253/32"), ClassMetadata}, // AWS VPC resolver
	{netip.MustParsePrefix("169.254.170.2/32"), ClassMetadata},   // AWS ECS task credentials
	{netip.MustParsePrefix("169.254.170.23/32"), ClassMetadata},  // AWS EKS pod identity
	{netip.MustParsePrefix("100.100.100.200/32"), ClassMetadata}, // Alibaba Cloud
	{netip.MustParsePrefix("168.63.129.16/32"), ClassMetadata},   // Azure platform ("wire server"); inside public space
	{netip.MustParsePrefix("fd00:ec2::254/128"), ClassMetadata},  // AWS
	{netip.MustParsePrefix("fd00:ec2::253/128"), ClassMetadata},  // AWS VPC resolver
	{netip.MustParsePrefix("fd00:ec2::23/128"), ClassMetadata},   // AWS EKS pod identity
	{netip.MustParsePrefix("fd20:ce::254/128"), ClassMetadata},   // Google Cloud

	{netip.MustParsePrefix("0.0.0.0/8"), "this_network"},           // RFC 791 section 3.2
	{netip.MustParsePrefix("10.0.0.0/8"), "private"},               // RFC 1918
	{netip.MustParsePrefix("100.64.0.0/10"), "shared"},             // carrier-grade NAT, RFC 6598
	{netip.MustParsePrefix("127.0.0.0/8"), "loopback"},             // RFC 1122 section 3.2.1.3
	{netip.MustParsePrefix("169.254.0.0/16"), "link_local"},        // RFC 3927
	{netip.MustParsePrefix("172.16.0.0/12"), "private"},            // RFC 1918
	{netip.MustParsePrefix("192.0.0.0/24"), "protocol_assignment"}, // RFC 6890 section 2.1
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},       // RFC 5737
	{netip.MustParsePrefix("192.88.99.0/24"), "6to4_relay"},        // RFC 7526
	{netip.MustParsePrefix("192.168.0.0/16"), "private"},           // RFC 1918
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmark"},          // RFC 2544
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},    // RFC 5737
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},     // RFC 5737
	{netip.MustParsePrefix("224.0.0.0/4"), "multicast"},            // RFC 5771
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},     // RFC 919 section 7
	{netip.MustParsePrefix("240.0.0.0/4"), ClassReserved},

	{netip.MustParsePrefix("::/128"), "unspecified"},            // RFC 4291 section 2.5.2
	{netip.MustParsePrefix("::1/128"), "loopback"},              // RFC 4291 section 2.5.3
	{v4Compatible, "ipv4_compatible"},                           // RFC 4291 section 2.5.5.1
	{v4Translated, "ipv4_translated"},                           // RFC 7915
	{netip.MustParsePrefix("64:ff9b:1::/48"), "nat64_local"},    // RFC 8215
	{netip.MustParsePrefix("100::/64"), "discard"},              // RFC 6666
	{netip.MustParsePrefix("100:0:0:1::/64"), "discard"},        // RFC 9780
	{teredo, "teredo"},                                          // RFC 4380
	{netip.MustParsePrefix("2001:2::/48"), "benchmark"},         // RFC 5180
	{netip.MustParsePrefix("2001::/23"), "protocol_assignment"}, // RFC 2928
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},   // RFC 3849
	{sixToFour, "6to4"},                                         // RFC 3056
	{netip.MustParsePrefix("3fff::/20"), "documentation"},       // RFC 9637
	{netip.MustParsePrefix("5f00::/16"), "segment_routing"},     // RFC 9602
	{netip.MustParsePrefix("fc00::/7"), "unique_local"},         // RFC 4193
	{netip.MustParsePrefix("fe80::/10"), "link_local"},          // RFC 4291 section 2.5.6
	{netip.MustParsePrefix("fec0::/10"), "site_local"},          // RFC 3879
	{netip.MustParsePrefix("ff00::/8"), "multicast"},            // RFC 4291 section 2.7
}

var (
	globalUnicast = netip.MustParsePrefix("2000::/3")     // RFC 4291 section 2.4: all that IANA gives out today
	nat64         = netip.MustParsePrefix("64:ff9b::/96") // RFC 6052 section 2.1
	sixToFour     = netip.MustParsePrefix("2002::/16")
	teredo        = netip.MustParsePrefix("2001::/32")
	v4Compatible  = netip.MustParsePrefix("::/96")
	v4Translated  = netip.MustParsePrefix("::ffff:0:0:0/96")
)

// Classify returns the class of an address. It ignores a zone, and treats an IPv4-mapped address
// (::ffff:0:0/96) as the IPv4 address that it holds.
//
// An address under the well-known NAT64 prefix (64:ff9b::/96, RFC 6052) has the class of the IPv4
// address inside, because it is the way to every IPv4 site from an IPv6-only network. The other
// forms with an address inside (NAT64 local use, 6to4, Teredo, IPv4-compatible, IPv4-translated)
// are refused whatever they hold, because no site is published there.
func Classify(addr netip.Addr) Class {
	if !addr.IsValid() {
		return ClassInvalid
	}
	addr = canonical(addr)
	if nat64.Contains(addr) {
		return Classify(lastIPv4(addr))
	}
	for _, e := range classified {
		if e.block.Contains(addr) {
			return e.class
		}
	}
	if addr.Is6() && !globalUnicast.Contains(addr) {
		return ClassReserved
	}
	return ClassPublic
}

// Embedded returns the IPv4 address that a transition mechanism's IPv6 address holds, for messages:
// the target of NAT64, 6to4, IPv4-compatible and IPv4-translated addresses and the client of Teredo
// ones.
func Embedded(addr netip.Addr) (netip.Addr, bool) {
	if !addr.IsValid() {
		return netip.Addr{}, false
	}
	addr = canonical(addr)
	b := addr.As16()
	switch {
	case addr.Is4(), addr == netip.IPv6Unspecified(), addr == netip.IPv6Loopback():
		return netip.Addr{}, false
	case nat64.Contains(addr), v4Compatible.Contains(addr), v4Translated.Contains(addr):
		return lastIPv4(addr), true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case teredo.Contains(addr): // the client's address is stored inverted, RFC 4380 section 4
		return netip.AddrFrom4([4]byte{^b[12], ^b[13], ^b[14], ^b[15]}), true
	default:
		return netip.Addr{}, false
	}
}

func canonical(addr netip.Addr) netip.Addr { return addr.WithZone("").Unmap() }

func lastIPv4(addr netip.Addr) netip.Addr {
	b := addr.As16()
	return netip.AddrFrom4([4]byte(b[12:16]))
}
