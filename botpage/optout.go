package botpage

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/net/publicsuffix"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/origin"
)

const (
	// tokenFor is how long a token may be used. A new DNS record may take a day to spread.
	tokenFor = 72 * time.Hour
	maxForm  = 4 << 10
	maxHost  = 180 // bytes, so that the author of a stop fits in a line
	// maxOptOuts bounds the stops by owners. The same room is left for the operator's stops.
	maxOptOuts = 5000
	// maxPerDomain bounds the stops for one registered domain, so that one owner cannot use them all.
	maxPerDomain = 50
	ticketHead   = "optout-"
)

// claim is the request of a host's owner that an agent, or every agent, stays away.
type claim struct {
	Agent, Host string
	Scope       enforce.StopScope
}

// badClaim tells an owner what the form accepts.
const badClaim = "Type the name of one host, such as shop.example.com (no address, pattern or port), and choose who shall stay away."

// claimOf reads the form of an agent's page.
func claimOf(r *http.Request, agent string) (c claim, ok bool) {
	c = claim{Agent: agent, Scope: enforce.StopScope(r.PostFormValue("scope"))}
	c.Host, ok = parseHost(r.PostFormValue("host"))
	return c, ok && (c.Scope == enforce.StopHost || c.Scope == enforce.StopAgentHost)
}

// parseHost returns the canonical form of the name of one host.
func parseHost(text string) (host string, ok bool) {
	text = strings.TrimSpace(text)
	o, err := origin.FromAuthority("https", text)
	_, isAddr := o.Addr()
	ok = err == nil && !isAddr && !strings.ContainsAny(text, ":/*[]") && strings.Contains(o.Host, ".") && len(o.Host) <= maxHost
	return o.Host, ok
}

// token returns the text that proves the claim if the site shows it by a time.
func (c claim) token(key []byte, until time.Time) string {
	mac := hmac.New(sha256.New, key)
	mac.Write(fmt.Appendf(nil, "%q %q %q %d", c.Agent, c.Host, c.Scope, until.Unix()))
	return fmt.Sprintf("%x-%x", until.Unix(), mac.Sum(nil)[:20])
}

// holds reports whether a token was made for the claim, and may still be used.
func (c claim) holds(key []byte, token string, now time.Time) bool {
	at, _, _ := strings.Cut(token, "-")
	unix, err := strconv.ParseInt(at, 16, 64)
	until := time.Unix(unix, 0)
	return err == nil && now.Before(until) && hmac.Equal([]byte(token), []byte(c.token(key, until)))
}

// stopped reports whether an order of an owner already satisfies the claim. The operator's orders
// do not count, because strangers must not find out which hosts they stop.
func (c claim) stopped(stops *enforce.Stops) bool {
	want, err := c.order("", "", time.Time{})
	return err == nil && slices.ContainsFunc(stops.All().Held, func(s enforce.Stop) bool {
		return byOwner(s) && s.Scope == want.Scope && strings.EqualFold(s.Value, want.Value)
	})
}

func byOwner(s enforce.Stop) bool { return strings.HasPrefix(s.ID, ticketHead) }

// room returns an error if there is no room for the claim's order.
func (c claim) room(held []enforce.Stop) error {
	domain := domainOf(c.Host)
	all, near := 0, 0
	for _, s := range held {
		if byOwner(s) {
			all++
			if domainOf(s.Value[strings.LastIndexByte(s.Value, '@')+1:]) == domain {
				near++
			}
		}
	}
	if all >= maxOptOuts || near >= maxPerDomain {
		return fmt.Errorf("%d opt-outs, %d of them of %s: %w", all, near, domain, enforce.ErrTooManyStops)
	}
	return nil
}

// domainOf returns the registered domain of a host, or the host if it has none.
func domainOf(host string) string {
	domain, err := publicsuffix.EffectiveTLDPlusOne(host)
	if err != nil {
		return host
	}
	return domain
}

// order returns the stop that satisfies the claim. Its id is derived from the token, so a proof
// makes only one order, at any number of gateways, and no second one after a lift.
func (c claim) order(token, how string, now time.Time) (enforce.Stop, error) {
	value, ticket := c.Host, ticketOf(token)
	if c.Scope == enforce.StopAgentHost {
		value = c.Agent + "@" + c.Host
	}
	return enforce.Stop{
		ID: ticket, Scope: c.Scope, Value: value, By: "site owner of " + c.Host,
		Reason: "opt-out, proven by " + how + ", ticket " + ticket, At: now.UTC().Truncate(time.Second),
	}.Canonical()
}

func ticketOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return fmt.Sprintf("%s%x", ticketHead, sum[:8])
}

// takeOptOut does one step of an opt-out: it tells the owner what to show at the site, or checks
// that the site shows it and gives the order. It keeps nothing except the order.
func (h *Handler) takeOptOut(w http.ResponseWriter, r *http.Request, v view) error {
	if h.cross.Check(r) != nil {
		return h.fail(w, http.StatusForbidden, "The request comes from another site.")
	}
	if !h.clients.allow(networkOf(r)) {
		return h.tooMany(w)
	}
	form, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxForm)) // the parser may stop before the end of the body
	r.Body = io.NopCloser(bytes.NewReader(form))
	c, ok := claimOf(r, v.agent.Agent)
	if err != nil || !ok {
		return h.fail(w, http.StatusBadRequest, badClaim)
	}
	readUntil(w, time.Time{}) // a check may take longer
	key, err := v.Secret(r.Context())
	if err != nil {
		h.logger.Error("no opt-out is possible", zap.Error(err))
		return h.fail(w, http.StatusServiceUnavailable, "The gateway cannot check proofs now. Please come back later.")
	}
	p, now := h.page(v, "Keep "+c.Agent+" away from "+c.Host), time.Now()
	p.Claim, p.Stopped, p.Token = c, c.stopped(v.Stops()), cmp.Or(r.PostFormValue("token"), c.token(key, now.Add(tokenFor)))
	p.Ticket = ticketOf(p.Token)
	how := r.PostFormValue("proof")
	switch {
	case !c.holds(key, p.Token, now):
		return h.fail(w, http.StatusForbidden, "This token is not for this host and choice, or it is too old. Please begin again.")
	case p.Stopped || how != "file" && how != "dns": // the journal shows how
		return render(w, http.StatusOK, "optout", p)
	case !h.hosts.allow(domainOf(c.Host)) || !h.checks.Allow():
		return h.tooMany(w)
	}
	logger := h.logger.With(zap.String("host", c.Host), zap.String("scope", string(c.Scope)), zap.String("ticket", p.Ticket),
		zap.String("proof", how), zap.Stringer("client", engine.SourceOf(r)))
	by := prover{v.OutsideTransport, v.Config.Fetch.UserAgent, v.StopsFetch, resolver.LookupTXT}
	if err := by.prove(r.Context(), c.Host, p.Token, how); err != nil {
		logger.Info("an opt-out is not proven", zap.Error(err))
		told, _ := errors.AsType[unproven](err)
		p.Fault = cmp.Or(string(told), "The gateway cannot read this proof. Perhaps it can read the other one.")
		return render(w, http.StatusForbidden, "optout", p)
	}
	if err := v.give(r, p, how, logger); err != nil {
		logger.Error("an opt-out is proven, but not in force", zap.Error(err))
		return h.fail(w, http.StatusServiceUnavailable, "The proof is correct, but the stop could not be put in force. Please write to us, and name the ticket "+p.Ticket+".")
	}
	p.Done = true
	return render(w, http.StatusOK, "optout", p)
}

// give puts the order of a proven claim in force.
func (v view) give(r *http.Request, p page, how string, logger *zap.Logger) error {
	order, err := p.Claim.order(p.Token, how, time.Now())
	if err != nil {
		return err
	}
	if err := p.Claim.room(v.Stops().All().Held); err != nil {
		return err
	}
	ended, err := v.Deny(order)
	if !p.Claim.stopped(v.Stops()) {
		return cmp.Or(err, errors.New("it was lifted"))
	}
	reached, gateways, _ := v.Fleet().Given(r.Context(), order.ID, ended).Counts()
	logger.Warn("the owner of a host has stopped crawlers", zap.Int("ended", ended), zap.Int("reached", reached), zap.Int("gateways", gateways),
		zap.NamedError("forgotten_by_a_restart", err))
	return nil
}
