package verify

import (
	"fmt"

	"github.com/crawlgate/crawlgate/evidence"
)

// peer takes the checkpoint of another log that a line has. It counts like one that was kept
// elsewhere, if it has a good signature and its log is given.
//
// Where the log is given and its key has not signed, one of the two was made up: that is found,
// once a log. Nothing is found where the log is not given, as lines of others are audited alone,
// too.
func (c *Checker) peer(at Place, text string) error {
	h, err := evidence.ParseCheckpoint([]byte(text), c.keys)
	if err != nil {
		claim, _ := evidence.ReadClaim(text) // none: of no log
		t := c.trees[claim.LogID]
		if t == nil || t.totals.Key == "" {
			c.totals.PeersUnknown++
			return nil
		}
		message := fmt.Sprintf("the line has a checkpoint of %s that the key of that log has not signed: %v", claim.LogID, err)
		return t.reportOnce(Finding{at, Checkpoint, message})
	}
	t := c.trees[h.LogID]
	id, _ := evidence.ParseLogID(h.LogID)
	if log := c.logs[evidence.WithoutGeneration(h.LogID)]; t == nil && log != nil && id.Generation > log.known { // earlier ones may have expired
		t = c.tree(h.LogID)
	}
	if t == nil {
		c.totals.PeersUnknown++
		return nil
	}
	t.totals.KeptElsewhere = true
	t.totals.Peers++
	return t.takePeer(checkpoint{size: h.Size, root: h.Root, at: at})
}

// takePeer compares a checkpoint in a line of another log against the leaves that are confirmed.
// What is larger is left to the lines, or to the end.
func (t *tree) takePeer(p checkpoint) error {
	if p.size > t.largestPeer.size {
		t.largestPeer = p
	}
	switch {
	case p.size <= t.confirmed:
		return t.within(p, func(p checkpoint) error {
			return t.reportOnce(t.forked(p, fmt.Sprintf("that of %d lines", t.confirmed)))
		})
	case p.size <= t.size && p.size > t.edge.Size():
		return t.keepAhead(p)
	}
	return nil
}

// checkPeers compares the largest checkpoint that others have with those that are kept.
func (t *tree) checkPeers() error {
	if t.largestPeer.size <= t.size {
		return nil
	}
	if t.next < t.largestPeer.size {
		t.size = t.largestPeer.size // its end is missing
		return nil
	}
	message := fmt.Sprintf("the line has a checkpoint of %d lines of %s, the largest of those that are kept has %d",
		t.largestPeer.size, t.logID, t.size)
	return t.report(Finding{t.largestPeer.at, Checkpoint, message})
}

// reportOnce reports the first finding about a checkpoint in a line of another log. A false one
// would come again with each such line.
func (t *tree) reportOnce(f Finding) error {
	if t.reported {
		return nil
	}
	t.reported = true
	return t.report(f)
}
