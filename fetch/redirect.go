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

	key  Key
	gate Gate
	seen []string // every URL asked so far, the first one included
	hops []string // as Outcome has them
	at   *url.URL
}

// redirect moves to the URL of a Location field (RFC 9110 section 10.2.2), in its canonical
// spelling. If that is not possible, it returns the reason and the kind of outcome.
//
// A redirect that leads nowhere means an absent file (RFC 9309 section 2.3.1.2): no Location, a
// scheme for other things than HTTP, a loop, one more than Config.MaxRedirects. A Location that we
// do not understand, for example because its scheme is mistyped or missing, may still lead
// somewhere. So may one whose authority we refuse (see [origin.FromURL]: credentials, an address in
// an odd spelling). Both tell us nothing, so the file is unreachable.
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
// servers answer 400 to a request line with a space in it. A percent sign without an escape stays.
// Control characters stay too, and no parser accepts the result.
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

// lacksScheme reports a relative reference that was meant to be absolute, because it begins with
// "https/", "htps//" or a host name, as in "example.com/robots.txt".
func (r *retrieval) lacksScheme(path string) bool {
	first, rest, deeper := strings.Cut(strings.ToLower(path), "/")
	suffix, isPublic := publicsuffix.PublicSuffix(first)
	isPublic = deeper && (isPublic || strings.Contains(suffix, ".")) && first != suffix
	mistyped := first != "" && !strings.HasSuffix(first, ":") && strings.HasPrefix(rest, "/")
	return isPublic || mistyped || first == "http" || first == "https" || strings.HasPrefix(first, "www.") ||
		strings.HasSuffix("."+first, "."+strings.TrimPrefix(r.at.Hostname(), "www."))
}

// final returns the origin whose own robots.txt ended the retrieval, if it differs from the first
// origin.
func (r *retrieval) final() origin.Origin {
	if r.at.EscapedPath() != "/robots.txt" || r.at.RawQuery != "" || r.at.ForceQuery {
		return origin.Origin{}
	}
	o, err := origin.FromURL(r.at)
	if err != nil || o == r.key.Origin {
		return origin.Origin{}
	}
	return o
}
