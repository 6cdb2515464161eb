package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyevents"
	"go.uber.org/zap/zapcore"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// The names of the events that go to Caddy's events app, from module "robots". docs/events.md lists
// them with their data.
const (
	eventDenied          = "robots.denied"
	eventStateChanged    = "robots.state_changed"
	eventRulesChanged    = "robots.rules_changed"
	eventSitemapsChanged = "robots.sitemaps_changed"
	eventUnreachable     = "robots.unreachable"
)

// eventQueue bounds the events that wait for their handlers. If it is full, events are dropped and
// counted.
const eventQueue = 1024

// emitter passes events to Caddy's events app. Handlers run one after the other in its own
// goroutine, so no request waits for slow ones. A nil emitter emits nothing.
type emitter struct {
	app   *caddyevents.App
	ctx   caddy.Context
	queue chan event

	ready atomic.Bool // all apps have started, so the subscriptions no longer change
}

// event is a queued event. Its data is made only if a handler will see it.
type event struct {
	name string
	data func() map[string]any
}

// newEmitter returns nil if the configuration has no events app.
func newEmitter(ctx caddy.Context) (*emitter, error) {
	events, err := App[*caddyevents.App]("events", ctx.AppIfConfigured)
	if errors.Is(err, caddy.ErrNotConfigured) {
		return nil, nil //nolint:nilnil // a nil emitter is ready for use
	}
	if err != nil {
		return nil, err
	}
	e := &emitter{app: events, ctx: ctx, queue: make(chan event, eventQueue)}
	if err := whenStarted(events, e.start); err != nil {
		return nil, err
	}
	return e, nil
}

// whenStarted arranges that f is called when all apps have started. Call it during provisioning.
func whenStarted(events *caddyevents.App, f startedHandler) error {
	if err := events.On("started", f); err != nil {
		return fmt.Errorf("waiting for the start of all apps: %w", err)
	}
	return nil
}

// startedHandler is called once all apps have started, when Caddy emits "started".
type startedHandler func()

// Handle implements caddyevents.Handler.
func (f startedHandler) Handle(context.Context, caddy.Event) error {
	f()
	return nil
}

func (e *emitter) start() {
	if e.ready.CompareAndSwap(false, true) {
		go e.work()
	}
}

// work passes on events until the configuration ends.
func (e *emitter) work() {
	for {
		select {
		case <-e.ctx.Done():
			return
		case ev := <-e.queue:
			e.app.Emit(e.ctx, ev.name, ev.data())
		}
	}
}

// wanted reports whether any handler could see one of the events.
func (e *emitter) wanted(names ...string) bool {
	if e == nil {
		return false
	}
	if !e.ready.Load() {
		return true // unknown so far
	}
	return slices.ContainsFunc(names, e.app.ShouldEmit)
}

// emit queues an event without waiting.
func (e *emitter) emit(name string, data func() map[string]any) {
	select {
	case e.queue <- event{name, data}:
	default:
		droppedTotal.WithLabelValues("event").Inc()
	}
}

// EmitDenied emits an event about a request that was refused, or would be in another mode. object
// is its object in the access log; url returns the URL without the parts that may be private.
func (e *Engine) EmitDenied(object zapcore.ObjectMarshaler, method string, url func() string) {
	if !e.emitter.wanted(eventDenied) {
		return
	}
	shown := url()
	e.emitter.emit(eventDenied, func() map[string]any {
		data := zapcore.NewMapObjectEncoder()
		_ = object.MarshalLogObject(data) // a map takes everything
		data.Fields["method"], data.Fields["url"] = method, shown
		return data.Fields
	})
}

// fetched emits the changes of a fetch of robots.txt.
func (e *emitter) fetched(p fetch.Policy, before fetch.Record, out fetch.Outcome) {
	if !e.wanted(eventStateChanged, eventRulesChanged, eventSitemapsChanged, eventUnreachable) {
		return
	}
	for _, c := range changes(p, before, out, time.Now()) {
		e.emit(c.name, func() map[string]any {
			c.data["origin"], c.data["robots_url"] = before.Origin.String(), before.Origin.RobotsURL()
			if before.Agent != "" {
				c.data["fetched_as"] = before.Agent
			}
			return c.data
		})
	}
}

// change is one event caused by a step from one record to the next.
type change struct {
	name string
	data map[string]any
}

// changes lists the events of a fetch that ended with out at now. It is pure.
func changes(p fetch.Policy, before fetch.Record, out fetch.Outcome, now time.Time) (list []change) {
	d := p.Diff(before, out, now)
	after := d.After
	if d.StateChanged() {
		list = append(list, change{eventStateChanged, withText(after, map[string]any{
			"from": d.Before.State.String(), "to": after.State.String(), "cause": string(after.Cause),
			"status": after.Status, "detail": after.Detail,
		})})
	}
	old, _ := d.Before.Text()
	if d.RulesChanged() {
		list = append(list, change{eventRulesChanged, withText(after, map[string]any{
			"from": old.SHA256.Hex(), "to": after.SHA256.Hex(),
		})})
	}
	if text, ok := after.Text(); ok && after.State == fetch.StateRules && d.Before.State != fetch.StateUnknown && text.SHA256 != old.SHA256 {
		if data := sitemapsChanged(old, text); data != nil {
			list = append(list, change{eventSitemapsChanged, data})
		}
	}
	if d.Alarmed() {
		last, since := after.LastFailure, after.UnreachableSince
		list = append(list, change{eventUnreachable, map[string]any{
			"since": since.UTC().Format(time.RFC3339), "for_s": int64(last.At.Sub(since) / time.Second),
			"attempts": after.Attempts, "cause": string(last.Cause), "status": last.Status,
			"detail": last.Detail, "access": p.Access(after, now).String(),
		}})
	}
	return list
}

// withText adds the sitemaps of the current text to the data of an event, and the flags.
func withText(r fetch.Record, data map[string]any) map[string]any {
	sitemaps, flags := []string{}, FlagsOf(r)
	if r.State == fetch.StateRules {
		sitemaps = sitemapURLs(fetch.Copy{Body: r.Body, Truncated: r.Truncated})
	}
	data["sitemaps"], data["flags"] = sitemaps[:min(len(sitemaps), maxEventSitemaps)], append([]string{}, flags...)
	return data
}

// The flags of a text. The valid lines of a flagged text still apply.
const (
	FlagHTML = "html"       // it is an HTML page
	Flag202  = "status_202" // it came with 202 (Accepted), perhaps before the site had made the file
)

// FlagsOf says why the text of a record may not be a robots.txt.
func FlagsOf(r fetch.Record) (flags []string) {
	if text, ok := r.Text(); ok && robotstxt.IsHTML(text.Body) {
		flags = append(flags, FlagHTML)
	}
	if r.State == fetch.StateRules && r.Status == http.StatusAccepted {
		flags = append(flags, Flag202)
	}
	return flags
}

// Bounds on the sitemaps of an event.
const maxEventSitemaps = 50

// sitemapURLs returns the sitemaps of a text in a form that is safe to show.
func sitemapURLs(text fetch.Copy) []string {
	list := robotstxt.Options{Truncated: text.Truncated}.Parse(text.Body).Sitemaps()
	urls := make([]string, 0, len(list))
	for _, s := range list {
		urls = append(urls, escape.Unprintable(s.URL))
	}
	return urls
}

// sitemapsChanged returns the data of the event that a text names other sitemaps than the previous
// text, or nil if it does not.
func sitemapsChanged(before, after fetch.Copy) map[string]any {
	old, now := sitemapURLs(before), sitemapURLs(after)
	added, removed := missingIn(old, now), missingIn(now, old)
	if len(added) == 0 && len(removed) == 0 {
		return nil
	}
	return map[string]any{
		"added": added[:min(len(added), maxEventSitemaps)], "added_total": len(added),
		"removed": removed[:min(len(removed), maxEventSitemaps)], "removed_total": len(removed),
	}
}

// missingIn returns the urls that are not in list, each once and in order.
func missingIn(list, urls []string) []string {
	known := make(map[string]bool, len(list))
	for _, u := range list {
		known[u] = true
	}
	return slices.DeleteFunc(slices.Clone(urls), func(u string) bool {
		seen := known[u]
		known[u] = true
		return seen
	})
}
