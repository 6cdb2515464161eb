package sealer

import (
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
)

const (
	// peerInterval is the least time between two batches of notices about peers.
	peerInterval = time.Minute
	// maxPeers bounds the notices of one batch.
	maxPeers = 100
)

// RecordPeerCheckpoints writes new checkpoints of other gateways into the log, at most 100 a
// minute. It skips invalid ones and those of this gateway. These notices alone cause no checkpoint
// until there are many: otherwise two idle gateways would exchange new checkpoints for ever.
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
