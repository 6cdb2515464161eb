package proxy

import (
	"errors"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// refuse answers a request that does not leave, or did and failed, and notes the decision for the
// log.
func (x *exchange) refuse(d enforce.Decision) error {
	d = x.stopped(d)
	x.decision = d
	if d.Reason == enforce.ReasonCanceled {
		// Nobody reads the answer. The error makes the log show 499, as Caddy's own reverse proxy does.
		return caddyhttp.Error(enforce.StatusClientClosedRequest, errors.New("the client left"))
	}
	refusal := enforce.Render(d, x.asked())
	x.message = refusal.Reason
	if d.Reason == enforce.ReasonBadRequest && x.r.ProtoMajor == 1 {
		x.w.Header().Set("Connection", "close") // what follows may be understood in two ways too
	}
	if x.site.Server != nil && x.site.Server.Errors != nil {
		return x.refuseByRoutes(refusal)
	}
	if x.r.Method == http.MethodConnect {
		egress.Refuse(x.w, x.r, egress.Refusal{
			Status: refusal.Status, Reason: refusal.Reason, Header: refusal.Header, Body: refusal.Body,
		})
		return nil
	}
	egress.PrepareRefusal(x.w, x.r)
	h := x.w.Header()
	maps.Copy(h, refusal.Header)
	h.Set("Content-Length", strconv.Itoa(len(refusal.Body)))
	x.w.WriteHeader(refusal.Status)
	if x.r.Method != http.MethodHead {
		_, _ = x.w.Write(refusal.Body) // a client that has left needs no answer
	}
	return nil
}

// refuseRequest answers a request for which nothing was decided, because of what it is itself.
func (x *exchange) refuseRequest(reason enforce.Reason, detail string) error {
	x.decision.UserAgent = x.r.UserAgent()
	return x.refuse(x.decision.Refuse(reason, detail, 0))
}

// refuseExcess refuses what is one too many of an agent, before it costs a fetch or a place in
// line.
func (x *exchange) refuseExcess(id enforce.Identity, o origin.Origin, detail string) error {
	x.decision = x.site.Enforcer.RefuseExcess(id, o, detail)
	x.decision.PathVisible = x.r.Method != http.MethodConnect
	return x.refuse(x.decision)
}

// refuseByRoutes leaves the answer to the server's error routes. The fields that make it
// recognisable as the gateway's stay; the body is theirs.
func (x *exchange) refuseByRoutes(refusal enforce.Refusal) error {
	egress.PrepareRefusal(x.w, x.r)
	h := x.w.Header()
	for name, values := range refusal.Header {
		if name != "Content-Type" && name != "Content-Security-Policy" {
			h[name] = values
		}
	}
	return caddyhttp.HandlerError{StatusCode: refusal.Status, Err: errors.New(refusal.Reason)}
}

// asked is what the client asked for, as its refusal shows it.
func (x *exchange) asked() enforce.RequestInfo {
	a := enforce.RequestInfo{
		Method: x.r.Method, URL: x.r.URL.String(), Accept: strings.Join(x.r.Header["Accept"], ","), Help: x.site.Engine.Config.Help,
	}
	if x.r.Method == http.MethodConnect {
		a.URL = x.r.Host
	}
	return a
}
