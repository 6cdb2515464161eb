package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
)

// A tunnel outlives the configuration that opened it, because clients do not expect a connection to
// end right after they opened it. So each reload checks it again: requests inside go to the site
// that replaces the first one, and a blind tunnel ends unless all such sites would open it.

var (
	// errTooOld is why a blind tunnel ends after a day or another time that the operator chose.
	errTooOld = errors.New("it is older than tunnel_age")
	// errNotReopened is why a blind tunnel ends at a reload.
	errNotReopened = errors.New("the configuration loaded since would not open it")
	// errExceptionOver ends a blind tunnel that only an exception allowed.
	errExceptionOver = errors.New("the exception that allowed it has ended")
	// errBeyond ends a blind tunnel when a boundary of its agent closes or changes.
	errBeyond = errors.New("it is outside of a boundary of its agent now")
	// errStopping is why a tunnel ends with the process.
	errStopping = errors.New("the gateway stops")
)

// exemptEvery is how often a blind tunnel asks whether its exception is still in force.
const exemptEvery = time.Second

// tunnel is what requests inside a tunnel inherit from their CONNECT. It is safe for concurrent
// use.
type tunnel struct {
	home  *engine.SitePolicy // the site that accepted it
	from  enforce.Sender
	began time.Time

	mu     sync.Mutex
	judge  *enforce.Identifier
	sender enforce.Authentication
}

// sentBy is an identifier's result for the sender of the CONNECT. If a tunnel outlives a reload,
// the new identifier checks it again. Credentials that could not be checked are checked again for
// the next request.
func (t *tunnel) sentBy(ctx context.Context, judge *enforce.Identifier) enforce.Authentication {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.judge == judge {
		return t.sender
	}
	sender := judge.AuthenticateTunnel(ctx, t.from)
	if reason, _, _ := sender.Refused(); reason != enforce.ReasonCredentialsBusy && reason != enforce.ReasonCanceled {
		t.judge, t.sender = judge, sender
	}
	return sender
}

// site returns the site that takes the next request of the tunnel, or nil if there is no such site.
// After a reload, requests inside go to the current configuration, like those on other connections.
func (t *tunnel) site() *engine.SitePolicy {
	if t.home.Life.Err() == nil {
		return t.home
	}
	if successors := t.home.Successors(); len(successors) > 0 {
		return successors[0]
	}
	return nil
}

// watch ends a blind tunnel when it is outside a boundary of its agent, when the exception that
// allowed it ends, and at a reload after which it would not be opened. If several sites have
// replaced the first one, watch follows the hours and the file of hosts of one of them.
func (c *connect) watch(ctx context.Context, end context.CancelCauseFunc, exempt bool) {
	for s, agent, relisted := c.opens.home, c.identity.Config, c.relisted; ; {
		var closes <-chan time.Time
		if at := agent.Closes(time.Now()); !at.IsZero() {
			closes = time.After(time.Until(at))
		}
		var asks <-chan time.Time
		if exempt { // an order may be lifted at any time
			asks = time.After(exemptEvery)
		}
		select {
		case <-s.Life.Done():
		case <-relisted:
		case <-closes:
		case <-asks:
			if s.Life.Err() == nil && !c.stillAllowed(ctx, s) {
				end(errExceptionOver)
				return
			}
		case <-ctx.Done():
			return
		}
		if s.Life.Err() == nil {
			relisted = s.Identifier.Relisted() // before the boundaries are checked, so that no change is missed
			if s.Enforcer.Beyond(agent, c.target.Origin, http.MethodConnect) != nil {
				end(errBeyond)
				return
			}
			continue
		}
		judges := s.Successors()
		if len(judges) > 0 {
			s = judges[0]
			relisted = s.Identifier.Relisted() // likewise
			agent = s.Identifier.Opaque(ctx, c.opens.from).Config
		}
		refuses := func(s *engine.SitePolicy) bool { return !c.stillAllowed(ctx, s) }
		if len(judges) == 0 || slices.ContainsFunc(judges, refuses) {
			end(errNotReopened)
			return
		}
	}
}

// stillAllowed reports whether a site would open the tunnel for the same agent without looking
// inside.
func (c *connect) stillAllowed(ctx context.Context, s *engine.SitePolicy) bool {
	if s.Operator.Connect(c.target.Origin) == enforce.ConnectIntercept || !enforce.ClientAllowed(s.Clients, c.opens.from.Source) {
		return false
	}
	id := s.Identifier.Opaque(ctx, c.opens.from)
	return id.StopName() == c.identity.StopName() && s.Enforcer.DecideTunnel(ctx, id, c.target.Origin).Allowed
}
