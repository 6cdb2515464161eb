package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/crawlgate/crawlgate/engine"
)

// eventPace is the least time between two events of a viewer, and keepAlive the most.
const (
	eventPace = time.Second
	keepAlive = 15 * time.Second
)

// serveEvents sends the sections that have changed, as server-sent events, until the viewer leaves
// or the configuration ends. Each event is a JSON object of sections by their ids.
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
		return fail(w, http.StatusServiceUnavailable, "Too many pages are open; this one does not follow by itself.")
	}
	control := http.NewResponseController(w)
	tick := time.NewTicker(eventPace)
	defer tick.Stop()
	seen, spoke := map[string]string{}, time.Now()
	for {
		if e := engine.Current(); e != nil {
			changed := map[string]string{}
			for id, text := range h.sections(r.Context(), e) {
				if seen[id] != text {
					seen[id], changed[id] = text, text
				}
			}
			frame := []byte(": still here\n\n")
			if len(changed) > 0 {
				data, err := json.Marshal(changed)
				if err != nil {
					return err
				}
				frame = fmt.Appendf(nil, "data: %s\n\n", data)
			}
			if now := time.Now(); len(changed) > 0 || now.Sub(spoke) >= keepAlive {
				spoke = now
				_ = control.SetWriteDeadline(now.Add(keepAlive)) // a viewer that reads nothing leaves its place
				if _, err := w.Write(frame); err != nil {
					return nil //nolint:nilerr // the viewer has left
				}
				if err := control.Flush(); err != nil {
					return nil //nolint:nilerr // as above
				}
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
