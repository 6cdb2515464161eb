package writer

import (
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

const (
	// peerPace is the least time between two stretches of lines about peers.
	peerPace = time.Minute
	// maxPeers bounds the lines of one stretch.
	maxPeers = 100
)

// peerLine has the identity as peer_log, as the seal of the line has the member log.
type peerLine struct {
	Peer string    `json:"peer"`
	Log  string    `json:"peer_log"`
	Size int64     `json:"size"`
	Root tlog.Hash `json:"root"`
	Note string    `json:"note"`
}

// Hear writes the checkpoints of other gateways into the log: those that the log has not yet, at
// most 100 a minute. What is no checkpoint, or one of this gateway, is left out. No checkpoint is
// signed for these lines alone: two idle gateways would have news for each other without end.
func (l *Log) Hear(peers []evidence.Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.heardAt.IsZero() && time.Since(l.heardAt) < peerPace {
		return
	}
	heard := make(map[string]bool)
	for _, p := range peers[:min(len(peers), maxPeers)] {
		h, err := evidence.ReadClaim(p.Note)
		if err != nil || strings.HasPrefix(h.Identity, l.config.Gateway+"/") {
			continue
		}
		if !l.heard[p.Note] {
			if err := l.say("peer", peerLine{p.Gateway, h.Identity, h.Size, h.Root, p.Note}); err != nil {
				return
			}
			l.heardAt = time.Now()
		}
		heard[p.Note] = true
	}
	l.heard = heard
}
