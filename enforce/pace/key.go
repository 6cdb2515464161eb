package pace

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// The prefixes keep the kinds of key apart. None can begin a host name or an
// IPv6 literal, so a host is its own key, without an allocation.
const (
	agentPrefix   = "agent:"
	sitePrefix    = "site:"
	addressPrefix = "addr:"
)

// HostKey is the clock of one host, all ports and schemes together: they are one
// machine, or one team's machines. host is canonical (lower-case, punycode, an
// IPv6 literal without brackets).
func HostKey(host string) string { return host }

// SiteKey is the clock of the registrable domain: www.example.co.uk and
// img.example.co.uk share that of example.co.uk. Private suffixes count
// (a.github.io and b.github.io are two sites). A host without a registrable
// domain, such as an IP literal or localhost, is its own site.
func SiteKey(host string) string {
	site, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		site = host
	}
	return sitePrefix + site
}

// AddressKey is the clock of a resolved address. IPv4 in IPv6 counts as IPv4;
// a zone is left out.
func AddressKey(addr netip.Addr) string {
	return addressPrefix + addr.Unmap().WithZone("").String()
}

// AgentKey is the agent's own clock within another one: the agent's rate at one
// host, when key is the host's.
func AgentKey(agent, key string) string {
	return agentPrefix + agent + "@" + key
}

// rank orders the clocks of one request from the narrow to the wide. A request
// takes its turns in this order, everywhere the same, so no two requests can
// wait for each other; and it asks a clock that many hosts share only when its
// own host's clock is ready, so that a slow host does not keep a shared clock.
func rank(key string) int {
	switch {
	case strings.HasPrefix(key, agentPrefix):
		return 0
	case strings.HasPrefix(key, sitePrefix):
		return 2
	case strings.HasPrefix(key, addressPrefix):
		return 3
	}
	return 1
}

// inOrder compares two keys by rank, then by their octets.
func inOrder(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) }

// Scope is what one clock stands for.
type Scope uint8

const (
	// PerHost is a clock for each host.
	PerHost Scope = iota
	// PerSite is a clock for each registrable domain.
	PerSite
	// PerAddress is a clock for each resolved address.
	PerAddress
)

// ParseScope reads "host", "site" or "address".
func ParseScope(s string) (Scope, error) {
	for c := PerHost; c <= PerAddress; c++ {
		if s == c.String() {
			return c, nil
		}
	}
	return PerHost, fmt.Errorf("parsing what a clock stands for: %q is not host, site or address", s)
}

// String is the form that ParseScope reads.
func (c Scope) String() string {
	switch c {
	case PerHost:
		return "host"
	case PerSite:
		return "site"
	case PerAddress:
		return "address"
	}
	return fmt.Sprintf("Scope(%d)", uint8(c))
}

// Key is the key of a host under the scope. An address that is not valid (the
// name did not resolve) falls back to the host's key.
func (c Scope) Key(host string, addr netip.Addr) string {
	switch {
	case c == PerSite:
		return SiteKey(host)
	case c == PerAddress && addr.IsValid():
		return AddressKey(addr)
	}
	return HostKey(host)
}
