package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/cluster"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
)

// maxForm bounds the body of an order, in bytes.
const maxForm = 16 << 10

// takeOrder carries out an order of the user, and redirects to the page, which shows the result.
func (h *Handler) takeOrder(w http.ResponseWriter, r *http.Request, e *engine.Engine) error {
	user := userOf(r)
	switch {
	case !h.Orders:
		return h.fail(w, r, http.StatusForbidden, "This page takes no orders: see the option orders of robots_console.")
	case user == "":
		return h.fail(w, r, http.StatusForbidden, "Orders are for authenticated users.")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return h.fail(w, r, http.StatusBadRequest, "The form cannot be read.")
	}
	form := r.PostForm
	if host := form.Get("host"); host != "" && form.Get("scope") == string(enforce.StopAgent) {
		form.Set("scope", string(enforce.StopAgentHost))
		form.Set("value", form.Get("value")+"@"+host)
	}
	carryOut, known := actions[form.Get("action")]
	if !known {
		return h.fail(w, r, http.StatusBadRequest, "This page knows no such order.")
	}
	if q, asks := questionOf(e, form); asks {
		return h.ask(w, r, q)
	}
	note, err := carryOut(r.Context(), e, form, user)
	h.logger.Info("order on the operator's page", zap.String("action", form.Get("action")), zap.String("scope", form.Get("scope")),
		zap.String("value", form.Get("value")), zap.String("by", user), zap.Error(err))
	if err != nil {
		note.Text, note.Level = plain(err), "failed"
		if errors.Is(causeOf(err), adminapi.ErrNeedsForce) {
			return h.ask(w, r, question{Fault: strings.TrimSuffix(note.Text, "; "+adminapi.ErrNeedsForce.Error()), Form: form})
		}
	}
	h.refresh()
	to := "/stops"
	if form.Get("action") == "unblock" {
		to = "/"
	}
	http.Redirect(w, r, to+"?m="+h.notes.add(note)+"#message", http.StatusSeeOther)
	return nil
}

// plain returns the text of an error for an operator, without its status and without the names of
// packages.
func plain(err error) string {
	text := causeOf(err).Error()
	for _, part := range []string{"adding a stop: ", "origin: "} {
		text = strings.TrimPrefix(text, part)
	}
	return text
}

// causeOf returns the error in a caddy.APIError, which does not unwrap itself.
func causeOf(err error) error {
	if known, ok := errors.AsType[caddy.APIError](err); ok && known.Err != nil {
		return known.Err
	}
	return err
}

// action carries out the order in a form, and describes the result.
type action func(ctx context.Context, e *engine.Engine, form url.Values, user string) (note, error)

// actions are the actions of the admin API, by the same names.
var actions = map[string]action{
	"deny": func(ctx context.Context, e *engine.Engine, form url.Values, user string) (note, error) {
		given, err := adminapi.Deny(ctx, e, adminapi.OrderRequest{
			Scope: enforce.StopScope(form.Get("scope")), Value: form.Get("value"), By: user, Reason: form.Get("reason"), Force: form.Get("force") != "",
		})
		return note{Level: "stopped", Text: fmt.Sprintf("Stopped: %s. %d under way ended.%s", given.Order, given.Ended, reach(given.Acks()))}, err
	},
	"allow": func(ctx context.Context, e *engine.Engine, form url.Values, user string) (note, error) {
		given, err := adminapi.Allow(ctx, e, allowOf(form, user))
		return note{Level: "done", Text: fmt.Sprintf("Allowed: %s.%s", given.Order, reach(given.Acks()))}, err
	},
	"undeny": func(ctx context.Context, e *engine.Engine, form url.Values, user string) (note, error) {
		lifted, err := adminapi.Undeny(ctx, e, adminapi.LiftRequest{
			Scope: enforce.StopScope(form.Get("scope")), Value: form.Get("value"), By: user,
		})
		return note{Level: "done", Text: fmt.Sprintf("Order %s.%s", lifted, reach(lifted.Acks()))}, err
	},
	"purge": func(ctx context.Context, e *engine.Engine, form url.Values, _ string) (note, error) {
		purged, err := adminapi.Purge(ctx, e, adminapi.OriginRequest{Origin: form.Get("value")})
		return note{Level: "done", Text: "Forgotten: " + purged.Origin + "." + reach(purged.Acks())}, err
	},
	"refresh": func(ctx context.Context, e *engine.Engine, form url.Values, _ string) (note, error) {
		fetched, err := adminapi.Refresh(ctx, e, adminapi.OriginRequest{Origin: form.Get("value")})
		n := note{Level: "done", Text: "Fetched: " + fetched.Record.RobotsURL + "." + reach(fetched.Acks())}
		if fetched.Undone() {
			n.Level, n.Text = "failed", "Not fetched: "+fetched.Record.RobotsURL+", "+string(fetched.Record.LastFailure.Cause)+"."+reach(fetched.Acks())
		}
		return n, err
	},
	"unblock": func(ctx context.Context, e *engine.Engine, form url.Values, _ string) (note, error) {
		ended, err := adminapi.UnblockHost(ctx, e, adminapi.UnblockRequest{Key: form.Get("value")})
		return note{Level: "done", Text: fmt.Sprintf("Unblocked: %s, %d blocks ended.%s", form.Get("value"), len(ended.Ended), reach(ended.Acks()))}, err
	},
}

// allowOf reads the form of an exception.
func allowOf(form url.Values, user string) adminapi.AllowRequest {
	return adminapi.AllowRequest{
		Host: form.Get("host"), Agent: form.Get("value"), Paths: strings.Fields(form.Get("paths")), Until: form.Get("until"),
		By: user, Ticket: form.Get("ticket"), Reason: form.Get("reason"),
	}
}

// reach says how many gateways of a fleet an order has reached. It is empty without a fleet.
func reach(report cluster.Acknowledgements) string {
	if len(report.Gateways) == 0 {
		return ""
	}
	applied, all, _ := report.Counts()
	return fmt.Sprintf(" %d of %d gateways.", applied, all)
}

// note describes the result of an order.
type note struct {
	key, Text string
	Level     string // "done", "failed", or "stopped", which is a warning
}

// maxNotes bounds the notes that are kept.
const maxNotes = 64

// notes are kept until their page is requested. The text is not in the URL, because anybody could
// write such a URL.
type notes struct {
	mu   sync.Mutex
	list []note
}

func (n *notes) add(text note) (key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	text.key = rand.Text()
	n.list = append(n.list[max(len(n.list)-maxNotes+1, 0):], text)
	return text.key
}

func (n *notes) get(key string) note {
	n.mu.Lock()
	defer n.mu.Unlock()
	if i := slices.IndexFunc(n.list, func(text note) bool { return text.key == key }); i >= 0 {
		return n.list[i]
	}
	return note{}
}
