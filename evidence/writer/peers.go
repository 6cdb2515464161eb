package writer

import (
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
)

const (
	// peerPace is the least time between two stretches of lines about peers.
	peerPace = time.Minute
	// maxPeers bounds the lines of one stretch.
	maxPeers = 100
)

// Hear writes the checkpoints of other gateways into the log: those that the log has not yet, at
// most 100 a minute. What is no checkpoint, or one of this gateway, is left out. No checkpoint is
// signed for these lines alone until they are many: two idle gateways would have news for each
// other without end.
func (l *Log) Hear(notes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.heardAt.IsZero() && time.Since(l.heardAt) < peerPace {
		return
	}
	heard := make(map[string]bool)
	for _, text := range notes[:min(len(notes), maxPeers)] {
		h, err := evidence.ReadClaim(text)
		if err != nil || strings.HasPrefix(h.Identity, l.config.Gateway+"/") {
			continue
		}
		if !l.heard[text] {
			if err := l.say(evidence.Said{Msg: "peer", PeerLog: h.Identity, Size: h.Size, Root: h.Root, Note: text}); err != nil {
				return
			}
			l.heardAt = time.Now()
		}
		heard[text] = true
	}
	l.heard = heard
	if l.size-l.head.Size > l.config.Terms.Crash()/2 {
		l.signed--
	}
}
