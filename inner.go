package crawlgate

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
)

// astrayKey is the key of the error of a request that does not belong into its tunnel.
type astrayKey struct{}

// astray refuses a request that does not belong into its tunnel, and reports whether it was one.
func (x *exchange) astray() (error, bool) {
	err, ok := x.r.Context().Value(astrayKey{}).(error)
	if !ok {
		return nil, false
	}
	if errors.Is(err, egress.ErrMisdirected) {
		return x.refuseRequest(enforce.ReasonMisdirected, err.Error()), true
	}
	return x.refuseRequest(enforce.ReasonBadTarget, err.Error()), true
}

// tunnel is what the requests inside a tunnel have from their CONNECT. It is safe for concurrent use.
type tunnel struct {
	home  *Handler // the gateway that accepted it
	from  enforce.Sender
	began time.Time

	mu     sync.Mutex
	judge  *enforce.Identifier
	sender enforce.Authentication
}

// tunnelOf returns the tunnel that a request came through, nil if it came through none.
func tunnelOf(r *http.Request) *tunnel {
	p := egress.ConnectFrom(r.Context())
	if p == nil {
		return nil
	}
	t, _ := p.Value.(*tunnel)
	return t
}

// sentBy is what an identifier makes of the sender of the CONNECT. A tunnel that outlives a reload is judged again, by the new
// one. Credentials that could not be checked are checked again for the next request.
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

// gateway gives the gateway that the next request of the tunnel is for, nil if there is none: what comes inside after a
// reload is for the configuration in force, as it would be over a connection of its own.
func (t *tunnel) gateway() *Handler {
	if t.home.inForce() {
		return t.home
	}
	if heirs := t.home.heirs(); len(heirs) > 0 {
		return heirs[0]
	}
	return nil
}

// inForce reports whether no other configuration has taken the place of the gateway's own.
func (h *Handler) inForce() bool { return h.life.Err() == nil }

// heirs are the gateways at the ports of h in the configuration in force.
func (h *Handler) heirs() []*Handler {
	app := engines.inForce()
	if app == nil {
		return nil
	}
	return slices.DeleteFunc(app.sites.all(), func(next *Handler) bool {
		return !next.inForce() || !slices.ContainsFunc(h.server.Listen, next.listens)
	})
}
