package proxy

import (
	"net/http"
	"strconv"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// serveRobotsTxt answers a crawler's own request for robots.txt from the record, so that what the
// crawler reads is what the gateway obeys, and the site is asked once for all of them. A site whose
// record is unreachable is answered for with 503, which every robots.txt client takes as "nothing
// may be crawled", as the gateway does.
func (x *exchange) serveRobotsTxt(target origin.Target) error {
	ctx := x.ctx
	entry, source, err := x.site.Enforcer.Lookup(ctx, target.Origin)
	if err != nil {
		return x.refuse(x.decision.Refuse(enforce.LookupFailure(ctx, err)))
	}
	now := time.Now()
	record, view := entry.Record(), entry.View(now)
	x.decision.Source, x.decision.State, x.decision.Cause = source, view.State, view.Cause
	x.decision.SHA256, x.decision.FetchedAt, x.decision.FreshUntil = view.SHA256, view.FetchedAt, view.FreshUntil
	x.decision.Age = max(now.Sub(view.FetchedAt), 0)

	header := x.w.Header()
	header.Set("Content-Type", "text/plain; charset=utf-8")
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Cache-Status", enforce.Name+"; hit; ttl="+strconv.FormatInt(int64(max(view.FreshUntil.Sub(now), 0)/time.Second), 10))
	header.Set("Age", strconv.FormatInt(int64(x.decision.Age/time.Second), 10))
	var body []byte
	status := view.Access.RobotsStatus()
	switch status {
	case http.StatusOK:
		text, _ := record.Text()
		body = text.Body
	case http.StatusNotFound:
		body = []byte("The site has no robots.txt.\n")
	default:
		x.decision.Detail = view.Why()
		body = []byte("The site's robots.txt is unreachable: " + view.Why() + "\n")
		header.Set("Retry-After", strconv.FormatInt(int64(max(view.RetryAt.Sub(now), pendingRetry)/time.Second), 10))
	}
	header.Set("Content-Length", strconv.Itoa(len(body)))
	x.w.WriteHeader(status)
	if x.r.Method == http.MethodHead {
		return nil
	}
	_, _ = x.w.Write(body) // a client that has left needs no answer
	return nil
}

// pendingRetry is when to ask again for what is still being fetched.
const pendingRetry = 5 * time.Second
