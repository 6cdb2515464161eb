package enforce

import (
	"net/netip"
	"regexp"
	"strings"

	"github.com/crawlgate/crawlgate/internal/escape"
)

var (
	// addressLike finds what may be an address, with a port or without.
	addressLike = regexp.MustCompile(`\[?[0-9A-Fa-f]*[.:][0-9A-Fa-f.:]*(%\w+)?\]?(:\d+)?`)
	hostAndPort = regexp.MustCompile(`\b[A-Za-z][\w.-]*:\d{2,5}\b`)
)

// HideInside leaves addresses, and names with their ports, out of a text for a client, unless the
// client has asked for them itself. The network's errors name both ends of a connection, what an
// internal name resolves to, the resolver and the upstream proxy: that is for the log.
func HideInside(text, asked string) string {
	text = addressLike.ReplaceAllStringFunc(text, func(found string) string {
		address := strings.TrimRight(found, ":.")
		whole, err := netip.ParseAddrPort(address)
		addr := whole.Addr()
		if err != nil {
			addr, err = netip.ParseAddr(strings.Trim(address, "[]"))
		}
		if err != nil || strings.Contains(asked, addr.String()) {
			return found
		}
		return escape.Ellipsis + found[len(address):]
	})
	return hostAndPort.ReplaceAllStringFunc(text, func(found string) string {
		if host, _, _ := strings.Cut(found, ":"); strings.Contains(asked, host) {
			return found
		}
		return escape.Ellipsis
	})
}
