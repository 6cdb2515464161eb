// Package origin names the scope of a robots.txt file and the target of a request, each in one
// canonical spelling.
//
// RFC 9309 section 2.3 ties a robots.txt to a scheme, an authority and a port. Google's
// specification (https://developers.google.com/crawling/docs/robots-txt/robots-txt-spec) adds that
// an internationalised name equals its punycode form, that the default port equals no port and that
// an address literal is only itself. Crawlgate keeps everything about a site (rules, clocks,
// policy, log fields) under its [Origin]. So two spellings of one site must never result in two
// origins, and no spelling may result in the origin of another site. A host that cannot be spelled
// canonically without guessing is refused with an error that names the part and the reason.
//
// The package folds the case of scheme and host, Unicode spellings of a name (UTS 46, as in
// browsers), the final dot of a name, and an absent, empty or default port. It refuses userinfo;
// percent-encoding and any byte in the host except letters, digits, hyphen, underscore and dot;
// empty and over-long labels; all spellings of an IPv4 address except four decimal numbers, and of
// an IPv6 address except the form of RFC 5952; zones and IPv4-mapped addresses; port 0, signs and
// leading zeros in a port.
//
// "example.com." resolves like "example.com". So it is the same origin, and both requests and the
// fetch of robots.txt send a Host without the dot.
//
// The zero [Origin] is not an origin, and the zero [Target] cannot be sent. All functions are pure
// and safe for concurrent use.
package origin
