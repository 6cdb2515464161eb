package pace

import "sync"

// room bounds how many requests wait in the whole Pacer. An agent may have no
// more of them than what it leaves free (the dynamic threshold of Choudhury and
// Hahne): alone it gets half, and there is always room left for the others.
type room struct {
	mu     sync.Mutex
	total  int
	agents map[string]int
}

func (r *room) enter(agent string, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.agents[agent] >= limit-r.total {
		return false
	}
	if r.agents == nil {
		r.agents = make(map[string]int)
	}
	r.total++
	r.agents[agent]++
	return true
}

func (r *room) leave(agent string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.total--
	if r.agents[agent]--; r.agents[agent] == 0 {
		delete(r.agents, agent)
	}
}

func (r *room) waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.total
}
