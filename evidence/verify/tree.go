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

// tree is one generation of a log: what its checkpoints say, and how far its lines have come.
type tree struct {
	logID      string
	generation int
	log        *logAges
	tiles      evidence.Tiles // empty for none
	report     func(Finding) error
	totals     LogTotals

	confirmed int64         // the leaves before it are those of a signed checkpoint
	root      tlog.Hash     // which has this root
	proven    evidence.Tree // and this edge
	gone      int64         // the leaves before it were deleted; hashes over them are there
	missed    bool          // lines are there whose leaves are gone
	size      int64         // of the largest signed checkpoint
	agrees    checkpoint    // of the file that is read, the last that these leaves bear out

	// ahead are the checkpoints that the leaves do not reach or bear out, by size. edge is of the
	// lines up to the first of them, which begin at from; broken says that they cannot be added up.
	ahead   []checkpoint
	edge    evidence.Tree
	from    Place
	pending int64 // lines since from
	broken  bool

	next    int64 // the number of the line that should follow
	lastSeq int64
	last    Place
	says    evidence.Notice // what the line that is placed says, if it is the writer's
	when    time.Time       // of the line that is placed
	excused bool            // the line that tells of the newest checkpoint has come
	ages
	gaps        []gap
	claimed     int64 // the largest checkpoint that a line tells of
	claimedAt   Place
	largestPeer checkpoint // the largest that a line of another log has
	reported    bool       // a checkpoint in a line of another log was found to be false, or to make this one so

	block   []tlog.Hash // of leaves, from blockAt on
	blockAt int64
}

type checkpoint struct {
	size int64
	root tlog.Hash
	at   Place
	// agreed is the size of one from the same file that the leaves bear out.
	agreed int64
}

// gap is a stretch of lines that have not come: those from from to before to.
type gap struct {
	from, to      int64
	after, before Place
	atBegin       bool // nothing came before it
}

// mostGaps bounds what is remembered: of a log with more, the first are reported at once.
const mostGaps = 10_000

func (c *Checker) tree(id string) *tree {
	name := evidence.WithoutGeneration(id)
	if c.logs[name] == nil {
		c.logs[name] = new(logAges)
	}
	identity, _ := evidence.ParseLogID(id) // it was checked
	t := &tree{logID: id, generation: identity.Generation, log: c.logs[name], report: c.report, lastSeq: -1, totals: LogTotals{Log: id}}
	t.log.known = max(t.log.known, t.generation)
	c.trees[id] = t
	return t
}

func (c *Checker) sorted() []*tree {
	return slices.SortedFunc(maps.Values(c.trees), func(a, b *tree) int { return cmp.Compare(a.logID, b.logID) })
}

// leaf is the hash of a line as it was sealed.
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

// place takes the line with the given number.
func (t *tree) place(at Place, seq int64, hash tlog.Hash) error {
	if seq < t.confirmed && seq != t.next && seq != t.lastSeq+1 {
		// Only the line that was sealed under it is believed such a number.
		if leaf, err := t.leaf(seq); err == nil && leaf != hash {
			return t.report(Finding{at, Extra, fmt.Sprintf("the line has number %d of %s, and is not the one that was sealed under it", seq, t.logID)})
		}
	}
	fresh, err := t.order(at, seq)
	if err != nil || !fresh {
		return err
	}
	t.lastSeq, t.last = seq, at
	t.pass(at, seq)
	if seq >= t.confirmed {
		return t.behind(at, seq, hash)
	}
	switch leaf, err := t.leaf(seq); {
	case err != nil:
		return t.withoutLeaf(at, seq)
	case leaf != hash:
		return t.report(Finding{at, Changed, fmt.Sprintf("line %d of %s has other bytes than those that were sealed", seq, t.logID)})
	default:
		t.totals.Sealed++
	}
	return nil
}

// withoutLeaf takes a line whose leaf is gone.
func (t *tree) withoutLeaf(at Place, seq int64) error {
	t.totals.Unproven++
	if t.missed {
		return nil
	}
	t.missed = true
	return t.report(Finding{at, Leaves, fmt.Sprintf("the leaves from line %d of %s on are gone, while the lines are there", seq, t.logID)})
}

// order holds the number of a line against those before it. It reports whether the line is the
// first with its number.
func (t *tree) order(at Place, seq int64) (fresh bool, err error) {
	switch {
	case seq == t.next:
		t.next++
		return true, nil
	case seq > t.next:
		g := gap{t.next, seq, t.last, at, t.lastSeq < 0}
		t.next = seq + 1
		if len(t.gaps) < mostGaps {
			t.gaps = append(t.gaps, g)
			return true, nil
		}
		return true, t.missing(g)
	case !t.fill(seq):
		return false, t.report(Finding{at, Extra, fmt.Sprintf("line %d of %s stands here a second time, or is made up", seq, t.logID)})
	case seq != t.lastSeq+1:
		return true, t.report(Finding{at, Order, fmt.Sprintf("line %d of %s stands behind line %d at %s", seq, t.logID, t.lastSeq, t.last)})
	}
	return true, nil
}

// fill takes a line out of the gap that it is in.
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

func (t *tree) missing(g gap) error {
	between := "before this one"
	if g.after.File != "" {
		between = "between " + g.after.String() + " and this one"
	}
	return t.report(Finding{g.before, Missing, fmt.Sprintf("lines %d to %d of %s are missing %s", g.from, g.to-1, t.logID, between)})
}

// behind takes a line behind the leaves that are confirmed.
func (t *tree) behind(at Place, seq int64, hash tlog.Hash) error {
	switch {
	case seq >= t.size:
		return nil
	case seq < t.gone:
		return t.withoutLeaf(at, seq)
	case t.broken || len(t.ahead) == 0 || seq != t.edge.Size():
		t.giveUp()
		t.totals.Unproven++
		return nil
	}
	if t.pending == 0 {
		t.from = at
	}
	t.edge.Append(hash)
	t.pending++
	next := t.ahead[0]
	if t.edge.Size() < next.size {
		return nil
	}
	if t.edge.Root() != next.root {
		t.giveUp()
		return t.report(Finding{at, Changed, fmt.Sprintf("a line from %s to this one is not as the checkpoint at %s has it", t.from, next.at)})
	}
	t.totals.Sealed += t.pending
	t.pending, t.ahead = 0, t.ahead[1:]
	return nil
}

// giveUp leaves the lines behind the confirmed leaves without proof from the last checkpoint on.
func (t *tree) giveUp() {
	t.broken = true
	t.totals.Unproven += t.pending
	t.pending = 0
}
