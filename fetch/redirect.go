package fetch

import (
	"net/url"
	"slices"

	"github.com/crawlgate/crawlgate/origin"
)

// trail is the way of one retrieval through its redirects.
type trail struct {
	seen []string // every URL asked so far, the first one included
	at   *url.URL
	from origin.Origin
}

func newTrail(o origin.Origin) (*trail, error) {
	u, err := url.Parse(o.RobotsURL())
	if err != nil {
		return nil, err
	}
	return &trail{seen: []string{u.String()}, at: u, from: o}, nil
}

// follow moves on to the URL that a Location field names (RFC 9110 section
// 10.2.2), in its canonical spelling. It returns why that is not possible, and
// the kind of outcome.
//
// A redirect that leads nowhere means an absent file (RFC 9309 section 2.3.1.2):
// no Location, another scheme than http and https, a loop, one more than limit.
// A Location that we do not understand, or refuse for its authority (see
// [origin.FromURL]: credentials, an address in an odd spelling), may well lead
// somewhere: it says nothing, so the file is unreachable.
func (t *trail) follow(location string, limit int) (Kind, *failure) {
	if location == "" {
		return KindAbsent, failf(CauseRedirects, "redirect without Location")
	}
	next, err := t.at.Parse(location)
	if err != nil {
		// The error would repeat the Location, credentials included.
		return KindUnreachable, failf(CauseRedirects, "Location that is not a URL")
	}
	if next.Scheme != "http" && next.Scheme != "https" {
		return KindAbsent, failf(CauseRedirects, "redirect to scheme %q", next.Scheme)
	}
	o, err := origin.FromURL(next)
	if err != nil {
		return KindUnreachable, failf(CauseRedirects, "Location not usable: %s", err)
	}
	next.Host, next.Fragment, next.RawFragment = o.Authority(), "", ""
	if next.Path == "" {
		next.Path = "/"
	}
	s := next.String()
	if slices.Contains(t.seen, s) {
		return KindAbsent, failf(CauseRedirects, "redirect loop")
	}
	if len(t.seen) > limit {
		return KindAbsent, failf(CauseRedirects, "more than %d redirects", limit)
	}
	t.seen, t.at = append(t.seen, s), next
	return KindUnreachable, nil
}

// hops returns the URLs that redirects led to, in the form of [Outcome].
func (t *trail) hops() []string {
	if len(t.seen) == 1 {
		return nil
	}
	hops := make([]string, 0, len(t.seen)-1)
	for _, s := range t.seen[1:] {
		hops = append(hops, printable(s, maxHop))
	}
	return hops
}

// final returns the origin whose own robots.txt the trail ended at, if that is
// another one than it began at.
func (t *trail) final() origin.Origin {
	if t.at.EscapedPath() != "/robots.txt" || t.at.RawQuery != "" || t.at.ForceQuery {
		return origin.Origin{}
	}
	o, err := origin.FromURL(t.at)
	if err != nil || o == t.from {
		return origin.Origin{}
	}
	return o
}
