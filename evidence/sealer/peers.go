package sealer

import (
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
)

const (
	// peerInterval is the least time between two stretches of lines about peers.
	peerInterval = time.Minute
	// maxPeers bounds the lines of one stretch.
	maxPeers = 100
)

// RecordPeerCheckpoints writes the checkpoints of other gateways into the log: those that the log
// has not yet, at most 100 a minute. What is no checkpoint, or one of this gateway, is left out. No
// checkpoint is signed for these lines alone until they are many: two idle gateways would have news
// for each other without end.
func (l *Log) RecordPeerCheckpoints(notes []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.peersAt.IsZero() && time.Since(l.peersAt) < peerInterval {
		return
	}
	heard := make(map[string]bool)
	for _, text := range notes[:min(len(notes), maxPeers)] {
		h, err := evidence.ReadClaim(text)
		if err != nil || strings.HasPrefix(h.LogID, l.config.Gateway+"/") {
			continue
		}
		if !l.peerNotes[text] {
			if err := l.writeNotice(evidence.Notice{Msg: "peer", PeerLog: h.LogID, Size: h.Size, Root: h.Root, Note: text}); err != nil {
				return
			}
			l.peersAt = time.Now()
		}
		heard[text] = true
	}
	l.peerNotes = heard
	if l.size-l.newest.Size > l.config.Terms.Crash()/2 {
		l.signed--
	}
}
