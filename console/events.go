package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/crawlgate/crawlgate/engine"
)

// eventPace is the shortest time between two events of a viewer, and keepAlive the longest.
const (
	eventPace = time.Second
	keepAlive = 15 * time.Second
)

// serveEvents sends the sections that have changed, as server-sent events, until the viewer leaves
// or the server stops. Each event is a JSON object of elements by their ids.
func (h *Handler) serveEvents(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Content-Type", "text/event-stream")
	if r.Method == http.MethodHead {
		w.WriteHeader(http.StatusOK)
		return nil
	}
	select {
	case h.viewers <- struct{}{}:
		defer func() { <-h.viewers }()
	default:
		w.Header().Set("Retry-After", "60")
		return say(w, http.StatusServiceUnavailable, "Too many pages are open; this one does not update itself.")
	}
	v := viewer{w: w, control: http.NewResponseController(w), seen: make(map[string]template.HTML), spoke: time.Now()}
	tick := time.NewTicker(eventPace)
	defer tick.Stop()
	for {
		if e := engine.Current(); e != nil {
			if err := v.show(h.sections(r.Context(), e)); err != nil {
				return nil //nolint:nilerr // the viewer has left
			}
		}
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return nil
		case <-h.life.Done():
			return nil
		}
	}
}

// viewer is a page with live updates.
type viewer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	seen    map[string]template.HTML // sections by their ids
	spoke   time.Time                // when something was sent
}

// show sends the changed sections and the time. If nothing has changed for a while, it sends only
// the time.
func (v *viewer) show(sections map[string]template.HTML) error {
	changed := make(map[string]template.HTML)
	for id, text := range sections {
		if v.seen[id] != text {
			v.seen[id], changed[id] = text, text
		}
	}
	now := time.Now()
	if len(changed) == 0 && now.Sub(v.spoke) < keepAlive {
		return nil
	}
	changed["updated"] = template.HTML(clock(now)) //nolint:gosec // digits and colons
	data, err := json.Marshal(changed)
	if err != nil {
		return fmt.Errorf("making an event: %w", err)
	}
	v.spoke = now
	_ = v.control.SetWriteDeadline(now.Add(keepAlive)) // a viewer that does not read loses its place
	if _, err := fmt.Fprintf(v.w, "data: %s\n\n", data); err != nil {
		return err
	}
	return v.control.Flush()
}
