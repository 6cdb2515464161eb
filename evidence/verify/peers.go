package verify

import (
	"fmt"

	"github.com/crawlgate/crawlgate/evidence"
)

// peer checks the checkpoint of another log in a line. With a good signature, and if its log is
// given, it counts like one that was kept elsewhere.
//
// If the log is given but its key has not signed the checkpoint, one of the two was forged: that is
// reported once for each log. If the log is not given, nothing is reported, because the logs of one
// gateway may be audited alone.
func (c *Checker) peer(at Place, text string) {
	h, err := evidence.ParseCheckpoint([]byte(text), c.keys)
	if err != nil {
		claim, _ := evidence.ReadClaim(text) // invalid: the zero value names no log
		t := c.trees[claim.LogID]
		if t == nil || t.totals.Key == "" {
			c.totals.PeersUnknown++
			return
		}
		message := fmt.Sprintf("the line has a checkpoint of %s that the key of that log has not signed: %v", claim.LogID, err)
		t.reportOnce(Finding{at, Checkpoint, message})
		return
	}
	t := c.trees[h.LogID]
	id, _ := evidence.ParseLogID(h.LogID)
	if log := c.logs[evidence.WithoutGeneration(h.LogID)]; t == nil && log != nil && id.Generation > log.known { // earlier ones may have expired
		t = c.tree(h.LogID)
	}
	if t == nil {
		c.totals.PeersUnknown++
		return
	}
	t.totals.KeptElsewhere = true
	t.totals.Peers++
	p := checkpoint{size: h.Size, root: h.Root, at: at}
	if p.size > t.largestPeer.size {
		t.largestPeer = p
	}
	switch { // checkpoints beyond the confirmed leaves are left to the lines, or to the end
	case p.size <= t.confirmed:
		t.within(p, func(p checkpoint) { t.reportOnce(t.forked(p, t.largestConfirmed())) })
	case p.size <= t.size && p.size > t.edge.Size():
		t.keepAhead(p)
	}
}

// checkPeers compares the largest checkpoint that others have with those that are kept.
func (t *tree) checkPeers() {
	switch {
	case t.largestPeer.size <= t.size:
	case t.next < t.largestPeer.size:
		t.size = t.largestPeer.size // its end is missing
	default:
		message := fmt.Sprintf("the line has a checkpoint of %d lines of %s, but the largest that is kept has %d",
			t.largestPeer.size, t.logID, t.size)
		t.report(Finding{t.largestPeer.at, Checkpoint, message})
	}
}

// reportOnce reports the first finding about a checkpoint in a line of another log. Each further
// such line would repeat it.
func (t *tree) reportOnce(f Finding) {
	if !t.reported {
		t.reported = true
		t.report(f)
	}
}
