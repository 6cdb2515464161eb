package logwriter

import (
	"maps"
	"slices"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/evidence/writer"
)

// Heads gives the newest checkpoints that the other gateways are to know: of each log one, as a
// signed note without cosignatures.
func Heads() (notes []string) {
	for _, log := range all.withPeers() {
		if text := log.Status().Checkpoint; text != "" {
			notes = append(notes, evidence.Bare(text))
		}
	}
	return notes
}

// Hear has the checkpoints of other gateways written into the logs. A disk may hold it up.
func Hear(notes []string) {
	for _, log := range all.withPeers() {
		log.Hear(notes)
	}
}

// withPeers are the logs that exchange checkpoints with other gateways, in the order of their keys.
// They may be closed meanwhile.
func (l *logs) withPeers() (open []*writer.Log) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(l.byKey)) {
		s := l.byKey[key]
		if log, n := s.log.Load(), len(s.terms); log != nil && n > 0 && s.terms[n-1].fleet {
			open = append(open, log)
		}
	}
	return open
}
