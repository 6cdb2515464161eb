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
	"github.com/crawlgate/crawlgate/origin"
)

// adminExplain decides a request that nobody makes, as the site would. It goes past identity: the agent is taken at its
// word. A robots.txt that is not known is fetched, as it would be for a crawler.
func adminExplain(a *App, r *http.Request) (any, error) {
	query, err := readQuery(r, "agent", "url", "site")
	if err != nil {
		return nil, err
	}
	h, err := a.site(query.Get("site"))
	if err != nil {
		return nil, err
	}
	identity, err := h.named(query.Get("agent"))
	if err != nil {
		return nil, err
	}
	target, err := readTarget(query.Get("url"))
	if err != nil {
		return nil, err
	}
	d := h.enforcer.Decide(r.Context(), enforce.Request{Method: http.MethodGet, Target: target, Identity: identity})
	e := adminapi.Explanation{Site: h.name(), URL: target.String(), Robots: d.Record(), BlockedUntil: a.blockedUntil(target.Origin)}
	if d.Verdict != enforce.Allow {
		problem := enforce.NewProblem(d, enforce.RequestInfo{Method: http.MethodGet, URL: target.String(), Help: a.cfg.help})
		e.Refusal = &problem
	}
	return e, nil
}

// blockedUntil is until when the clocks of a host are blocked, zero if they are not.
func (a *App) blockedUntil(o origin.Origin) (until time.Time) {
	for _, b := range a.clocks.pacer.Blocks(blocksKept) {
		for _, scope := range a.cfg.pace.Per {
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

// named returns the identity of an agent: the name of its block or, on a site without blocks, a product token.
func (h *Handler) named(agent string) (enforce.Identity, error) {
	if agent == "" {
		return enforce.Identity{}, adminError(http.StatusBadRequest, "agent is missing")
	}
	identity, ok := h.identifier.Named(agent)
	if !ok && len(h.Agents) == 0 {
		return identity, adminError(http.StatusBadRequest, "agent %.100q is no product token: want a single word without version", agent)
	}
	if !ok {
		return identity, adminError(http.StatusBadRequest, "agent %.100q is not configured: there is %s",
			agent, strings.Join(h.identifier.Agents(), ", "))
	}
	return identity, nil
}

// name is the address that the site listens on; the server's own name where Caddy gives none.
func (h *Handler) name() string {
	if h.server == nil {
		return ""
	}
	if len(h.server.Listen) > 0 {
		return h.server.Listen[0]
	}
	return h.server.Name()
}

// site returns the gateway with the given listener. With one gateway it need not be given.
func (a *App) site(listener string) (*Handler, error) {
	handlers := a.sites.all()
	if listener == "" && len(handlers) == 1 {
		return handlers[0], nil
	}
	var names []string
	for _, h := range handlers {
		if listener != "" && h.listens(listener) {
			return h, nil
		}
		if name := h.name(); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if listener == "" {
		return nil, adminError(http.StatusBadRequest, "there are %d gateways: say which, as site: %s", len(handlers), strings.Join(names, ", "))
	}
	return nil, adminError(http.StatusBadRequest, "site %.100q has no gateway: there is %s", listener, strings.Join(names, ", "))
}

// listens reports whether the site listens on the address.
func (h *Handler) listens(address string) bool {
	return h.server != nil && (slices.Contains(h.server.Listen, address) || h.server.Name() == address)
}
