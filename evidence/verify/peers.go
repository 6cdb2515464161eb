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
	h, err := evidence.ParseHead([]byte(text), c.keys)
	if err != nil {
		claim, _ := evidence.ReadClaim(text) // none: of no log
		t := c.trees[claim.Identity]
		if t == nil || t.totals.Key == "" {
			c.totals.PeersUnknown++
			return nil
		}
		message := fmt.Sprintf("the line has a checkpoint of %s that the key of that log has not signed: %v", claim.Identity, err)
		return t.accuse(Finding{at, Head, message})
	}
	t := c.trees[h.Identity]
	id, _ := evidence.ParseIdentity(h.Identity)
	if log := c.logs[evidence.LogOf(h.Identity)]; t == nil && log != nil && id.Generation > log.known { // earlier ones may have expired
		t = c.tree(h.Identity)
	}
	if t == nil {
		c.totals.PeersUnknown++
		return nil
	}
	t.totals.KeptElsewhere = true
	t.totals.Peers++
	return t.hear(checkpoint{size: h.Size, root: h.Root, at: at})
}

// hear holds a checkpoint in a line of another log against the leaves that are confirmed. What is
// larger is left to the lines, or to the end.
func (t *tree) hear(p checkpoint) error {
	if p.size > t.heard.size {
		t.heard = p
	}
	switch {
	case p.size <= t.confirmed:
		return t.within(p, func(p checkpoint) error {
			return t.accuse(t.forked(p, fmt.Sprintf("that of %d lines", t.confirmed)))
		})
	case p.size <= t.size && p.size > t.edge.Size():
		return t.keepAhead(p)
	}
	return nil
}

// endHeard compares the largest checkpoint that others have with those that are kept.
func (t *tree) endHeard() error {
	if t.heard.size <= t.size {
		return nil
	}
	if t.next < t.heard.size {
		t.size = t.heard.size // its end is missing
		return nil
	}
	message := fmt.Sprintf("the line has a checkpoint of %d lines of %s, the largest of those that are kept has %d",
		t.heard.size, t.identity, t.size)
	return t.report(Finding{t.heard.at, Head, message})
}

// accuse reports the first finding about a checkpoint in a line of another log. A false one would
// come again with each such line.
func (t *tree) accuse(f Finding) error {
	if t.accused {
		return nil
	}
	t.accused = true
	return t.report(f)
}
