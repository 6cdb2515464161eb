package crawlgate

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
)

// adminExplain decides a request that nobody makes, as the site would. It goes past identity: the agent is taken at its
// word. A robots.txt that is not known is fetched, as it would be for a crawler.
func adminExplain(e *engine.Engine, r *http.Request) (any, error) {
	query, err := readQuery(r, "agent", "url", "site")
	if err != nil {
		return nil, err
	}
	h, err := siteAt(e, query.Get("site"))
	if err != nil {
		return nil, err
	}
	identity, err := identityNamed(h, query.Get("agent"))
	if err != nil {
		return nil, err
	}
	target, err := readTarget(query.Get("url"))
	if err != nil {
		return nil, err
	}
	d := h.Enforcer.Decide(r.Context(), enforce.Request{Method: http.MethodGet, Target: target, Identity: identity})
	x := adminapi.Explanation{Site: h.Name(), URL: target.String(), Robots: d.Record(), BlockedUntil: blockedUntil(e, target.Origin)}
	if d.Verdict != enforce.Allow {
		problem := enforce.NewProblem(d, enforce.RequestInfo{Method: http.MethodGet, URL: target.String(), Help: e.Config.Help})
		x.Refusal = &problem
	}
	return x, nil
}

// blockedUntil is until when the clocks of a host are blocked, zero if they are not.
func blockedUntil(e *engine.Engine, o origin.Origin) (until time.Time) {
	for _, b := range e.Pacer().Blocks(100_000) {
		for _, scope := range e.Config.Politeness.Per {
			if b.Key == scope.Key(o.Host, netip.Addr{}) && b.Until.After(time.Now()) && b.Until.After(until) {
				until = b.Until.UTC()
			}
		}
	}
	return until
}

// readTarget reads the URL of a page.
func readTarget(text string) (origin.Target, error) {
	if text == "" {
		return origin.Target{}, adminError(http.StatusBadRequest, "url is missing")
	}
	u, err := url.Parse(text)
	if err != nil {
		return origin.Target{}, adminError(http.StatusBadRequest, "url: %w", err)
	}
	target, err := origin.NewTarget(u)
	if err != nil {
		return origin.Target{}, adminError(http.StatusBadRequest, "url: %w", err)
	}
	return target, nil
}

// identityNamed returns the identity of an agent: the name of its block or, on a site without blocks, a product token.
func identityNamed(h *engine.SitePolicy, agent string) (enforce.Identity, error) {
	if agent == "" {
		return enforce.Identity{}, adminError(http.StatusBadRequest, "agent is missing")
	}
	identity, ok := h.Identifier.Named(agent)
	if !ok && len(h.Identifier.Agents()) == 0 {
		return identity, adminError(http.StatusBadRequest, "agent %.100q is no product token: want a single word without version", agent)
	}
	if !ok {
		return identity, adminError(http.StatusBadRequest, "agent %.100q is not configured: there is %s",
			agent, strings.Join(h.Identifier.Agents(), ", "))
	}
	return identity, nil
}

// siteAt returns the gateway with the given listener. With one gateway it need not be given.
func siteAt(e *engine.Engine, listener string) (*engine.SitePolicy, error) {
	handlers := e.Sites()
	if listener == "" && len(handlers) == 1 {
		return handlers[0], nil
	}
	var names []string
	for _, h := range handlers {
		if listener != "" && h.Listens(listener) {
			return h, nil
		}
		if name := h.Name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if listener == "" {
		return nil, adminError(http.StatusBadRequest, "there are %d gateways: say which, as site: %s", len(handlers), strings.Join(names, ", "))
	}
	return nil, adminError(http.StatusBadRequest, "site %.100q has no gateway: there is %s", listener, strings.Join(names, ", "))
}
