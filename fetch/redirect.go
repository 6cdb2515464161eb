package fetch

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/publicsuffix"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
)

// retrieval is one call of [Fetcher.Fetch], on its way through redirects.
type retrieval struct {
	*Fetcher

	gate Gate
	seen []string // every URL asked so far, the first one included
	hops []string // as Outcome has them
	at   *url.URL
	from origin.Origin
}

// redirect moves on to the URL that a Location field names (RFC 9110 section 10.2.2), in its
// canonical spelling. It returns why that is not possible, and the kind of outcome.
//
// A redirect that leads nowhere means an absent file (RFC 9309 section 2.3.1.2): no Location, a
// scheme for other things than HTTP, a loop, one more than Config.MaxRedirects. A Location that we
// do not understand (a mistyped or missing scheme included), or refuse for its authority (see
// [origin.FromURL]: credentials, an address in an odd spelling), may well lead somewhere: it says
// nothing, so the file is unreachable.
func (r *retrieval) redirect(location string) (Kind, *failure) {
	if location == "" {
		return KindAbsent, failf(CauseRedirects, "redirect without Location")
	}
	next, err := r.at.Parse(escapeURL(location))
	path, _, _ := strings.Cut(location, "?")
	if err != nil || strings.Contains(path, `\`) || r.lacksScheme(path) {
		// The error would repeat the Location, credentials included. A backslash is a slash to
		// some.
		return KindUnreachable, failf(CauseRedirects, "Location that is not a URL")
	}
	switch next.Scheme {
	case "http", "https":
	case "about", "blob", "data", "file", "ftp", "ftps", "gopher", "javascript", "mailto", "sftp", "tel", "urn", "ws", "wss":
		return KindAbsent, failf(CauseRedirects, "redirect to scheme %q", next.Scheme)
	default:
		return KindUnreachable, failf(CauseRedirects, "Location of unknown scheme %q", next.Scheme)
	}
	o, err := origin.FromURL(next)
	if err != nil {
		return KindUnreachable, failf(CauseRedirects, "Location not usable: %s", err)
	}
	next.Host, next.Fragment, next.RawFragment = o.Authority(), "", ""
	next.Path = cmp.Or(next.Path, "/")
	s := next.String()
	if slices.Contains(r.seen, s) {
		return KindAbsent, failf(CauseRedirects, "redirect loop")
	}
	if len(r.seen) > r.cfg.MaxRedirects {
		return KindAbsent, failf(CauseRedirects, "more than %d redirects", r.cfg.MaxRedirects)
	}
	r.seen, r.hops, r.at = append(r.seen, s), append(r.hops, escape.ASCII(s, maxHop)), next
	return KindUnreachable, nil
}

// escapeURL escapes bytes that a URL must not have (RFC 3986 section 2), as browsers do: strict
// servers answer 400 to a request line with a blank in it. A percent sign that begins no escape
// stays. Control characters stay too, and no parser accepts the result.
func escapeURL(s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		fits := c != '%' || i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2])
		if fits && c < utf8.RuneSelf && strings.IndexByte(" \"<>\\^`{|}", c) < 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func isHex(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }

// lacksScheme reports a relative reference that was meant to be absolute, as it begins with
// "https/", "htps//" or a name of the web: "example.com/robots.txt".
func (r *retrieval) lacksScheme(path string) bool {
	first, rest, deeper := strings.Cut(strings.ToLower(path), "/")
	suffix, isPublic := publicsuffix.PublicSuffix(first)
	isPublic = deeper && (isPublic || strings.Contains(suffix, ".")) && first != suffix
	mistyped := first != "" && !strings.HasSuffix(first, ":") && strings.HasPrefix(rest, "/")
	return isPublic || mistyped || first == "http" || first == "https" || strings.HasPrefix(first, "www.") ||
		strings.HasSuffix("."+first, "."+strings.TrimPrefix(r.at.Hostname(), "www."))
}

// final returns the origin whose own robots.txt the retrieval ended at, if that is another one than
// it began at.
func (r *retrieval) final() origin.Origin {
	if r.at.EscapedPath() != "/robots.txt" || r.at.RawQuery != "" || r.at.ForceQuery {
		return origin.Origin{}
	}
	o, err := origin.FromURL(r.at)
	if err != nil || o == r.from {
		return origin.Origin{}
	}
	return o
}
