package crawlgate

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
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
	home  *engine.SitePolicy // the site that accepted it
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

// site gives the site that the next request of the tunnel is for, nil if there is none: what comes
// inside after a reload is for the current configuration, as it would be over a connection of its own.
func (t *tunnel) site() *engine.SitePolicy {
	if t.home.Live() {
		return t.home
	}
	if successors := t.home.Successors(); len(successors) > 0 {
		return successors[0]
	}
	return nil
}
