package crawlgate

// engines are the configurations that run, in the order of their start. The last one is in force: the admin API, of which
// a process has one as well, speaks for it.
var engines holders

// inForce returns the configuration in force, nil if none runs.
func (h *holders) inForce() *App {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.apps) == 0 {
		return nil
	}
	return h.apps[len(h.apps)-1]
}
