package enforce

import (
	"context"
	"net/http"
	"net/netip"
	"slices"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// Authentication is the result of checking the sender of a CONNECT, except for its name. The zero
// value is refused. It holds no password.
type Authentication struct {
	acceptance

	user         string // whose password was right, or ""
	source       netip.Addr
	certificates []string
	// only is the agent of all requests inside, or nil if they may come from several agents or from
	// others.
	only *Agent
	// inner says that the requests come from inside an accepted tunnel.
	inner bool
}

// Opaque identifies the sender of a CONNECT for a blind tunnel. Most clients send no User-Agent
// with CONNECT, and some send a wrong one. So an agent bound by credentials or certificate does not
// need its User-Agent, as long as the field names no other agent.
func (id *Identifier) Opaque(ctx context.Context, s Sender) Identity {
	auth := id.authenticate(ctx, s)
	i := id.Inner(auth, s.UserAgent)
	if i.refusal != ReasonAgentMismatch || len(id.named(s.UserAgent).agents) > 0 {
		return i
	}
	found := slices.DeleteFunc(id.withoutUserAgent(auth), func(a *Agent) bool { return !a.boundBy(auth) })
	if len(found) == 0 {
		return i
	}
	i = found[0].identity(s.UserAgent)
	if len(found) > 1 {
		return i.refuse(ReasonAmbiguousAgent,
			"without a User-Agent it could be agent %q or %q", found[0].Name, found[1].Name)
	}
	i.IdentifiedBy = (found[0].conditions &^ byUserAgent).String()
	return i
}

// withoutUserAgent returns the agents whose conditions, apart from the User-Agent, the sender meets.
func (id *Identifier) withoutUserAgent(auth Authentication) []*Agent {
	return slices.DeleteFunc(slices.Clone(id.agents), func(a *Agent) bool { return a.unmet(auth, named{})&^byUserAgent != 0 })
}

// AuthenticateTunnel authenticates the sender of a CONNECT whose inner requests will be seen. It
// ignores the User-Agent: most clients send none with CONNECT, and some send a wrong one. The
// credentials apply to all requests inside, because clients send them only here. So a CONNECT is
// refused for wrong credentials, and for missing ones if every sender needs them. All other
// refusals are sent inside, where clients see them.
func (id *Identifier) AuthenticateTunnel(ctx context.Context, s Sender) Authentication {
	auth := id.authenticate(ctx, s)
	inside := id.withoutUserAgent(auth)
	possible := id.allowUnknown || len(inside) > 0
	if id.allowUnknown || slices.ContainsFunc(id.agents, func(a *Agent) bool { return a.boundBy(auth) }) {
		inside = slices.DeleteFunc(inside, func(a *Agent) bool { return !a.boundBy(auth) })
	}
	if len(inside) == 1 {
		auth.only = inside[0]
	}
	if auth.accepted && auth.user == "" && id.verify != nil && !possible {
		auth.acceptance = acceptance{refusal: ReasonCredentialsMissing}
	}
	auth.inner = true
	return auth
}

// DecideTunnel decides a CONNECT for a blind tunnel to an https origin. It allows the tunnel only
// if the rules allow the agent every path, because no path will be visible. Exceptions for paths do
// not cover it.
//
// Clients repeat a refused CONNECT up to thirty times. So a refusal must not cost a fetch: it
// follows from the policy or from the existing record.
func (e *Enforcer) DecideTunnel(ctx context.Context, id Identity, o origin.Origin) Decision {
	d, decided := e.startTunnel(id, o, http.MethodConnect)
	if decided {
		return d
	}
	bound, ok := e.bound(ctx, &d, id)
	if !ok {
		e.prefer(ctx, &d, bound, "")
		return d
	}
	d.Group = bound.Own.Name()
	if bound.Unrestricted() && !e.mayConflict(&d, bound) {
		d.allow(ReasonUnrestricted)
		if id.Config.keepsVisitTime() {
			d.visit(bound)
		}
		if d.preferMode != PreferencesLog {
			e.prefer(ctx, &d, Bound{}, "")
		}
	} else {
		d.deny(ReasonTunnelRestricted, "")
	}
	return d
}

// DecideOpening decides the same CONNECT without the rules and the agent's methods, for a port
// where the client may not speak TLS. If it does, call [Enforcer.DecideTunnel] next.
func (e *Enforcer) DecideOpening(id Identity, o origin.Origin) Decision {
	d, decided := e.startTunnel(id, o, "")
	if decided {
		return d
	}
	return e.DecidePlain(id, o)
}

// DetailPlain is the detail of such a decision.
const DetailPlain = "plain HTTP in the tunnel; each request has its own line"

// DecidePlain decides such a CONNECT once plain HTTP has arrived in its tunnel. The gateway sees
// these requests and decides each of them.
func (e *Enforcer) DecidePlain(id Identity, o origin.Origin) Decision {
	d := e.begin(id, o)
	d.PathVisible = true
	d.allow(ReasonIntercepted)
	return d
}

// startTunnel takes the steps before the rules for a blind tunnel, and reports whether they
// decided. The method is as in [Agent.beyond].
func (e *Enforcer) startTunnel(id Identity, o origin.Origin, method string) (d Decision, decided bool) {
	d, decided = e.start(id, o, method, false)
	if decided {
		return d, true
	}
	if e.policy().Connect(o) == ConnectDeny {
		d.deny(ReasonConnectDenied, "")
		return d, true
	}
	return d, e.exempted(&d, "")
}

// DecideIntercept decides a CONNECT that will be intercepted. Only credentials can refuse it, or a
// boundary if a single agent may be inside. Every other refusal is sent inside, where clients see
// it, and under the name of the agent that sent the request.
func (e *Enforcer) DecideIntercept(t Authentication, o origin.Origin) Decision {
	d := Decision{Mode: e.policy().Mode(o, nil), Origin: o, PathVisible: true}
	if o.IsZero() {
		d.deny(ReasonBadTarget, "")
	} else if reason, detail, refused := t.Refused(); refused {
		d.deny(reason, detail)
	} else {
		d.allow(ReasonIntercepted)
		if t.only != nil {
			if r := t.only.beyond(o, "", e.clock()); r.reason != "" {
				d = e.begin(t.only.identity(""), o)
				d.PathVisible = true
				d.refuseBeyond(r)
			}
		}
	}
	return d
}

// OwnHost is a host for which the gateway answers itself, through the proxy. The name does not
// exist in DNS (RFC 6761 section 6.4), so an answer shows a client that its requests go through a
// gateway.
const OwnHost = "crawlgate.invalid"

// Screen takes only the steps that need no rules. It decides whether the gateway would serve the
// sender at all.
func (e *Enforcer) Screen(id Identity, o origin.Origin) (d Decision, refused bool) {
	return e.start(id, o, "", false)
}

// httpsPort is the port on which only TLS is expected.
const httpsPort = 443

// MayBePlain reports whether a CONNECT is accepted even though TLS in it would be refused, because
// the client may send plain HTTP. Such requests are enforced like any other. This applies to every
// port but 443, unless the port speaks TLS and its rules are known.
func (d Decision) MayBePlain() bool {
	if d.Origin.Port == httpsPort {
		return false
	}
	noTLS := d.Cause == fetch.CauseTLS || d.Cause == fetch.CauseProtocol || d.Cause == fetch.CauseReset
	return d.Reason == ReasonConnectDenied || d.Reason == ReasonAgentMethod || d.Reason == ReasonUnreachable && noTLS
}
