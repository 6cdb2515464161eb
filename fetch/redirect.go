package fetch

import (
	"net/url"
	"slices"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
)

// retrieval is one call of [Fetcher.Fetch], on its way through redirects.
type retrieval struct {
	*Fetcher

	gate Gate
	seen []string // every URL asked so far, the first one included
	at   *url.URL
	from origin.Origin
}

// redirect moves on to the URL that a Location field names (RFC 9110 section 10.2.2), in its
// canonical spelling. It returns why that is not possible, and the kind of outcome.
//
// A redirect that leads nowhere means an absent file (RFC 9309 section 2.3.1.2): no Location,
// another scheme than http and https, a loop, one more than Config.MaxRedirects. A Location that we
// do not understand, or refuse for its authority (see [origin.FromURL]: credentials, an address in
// an odd spelling), may well lead somewhere: it says nothing, so the file is unreachable.
func (r *retrieval) redirect(location string) (Kind, *failure) {
	if location == "" {
		return KindAbsent, failf(CauseRedirects, "redirect without Location")
	}
	next, err := r.at.Parse(location)
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
	if slices.Contains(r.seen, s) {
		return KindAbsent, failf(CauseRedirects, "redirect loop")
	}
	if len(r.seen) > r.cfg.MaxRedirects {
		return KindAbsent, failf(CauseRedirects, "more than %d redirects", r.cfg.MaxRedirects)
	}
	r.seen, r.at = append(r.seen, s), next
	return KindUnreachable, nil
}

// hops returns the URLs that redirects led to, in the form of [Outcome].
func (r *retrieval) hops() []string {
	if len(r.seen) == 1 {
		return nil
	}
	hops := make([]string, 0, len(r.seen)-1)
	for _, s := range r.seen[1:] {
		hops = append(hops, escape.ASCII(s, maxHop))
	}
	return hops
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
