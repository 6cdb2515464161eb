package console

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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
		return fail(w, http.StatusForbidden, "This page takes no orders: see the option orders of robots_console.")
	case user == "":
		return fail(w, http.StatusForbidden, "Orders are for authenticated users.")
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		return fail(w, http.StatusBadRequest, "The form cannot be read.")
	}
	note := note{Text: "Unknown action."}
	if carryOut, known := actions[r.PostForm.Get("action")]; known {
		text, err := carryOut(r.Context(), e, r.PostForm, user)
		note.Text, note.Done = text, err == nil
		h.logger.Info("order on the operator's page", zap.String("action", r.PostForm.Get("action")), zap.String("scope", r.PostForm.Get("scope")),
			zap.String("value", r.PostForm.Get("value")), zap.String("by", user), zap.Error(err))
		if err != nil {
			note.Text = plain(err)
		}
	}
	h.refresh()
	http.Redirect(w, r, "/?m="+h.notes.add(note)+"#message", http.StatusSeeOther)
	return nil
}

// plain is the text of an error without its status.
func plain(err error) string {
	if known, ok := errors.AsType[caddy.APIError](err); ok && known.Err != nil {
		return known.Err.Error()
	}
	return err.Error()
}

// action carries out an order by the fields of its form, and describes the result.
type action func(ctx context.Context, e *engine.Engine, form url.Values, user string) (string, error)

// actions are the actions of the admin API, by the same names.
var actions = map[string]action{
	"deny": func(ctx context.Context, e *engine.Engine, form url.Values, user string) (string, error) {
		given, err := adminapi.Deny(ctx, e, adminapi.OrderRequest{
			Scope: enforce.StopScope(form.Get("scope")), Value: form.Get("value"), By: user, Reason: form.Get("reason"),
		})
		return fmt.Sprintf("Stopped: %s. %d under way ended.%s", given.Order, given.Ended, reach(given.Acks())), err
	},
	"undeny": func(ctx context.Context, e *engine.Engine, form url.Values, user string) (string, error) {
		lifted, err := adminapi.Undeny(ctx, e, adminapi.LiftRequest{
			Scope: enforce.StopScope(form.Get("scope")), Value: form.Get("value"), By: user,
		})
		return fmt.Sprintf("Order %s.%s", lifted, reach(lifted.Acks())), err
	},
	"purge": func(ctx context.Context, e *engine.Engine, form url.Values, _ string) (string, error) {
		purged, err := adminapi.Purge(ctx, e, adminapi.OriginRequest{Origin: form.Get("value")})
		return "Forgotten: " + purged.Origin + "." + reach(purged.Acks()), err
	},
	"refresh": func(ctx context.Context, e *engine.Engine, form url.Values, _ string) (string, error) {
		fetched, err := adminapi.Refresh(ctx, e, adminapi.OriginRequest{Origin: form.Get("value")})
		return "Fetched: " + fetched.Record.RobotsURL + "." + reach(fetched.Acks()), err
	},
	"unblock": func(ctx context.Context, e *engine.Engine, form url.Values, _ string) (string, error) {
		ended, err := adminapi.UnblockHost(ctx, e, adminapi.UnblockRequest{Key: form.Get("value")})
		return fmt.Sprintf("Unblocked: %s, %d blocks ended.%s", form.Get("value"), len(ended.Ended), reach(ended.Acks())), err
	},
}

// reach says how much of a fleet an order has reached; empty without a fleet.
func reach(report cluster.Acknowledgements) string {
	if len(report.Gateways) == 0 {
		return ""
	}
	applied, all, _ := report.Counts()
	return fmt.Sprintf(" %d of %d gateways.", applied, all)
}

// note describes the result of an order.
type note struct {
	key  string
	Text string
	Done bool
}

// maxNotes bounds the notes that are kept.
const maxNotes = 64

// notes are kept until the page that they are for has been asked for. The text is not in its URL:
// anybody could write it there.
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
