package enforce

import (
	"context"
	"net/http"
	"net/netip"
	"slices"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// Authentication is the result of checking the sender of a CONNECT: all but its name. The zero
// value is refused. It holds no password.
type Authentication struct {
	acceptance

	user         string // whose password was right, or ""
	source       netip.Addr
	certificates []string
	// only is the agent of all requests inside; nil if they may be of several, or of others.
	only *agent
	// inner says that the requests judged come from inside an accepted tunnel.
	inner bool
}

// Opaque identifies the sender of a CONNECT that will not be looked into. Most clients leave its
// User-Agent out and some get it wrong. So an agent bound by credentials or certificate need not
// show its User-Agent if the field names no other agent.
func (id *Identifier) Opaque(ctx context.Context, s Sender) Identity {
	auth := id.authenticate(ctx, s)
	i := id.Inner(auth, s.UserAgent)
	if i.refusal != ReasonAgentMismatch || len(id.named(s.UserAgent).agents) > 0 {
		return i
	}
	var found *agent
	for _, a := range id.agents {
		switch {
		case !a.boundBy(auth) || a.unmet(auth, named{})&^byUserAgent != 0:
		case found != nil:
			return found.identity(s.UserAgent).refuse(ReasonAmbiguousAgent,
				"without a User-Agent it could be agent %q or %q", found.Name, a.Name)
		default:
			found = a
		}
	}
	if found == nil {
		return i
	}
	i = found.identity(s.UserAgent)
	i.IdentifiedBy = (found.conditions &^ byUserAgent).String()
	return i
}

// AuthenticateTunnel authenticates the sender of a CONNECT whose inner requests will be seen. It
// ignores the User-Agent: most clients send none with CONNECT, some a wrong one.
// The credentials count for all requests inside, as clients send them here only. So a CONNECT is
// refused for its credentials, and for lack of them if no sender could do without; all other
// refusals are given inside, where clients see them.
func (id *Identifier) AuthenticateTunnel(ctx context.Context, s Sender) Authentication {
	auth := id.authenticate(ctx, s)
	bound := slices.ContainsFunc(id.agents, func(a *agent) bool { return a.boundBy(auth) })
	possible, inside := id.allowUnknown, 0
	for _, a := range id.agents {
		if a.unmet(auth, named{})&^byUserAgent != 0 {
			continue
		}
		possible = true
		if a.boundBy(auth) || !bound && !id.allowUnknown {
			auth.only = a
			inside++
		}
	}
	if inside != 1 {
		auth.only = nil
	}
	if auth.accepted && auth.user == "" && id.verify != nil && !possible {
		auth.acceptance = acceptance{refusal: ReasonCredentialsMissing}
	}
	auth.inner = true
	return auth
}

// DecideTunnel decides a CONNECT to an https origin that will not be looked into. It is opened only
// where the rules could refuse the agent nothing, as no path will be visible. Exceptions for paths
// do not cover it.
//
// Clients repeat a refused CONNECT up to thirty times. So a refusal costs no fetch
// of its own: it follows from the policy, or from the same record as before.
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
		if d.use.mode != PreferencesLog {
			e.prefer(ctx, &d, Bound{}, "")
		}
	} else {
		d.deny(ReasonTunnelRestricted, "")
	}
	return d
}

// DecideOpening decides the same CONNECT without the rules and the agent's methods, for a port where
// TLS is not expected: [Enforcer.DecideTunnel] has to follow if TLS comes.
func (e *Enforcer) DecideOpening(id Identity, o origin.Origin) Decision {
	d, decided := e.startTunnel(id, o, "")
	if decided {
		return d
	}
	return e.DecidePlain(id, o)
}

// DetailPlain is the detail of such a decision.
const DetailPlain = "plain HTTP in the tunnel; each request has its own line"

// DecidePlain decides such a CONNECT once plain HTTP has come in its tunnel: the requests are seen,
// and decided by themselves.
func (e *Enforcer) DecidePlain(id Identity, o origin.Origin) Decision {
	d := e.begin(id, o)
	d.PathVisible = true
	d.allow(ReasonIntercepted)
	return d
}

// startTunnel takes the steps before the rules for a CONNECT that will not be looked into, and
// reports whether they decided. The method is as in [Agent.beyond].
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

// DecideIntercept decides a CONNECT that will be looked into. Only credentials can refuse it, and a
// boundary if one agent alone may be inside: every other refusal is given inside, where clients see
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

// OwnHost is a host for which the gateway answers itself, through the proxy. There is no such name
// (RFC 6761 section 6.4), so an answer shows a client that its requests go through a gateway.
const OwnHost = "crawlgate.invalid"

// Screen takes the steps that need no rules: it decides whether the gateway would serve the sender
// at all.
func (e *Enforcer) Screen(id Identity, o origin.Origin) (d Decision, refused bool) {
	return e.start(id, o, "", false)
}

// httpsPort is where nothing but TLS is expected.
const httpsPort = 443

// MayBePlain reports whether a CONNECT whose TLS is refused is accepted all the same, because the
// client may send plain HTTP in it, which is enforced like any other request. That
// is so at any port but 443, unless the port speaks TLS and its rules are known.
func (d Decision) MayBePlain() bool {
	if d.Origin.Port == httpsPort {
		return false
	}
	noTLS := d.Cause == fetch.CauseTLS || d.Cause == fetch.CauseProtocol || d.Cause == fetch.CauseReset
	return d.Reason == ReasonConnectDenied || d.Reason == ReasonAgentMethod || d.Reason == ReasonUnreachable && noTLS
}
