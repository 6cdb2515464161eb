package cluster

import (
	"cmp"
	"slices"

	"github.com/crawlgate/crawlgate/evidence"
)

const (
	// maxCheckpoints bounds the checkpoints that a gateway tells, so that its note stays below
	// maxValue.
	maxCheckpoints = 8
	// maxPeerCheckpoints bounds those of others that a gateway is given.
	maxPeerCheckpoints = 100
)

// Publish has the other gateways know the newest checkpoints of the evidence logs here: the first 8
// of those of at most [evidence.MaxPeerNote] bytes. They go with the next heartbeat.
func (f *Fleet) Publish(notes []string) {
	notes = slices.DeleteFunc(slices.Clone(notes), func(n string) bool { return len(n) > evidence.MaxPeerNote })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note.Checkpoints = notes[:min(len(notes), maxCheckpoints)]
}

// Checkpoints returns the checkpoints of the other gateways, as of the last look at them, which may
// be some seconds ago. It does not wait for Redis.
func (f *Fleet) Checkpoints() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.membership.checkpoints(f.note.Name)
}

// checkpoints gives the checkpoints of gateways of other names, at most 100. Those gateways come
// first whose names follow the own one, so that in a large fleet each is heard by as many others.
func (r membership) checkpoints(own string) (checkpoints []string) {
	var others []process
	for _, p := range r {
		if p.Name != own {
			others = append(others, p)
		}
	}
	slices.SortFunc(others, func(a, b process) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.last, b.last)) })
	next := slices.IndexFunc(others, func(p process) bool { return p.Name > own })
	for _, p := range slices.Concat(others[max(next, 0):], others[:max(next, 0)]) {
		for _, n := range p.Checkpoints[:min(len(p.Checkpoints), maxCheckpoints)] {
			if len(checkpoints) == maxPeerCheckpoints {
				return checkpoints
			}
			checkpoints = append(checkpoints, n)
		}
	}
	return checkpoints
}
