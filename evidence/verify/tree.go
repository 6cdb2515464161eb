package verify

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// tree is one generation of a log: its checkpoints, and the lines read so far.
type tree struct {
	logID      string
	generation int
	log        *logAges
	tiles      evidence.Tiles // empty if there are no tiles
	report     func(Finding)
	totals     LogTotals

	confirmed int64         // how many leaves a signed checkpoint confirms
	root      tlog.Hash     // the root of that checkpoint
	proven    evidence.Tree // and its edge
	gone      int64         // how many leaves were deleted; the hashes over them exist
	missed    bool          // lines exist whose leaves were deleted
	size      int64         // of the largest signed checkpoint
	agrees    checkpoint    // the last checkpoint of the current file that these leaves confirm

	// ahead are the checkpoints that the leaves do not reach or confirm, by size. edge is the tree of
	// the lines up to the first of them, starting at from. broken means that a line is missing there.
	ahead   []checkpoint
	edge    evidence.Tree
	from    Place
	pending int64 // lines since from
	broken  bool

	next    int64 // the number of the line that should follow
	lastSeq int64
	last    Place
	says    evidence.Notice // the notice in the current line, if it is one
	when    time.Time       // of the current line
	excused bool            // the notice of the newest checkpoint was read
	ages
	gaps        []gap
	claimed     int64 // the largest checkpoint that a notice claims
	claimedAt   Place
	largestPeer checkpoint // the largest in a line of another log
	reported    bool       // see reportOnce

	block   []tlog.Hash // of leaves, from blockAt on
	blockAt int64
}

type checkpoint struct {
	size int64
	root tlog.Hash
	at   Place
	// agreed is the size of a checkpoint in the same file that the leaves confirm.
	agreed int64
}

// gap is a range of missing lines: from is the first, to the one after the last.
type gap struct {
	from, to      int64
	after, before Place
	atBegin       bool // no line came before it
}

// mostGaps bounds how many gaps are remembered. Further ones are reported at once.
const mostGaps = 10_000

func (c *Checker) tree(id string) *tree {
	name := evidence.WithoutGeneration(id)
	if c.logs[name] == nil {
		c.logs[name] = new(logAges)
	}
	parsed, _ := evidence.ParseLogID(id) // it was checked
	t := &tree{logID: id, generation: parsed.Generation, log: c.logs[name], report: c.report, lastSeq: -1, totals: LogTotals{Log: id}}
	t.log.known = max(t.log.known, t.generation)
	c.trees[id] = t
	return t
}

func (c *Checker) sorted() []*tree {
	return slices.SortedFunc(maps.Values(c.trees), func(a, b *tree) int { return cmp.Compare(a.logID, b.logID) })
}

// leaf returns the hash of a line as it was sealed.
func (t *tree) leaf(seq int64) (tlog.Hash, error) {
	if at := seq - t.blockAt; at >= 0 && at < int64(len(t.block)) {
		return t.block[at], nil
	}
	if t.tiles == "" {
		return tlog.Hash{}, fmt.Errorf("there are no leaves of %s", t.logID)
	}
	block, err := t.tiles.Hashes(0, seq)
	if err != nil {
		return tlog.Hash{}, err
	}
	t.block, t.blockAt = block, seq
	return block[0], nil
}

// place checks the line with the given number.
func (t *tree) place(at Place, seq int64, hash tlog.Hash) {
	if seq < t.confirmed && seq != t.next && seq != t.lastSeq+1 {
		// An unexpected number must have the hash that was sealed under it.
		if leaf, err := t.leaf(seq); err == nil && leaf != hash {
			t.report(Finding{at, Extra, fmt.Sprintf("the line has number %d of %s, but is not the one that was sealed under it", seq, t.logID)})
			return
		}
	}
	if !t.order(at, seq) {
		return
	}
	t.lastSeq, t.last = seq, at
	t.pass(at, seq)
	if seq >= t.confirmed {
		t.behind(at, seq, hash)
		return
	}
	switch leaf, err := t.leaf(seq); {
	case err != nil:
		t.withoutLeaf(at, seq)
	case leaf != hash:
		t.report(Finding{at, Changed, fmt.Sprintf("line %d of %s has other bytes than were sealed", seq, t.logID)})
	default:
		t.totals.Sealed++
	}
}

// withoutLeaf counts a line whose leaf was deleted.
func (t *tree) withoutLeaf(at Place, seq int64) {
	t.totals.Unproven++
	if !t.missed {
		t.missed = true
		t.report(Finding{at, Leaves, fmt.Sprintf("the leaves from line %d of %s on are gone, while the lines are there", seq, t.logID)})
	}
}

// order compares the number of a line with those before it. It reports whether the line is the
// first with its number.
func (t *tree) order(at Place, seq int64) (fresh bool) {
	switch {
	case seq == t.next:
		t.next++
	case seq > t.next:
		g := gap{t.next, seq, t.last, at, t.lastSeq < 0}
		t.next = seq + 1
		if len(t.gaps) < mostGaps {
			t.gaps = append(t.gaps, g)
		} else {
			t.missing(g)
		}
	case !t.fill(seq):
		t.report(Finding{at, Extra, fmt.Sprintf("line %d of %s appears a second time, or was forged", seq, t.logID)})
		return false
	case seq != t.lastSeq+1:
		t.report(Finding{at, Order, fmt.Sprintf("line %d of %s comes after line %d at %s", seq, t.logID, t.lastSeq, t.last)})
	}
	return true
}

// fill removes a line from the gap that it is in, and reports whether there is one.
func (t *tree) fill(seq int64) bool {
	i := slices.IndexFunc(t.gaps, func(g gap) bool { return g.from <= seq && seq < g.to })
	if i < 0 {
		return false
	}
	left, right := t.gaps[i], t.gaps[i]
	left.to, right.from, right.atBegin = seq, seq+1, false
	parts := slices.DeleteFunc([]gap{left, right}, func(g gap) bool { return g.from == g.to })
	t.gaps = slices.Replace(t.gaps, i, i+1, parts...)
	return true
}

func (t *tree) missing(g gap) {
	between := "before this one"
	if g.after.File != "" {
		between = "between " + g.after.String() + " and this one"
	}
	t.report(Finding{g.before, Missing, fmt.Sprintf("lines %d to %d of %s are missing %s", g.from, g.to-1, t.logID, between)})
}

// behind checks a line after the confirmed leaves.
func (t *tree) behind(at Place, seq int64, hash tlog.Hash) {
	switch {
	case seq >= t.size:
		return
	case seq < t.gone:
		t.withoutLeaf(at, seq)
		return
	case t.broken || len(t.ahead) == 0 || seq != t.edge.Size():
		t.giveUp()
		t.totals.Unproven++
		return
	}
	if t.pending == 0 {
		t.from = at
	}
	t.edge.Append(hash)
	t.pending++
	next := t.ahead[0]
	if t.edge.Size() < next.size {
		return
	}
	if t.edge.Root() != next.root {
		t.giveUp()
		t.report(Finding{at, Changed, fmt.Sprintf("a line from %s to this one contradicts the checkpoint at %s", t.from, next.at)})
		return
	}
	t.totals.Sealed += t.pending
	t.pending, t.ahead = 0, t.ahead[1:]
}

// giveUp counts the lines since the last checkpoint as unproven.
func (t *tree) giveUp() {
	t.broken = true
	t.totals.Unproven += t.pending
	t.pending = 0
}
