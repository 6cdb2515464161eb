package cluster

import (
	"cmp"
	"slices"

	"github.com/crawlgate/crawlgate/evidence"
)

const (
	// maxCheckpoints bounds the checkpoints that a gateway publishes, so that its note stays below
	// maxValue.
	maxCheckpoints = 8
	// maxPeerCheckpoints bounds the checkpoints of other gateways that a gateway gets.
	maxPeerCheckpoints = 100
)

// Publish tells the other gateways the newest checkpoints of this gateway's evidence logs. It sends
// the first 8 that have at most [evidence.MaxPeerNote] bytes, with the next heartbeat.
func (f *Fleet) Publish(notes []string) {
	notes = slices.DeleteFunc(slices.Clone(notes), func(n string) bool { return len(n) > evidence.MaxPeerNote })
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note.Checkpoints = notes[:min(len(notes), maxCheckpoints)]
}

// Checkpoints returns the checkpoints of the other gateways, as last read, which may be some
// seconds ago. It does not wait for Redis.
func (f *Fleet) Checkpoints() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.membership.checkpoints(f.note.Name)
}

// checkpoints returns the checkpoints of gateways with other names, at most 100. The gateways whose
// names follow the own name come first, so that in a large fleet each gateway is heard by equally
// many others.
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
