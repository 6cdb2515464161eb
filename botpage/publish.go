package botpage

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/webbotauth"
)

const (
	cardPath   = "/signature-agent-card"
	rangesPath = "/ranges.json"
)

// serveCard answers with the agent's Signature Agent Card (draft-meunier-webbotauth-registry-03).
// Its URLs use https, even if another server terminates TLS.
func (h *Handler) serveCard(w http.ResponseWriter, r *http.Request, v view) error {
	o, err := origin.FromAuthority("https", r.Host)
	if err != nil {
		return h.fail(w, http.StatusBadRequest, "The Host of the request is not a host name.")
	}
	site, a := o.String(), v.agent.Config
	bot := map[string]any{"rfc9309-product-token": v.agent.Robots.Tokens[0], "trigger": "crawler", "rate-control": "429"}
	card := map[string]any{"client_id": site + cardPath, "client_uri": site + "/", "client_name": a.Name, "web_bot_auth": bot}
	if contact := contactURL(a.Contact); contact != "" {
		card["contacts"] = []string{contact}
	}
	if a.Signs() {
		card["jwks_uri"] = a.Signer.Directory + webbotauth.WellKnown
	}
	if sent := userAgentOf(a); sent != "" {
		bot["expected-user-agent"] = sent
	}
	if len(a.Purposes) > 0 {
		bot["purpose"] = strings.Join(a.Purposes, ", ")
	}
	if len(h.ranges) > 0 {
		bot["ips_uri"] = site + rangesPath
	}
	return publish(w, card)
}

// serveRanges answers with the ranges, in the form that large crawlers use for theirs.
func (h *Handler) serveRanges(w http.ResponseWriter) error {
	prefixes := make([]map[string]string, len(h.ranges))
	for i, p := range h.ranges {
		family := map[bool]string{true: "ipv4Prefix", false: "ipv6Prefix"}[p.Addr().Is4()]
		prefixes[i] = map[string]string{family: p.String()}
	}
	return publish(w, map[string]any{"creationTime": h.loaded.UTC().Format("2006-01-02T15:04:05.000000"), "prefixes": prefixes})
}

// publish answers with JSON that may be cached for an hour.
func publish(w http.ResponseWriter, v any) error {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("making a public file: %w", err)
	}
	maps.Copy(w.Header(), http.Header{
		"Content-Type": {"application/json"}, "Cache-Control": {"public, max-age=3600"}, "Access-Control-Allow-Origin": {"*"},
	})
	_, _ = w.Write(body) // a client that has left needs no answer; the server sends none of it to HEAD
	return nil
}

// serveDirectory answers with the keys by which the agent signs. It is signed for the name in the
// agent's signatures and for no other, because another site could show the keys as its own.
func (h *Handler) serveDirectory(w http.ResponseWriter, r *http.Request, v view) error {
	signer := v.agent.Config.Signer
	if signer == nil {
		return h.fail(w, http.StatusNotFound, "This crawler signs nothing.")
	}
	authority := strings.TrimPrefix(signer.Directory, "https://")
	if strings.TrimSuffix(strings.ToLower(r.Host), ":443") != authority { // another spelling would not verify
		return h.fail(w, http.StatusMisdirectedRequest, "The keys are at "+signer.Directory+webbotauth.WellKnown+".")
	}
	header, body := signer.Keys().Directory(authority, time.Now())
	maps.Copy(w.Header(), header)
	_, _ = w.Write(body)
	return nil
}

// userAgentOf returns the User-Agent that sites see, or a pattern for it.
func userAgentOf(a *enforce.Agent) string {
	return cmp.Or(a.SendUserAgent, append(a.UserAgents, "")[0])
}

// contactURL returns the URL of a contact that is a mail address or a URL, and nothing for others.
func contactURL(contact string) string {
	if strings.Contains(contact, "@") && !strings.Contains(contact, ":") {
		return "mailto:" + contact
	}
	if u, err := url.Parse(contact); err != nil || u.Scheme == "" {
		return ""
	}
	return contact
}
