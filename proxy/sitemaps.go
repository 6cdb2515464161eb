package proxy

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// sitemapsPath is that of the sitemaps of a site, on the gateway's own address.
const sitemapsPath = "/sitemaps"

// asksSitemaps reports whether a request for the gateway itself asks for sitemaps.
func asksSitemaps(r *http.Request) bool {
	return r.URL.Path == sitemapsPath && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// serveSitemaps lists the sitemaps that the robots.txt of a site names and that the sender may
// fetch, one a line. The robots.txt is looked up as for a request, and may be fetched for it. No
// sitemap ever is, and none is guessed. The exchange is not accounted for, as no page of the
// gateway itself is.
func (x *exchange) serveSitemaps() error {
	s := x.site
	if err := s.Engine.Open(); err != nil {
		return x.refuseSitemaps(x.decision.Refuse(enforce.ReasonNotReady, err.Error(), retryNotReady))
	}
	o, err := siteAsked(x.r)
	if err != nil {
		return x.sayOfSitemaps(http.StatusBadRequest, err.Error(), 0)
	}
	if what := ambiguity(x.r); what != "" {
		return x.sayOfSitemaps(http.StatusBadRequest, what, 0)
	}
	x.identity = s.Identifier.Identify(x.ctx, directSender(x.r))
	agent := x.identity.KillName()
	if limit := s.Engine.Config.Limits.RequestsPerAgent; !requests.Enter(agent, limit) {
		return x.refuseSitemaps(s.Enforcer.RefuseExcess(x.identity, o, fmt.Sprintf("%d requests are under way", limit)))
	}
	defer requests.Leave(agent)
	x.ctx, x.entry = s.Engine.Enter(x.ctx, o, agent)
	defer x.entry.Leave()
	if d := x.decideSitemaps(o); !d.Allowed {
		return x.refuseSitemaps(d)
	}
	entry, _, now, err := s.Enforcer.Lookup(x.ctx, o, x.identity)
	if err != nil {
		return x.refuseSitemaps(x.decision.Refuse(enforce.LookupFailure(x.ctx, err)))
	}
	return x.listSitemaps(o, entry.View(now))
}

// siteAsked is the origin that the query names.
func siteAsked(r *http.Request) (origin.Origin, error) {
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return origin.Origin{}, fmt.Errorf("the query cannot be read: %w", err)
	}
	if len(q) > 1 || len(q["origin"]) > 1 {
		return origin.Origin{}, errors.New("want one parameter: origin")
	}
	return origin.ParseSite(q.Get("origin"))
}

// directSender is what a request for the gateway itself shows of its sender. To such a request the
// gateway is no proxy, so that the credentials may be in Authorization too.
func directSender(r *http.Request) enforce.Sender {
	sender := senderOf(r)
	if sender.ProxyAuthorization == "" {
		sender.ProxyAuthorization = r.Header.Get("Authorization")
	}
	return sender
}

// decideSitemaps decides whether the sender may ask about a site: as for its robots.txt, but that
// it must be a crawler that the gateway knows.
func (x *exchange) decideSitemaps(o origin.Origin) enforce.Decision {
	x.decision = x.site.Enforcer.Decide(x.ctx, enforce.Request{
		Method: http.MethodGet, Target: origin.Target{Origin: o, Path: "/robots.txt"}, Identity: x.identity,
	})
	reason, detail, refused := x.identity.Refused()
	if refused && x.decision.Allowed && x.decision.Mode != enforce.ModeReport {
		return x.decision.Refuse(reason, detail, 0)
	}
	return x.decision
}

// listSitemaps answers with those of a site that the sender may fetch. One of another site of which
// nothing is known is listed: the request for it will be judged.
func (x *exchange) listSitemaps(o origin.Origin, view robotscache.View) error {
	switch status := view.Access.RobotsStatus(); {
	case status == http.StatusServiceUnavailable:
		return x.sayOfSitemaps(status, "The site's robots.txt is unreachable: "+enforce.HideInside(view.Why(), o.String()), retryOf(view, time.Now()))
	case status != http.StatusOK:
		return x.sayOfSitemaps(status, "The site has no robots.txt.", 0)
	}
	list := engine.SitemapsOf(o, view.Rules)
	if len(list) == 0 {
		return x.sayOfSitemaps(http.StatusNotFound, "The site's robots.txt names no sitemap.", 0)
	}
	x.site.Engine.JudgeSitemaps(x.ctx, *x.site.Enforcer, x.identity, list)
	var body strings.Builder
	for i := range list {
		if list[i].Access != engine.AccessDeny {
			body.WriteString(list[i].Target().String() + "\n")
		}
	}
	return x.answerSitemaps(http.StatusOK, []byte(body.String()))
}

// sayOfSitemaps answers with a line, and when to come back where waiting can help.
func (x *exchange) sayOfSitemaps(status int, line string, retry time.Duration) error {
	if retry > 0 {
		x.w.Header().Set("Retry-After", strconv.FormatInt(enforce.RetrySeconds(retry), 10))
	}
	return x.answerSitemaps(status, []byte(line+"\n"))
}

func (x *exchange) answerSitemaps(status int, body []byte) error {
	header := x.w.Header()
	header.Set("Content-Type", plainText)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Control", "no-store")
	answer(x.w, x.r, status, body)
	return nil
}

// refuseSitemaps answers by a decision, in the form of all refusals. 407 is a proxy's, so that
// missing credentials are 401 here.
func (x *exchange) refuseSitemaps(d enforce.Decision) error {
	x.decision = d
	x.noteStop()
	refusal := enforce.Render(x.decision, x.asked())
	maps.Copy(x.w.Header(), refusal.Header)
	if refusal.Status == http.StatusProxyAuthRequired {
		refusal.Status = http.StatusUnauthorized
		x.w.Header()["Www-Authenticate"] = refusal.Header["Proxy-Authenticate"]
		x.w.Header().Del("Proxy-Authenticate")
	}
	answer(x.w, x.r, refusal.Status, refusal.Body)
	return nil
}

// retryOf is when to ask again for a robots.txt that is unreachable.
func retryOf(view robotscache.View, now time.Time) time.Duration {
	return max(view.RetryAt.Sub(now), pendingRetry)
}

// wholeSeconds is a duration as header fields have it.
func wholeSeconds(d time.Duration) string { return strconv.FormatInt(int64(d/time.Second), 10) }
