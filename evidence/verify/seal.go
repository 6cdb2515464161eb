// Package verify holds the lines of access logs against the signed checkpoints of package evidence,
// and names those that are missing, changed, out of order or added.
//
// The leaves that the writer keeps beside a log are checked against the checkpoints first. They
// then tell the hash of each line, so that a finding has a file and a line. Lines behind the last
// leaf that a checkpoint confirms are checked together, from checkpoint to checkpoint.
// docs/audit.md has what each finding means, and what no seal can prove.
package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// Kind says what is wrong. The set is closed and its spellings are stable; docs/audit.md has a row
// for each.
type Kind string

const (
	// Missing are lines between two others that are not there.
	Missing Kind = "seal_missing"
	// Changed is a line, or one of some, with other bytes than those that were sealed.
	Changed Kind = "seal_changed"
	// Order is a line that stands behind one that was written after it.
	Order Kind = "seal_order"
	// Extra is a line that was not written there.
	Extra Kind = "seal_extra"
	// Tail are lines at the end that a signed checkpoint has and the log has not.
	Tail Kind = "seal_tail"
	// Fork are two signed checkpoints of which each excludes the other.
	Fork Kind = "seal_fork"
	// Leaves are hashes beside the log that no signed checkpoint bears out.
	Leaves Kind = "seal_leaves"
	// Checkpoint is a checkpoint that its key has not signed, or that is not there any more.
	Checkpoint Kind = "seal_head"
	// Unsealed are lines behind the last checkpoint of a log that nobody goes on with.
	Unsealed Kind = "seal_unsealed"
	// Reset is a generation that says that the log was not what was signed of the one before.
	Reset Kind = "seal_reset"
	// Incomplete is no contradiction: the log says that lines are missing or not proven. It is none of
	// Kinds.
	Incomplete Kind = "incomplete"
)

// Kinds lists all kinds, in the order of their documentation.
func Kinds() []Kind {
	return []Kind{Missing, Changed, Order, Extra, Tail, Fork, Leaves, Checkpoint, Unsealed, Reset}
}

// Place is a line of a log, or a checkpoint of a file of them, counted from 1.
type Place struct {
	File string `json:"file"`
	Line int64  `json:"line"`
}

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Finding is what contradicts the checkpoints.
type Finding struct {
	Place
	Kind Kind
	// Message is for people.
	Message string
}

// Totals sum up the seals of the logs.
type Totals struct {
	// WithoutSeal are the lines before the first sealed one: of a time without evidence.
	WithoutSeal int64 `json:"without_seal"`
	// PeersUnknown are checkpoints of other gateways in the lines that were held against nothing: the
	// log of that gateway, or its key, is not given.
	PeersUnknown int64 `json:"peers_unknown"`
	// Logs are in the order of their names.
	Logs []LogTotals `json:"logs"`
}

// LogTotals are about one generation of a log.
type LogTotals struct {
	Log string `json:"log"`
	// Sealed lines are as a signed checkpoint has them. Unsealed are behind the newest one, but for
	// the line that tells of it. Unproven are between, but the hashes that would prove them are gone
	// or wrong.
	Sealed   int64 `json:"sealed"`
	Unsealed int64 `json:"unsealed"`
	Unproven int64 `json:"unproven"`
	// Late are lines that were sealed by the process after the one that wrote them.
	Late int64 `json:"sealed_late"`
	// Expired are the first lines of the log, which it no longer keeps by its own account.
	Expired int64 `json:"expired"`
	// Checkpoints are those with a good signature, Size is the number of lines of the newest.
	Checkpoints int64 `json:"checkpoints"`
	Size        int64 `json:"size"`
	// Peers are the checkpoints of this log, with a good signature, that lines of others have.
	Peers int64 `json:"peers"`
	// Began says why the generation began, as its first line has it.
	Began string `json:"began,omitempty"`
	// Key is the key that signs. KeyGiven says that it came from the caller and not from beside the
	// log.
	Key      string `json:"key"`
	KeyGiven bool   `json:"key_given"`
	// KeptElsewhere says that a checkpoint came from elsewhere too.
	KeptElsewhere bool `json:"kept_elsewhere"`
}

// Checker checks logs line by line. It is for one goroutine; its memory does not grow with the
// logs.
type Checker struct {
	trees  map[string]*tree
	logs   map[string]*logAges // by the identity without the generation
	series map[int]*series
	keys   *keyring
	report func(Finding) error
	totals Totals
}

// mostUnknown bounds the logs and generations that are followed though no checkpoint is known of
// them.
const mostUnknown = 10_000

// series is how far the files have come that follow each other.
type series struct {
	current *tree // of the last line with a seal; nil before the first
	// lines came ahead of the first seal; place and hash are of the last of them.
	lines int64
	place Place
	hash  tlog.Hash
}

// Line takes the next line of the files that follow each other, with its end or without, and its
// time, which may be zero. Their number tells them from other such files, whose lines may come in
// between.
func (c *Checker) Line(number int, at Place, line []byte, when time.Time) error {
	s := c.series[number]
	if s == nil {
		s = new(series)
		c.series[number] = s
	}
	line = bytes.TrimSuffix(line, []byte("\n"))
	hash := tlog.RecordHash(line)
	id, seq, ok := evidence.ReadSeal(line)
	switch {
	case !ok && s.current == nil:
		s.lines++
		s.place, s.hash = at, hash
		return nil
	case !ok:
		return c.withoutSeal(s.current, at, line, hash)
	}
	t := c.trees[id]
	if t == nil {
		if err := c.report(Finding{at, Checkpoint, fmt.Sprintf("no checkpoint is known of the log %.300s", id)}); err != nil {
			return err
		}
		if _, err := evidence.ParseLogID(id); err != nil || len(c.trees) >= mostUnknown {
			return nil //nolint:nilerror // it is said above
		}
		t = c.tree(id)
	}
	if t.log.begun > t.generation && seq >= t.size { // nobody writes to it any more
		return c.report(Finding{at, Extra, fmt.Sprintf("line %d of %s stands behind its end: a later generation has begun", seq, id)})
	}
	if s.current == nil && s.lines > 0 && seq > 0 {
		if err := c.first(s, t, seq); err != nil {
			return err
		}
	}
	if s.current != t && seq == t.next {
		t.log.begun = max(t.log.begun, t.generation)
	}
	s.current = t
	t.says, t.when = readNotice(line), when
	if err := c.readSays(t, at, seq, t.says); err != nil {
		return err
	}
	return t.place(at, seq, hash)
}

// follows reports whether a tree is a later generation of the log of another one.
func (t *tree) follows(other *tree) bool {
	return t.log == other.log && t.generation > other.generation
}

// withoutSeal takes a line that has no seal, behind one that has: part of a line that was cut off
// in a crash is in the tree as it stands. Of a whole object the writer makes a line with a seal.
func (c *Checker) withoutSeal(t *tree, at Place, line []byte, hash tlog.Hash) error {
	t.says, t.when = evidence.Notice{Msg: torn}, time.Time{}
	seq := t.lastSeq + 1
	leaf, err := t.leaf(seq)
	if seq < t.confirmed && (err != nil || leaf != hash) || seq >= t.size && json.Valid(line) && line[0] == '{' {
		return c.report(Finding{at, Extra, "the line has no seal, and is in no checkpoint"})
	}
	return t.place(at, seq, hash)
}

// first takes the line before the first seal, if that is not the log's first: it may be the part of
// a line with which a file begins.
func (c *Checker) first(s *series, t *tree, seq int64) error {
	if leaf, err := t.leaf(seq - 1); seq <= t.confirmed && err == nil && leaf == s.hash && s.lines == 1 {
		s.lines = 0
		return t.place(s.place, seq-1, leaf)
	}
	return c.report(Finding{s.place, Extra, "the line has no seal, and the log has sealed lines before it"})
}

// End reports what only the end of all logs shows, and sums up.
func (c *Checker) End() (Totals, error) {
	for _, s := range c.series {
		c.totals.WithoutSeal += s.lines
	}
	for _, t := range c.sorted() {
		if err := c.end(t); err != nil {
			return c.totals, err
		}
		t.totals.Size = t.size
		c.totals.Logs = append(c.totals.Logs, t.totals)
	}
	return c.totals, nil
}

func (c *Checker) end(t *tree) error {
	t.giveUp()
	if t.size == 0 && t.tiles == "" && t.largestPeer.size == 0 {
		return nil // that nothing is known of it was found with its first line
	}
	earlier, later := c.family(t)
	for _, g := range t.gaps {
		if g.atBegin && g.to <= t.confirmed && earlier == nil {
			if err := c.begins(t, g.to-g.from, g.before); err != nil {
				return err
			}
			continue
		}
		if err := t.missing(g); err != nil {
			return err
		}
	}
	if err := t.openEnd(later != nil); err != nil {
		return err
	}
	if t.claimed > t.size && !c.grown(t) {
		message := fmt.Sprintf("the line tells of a checkpoint of %d lines, the largest of those that are kept has %d", t.claimed, t.size)
		if err := c.report(Finding{t.claimedAt, Checkpoint, message}); err != nil {
			return err
		}
	}
	if err := t.checkPeers(); err != nil {
		return err
	}
	switch {
	case t.next >= t.size:
		return nil
	case t.next == 0 && later != nil:
		return c.begins(t, t.size, later.first)
	}
	message := fmt.Sprintf("of the log %s, lines %d to %d are missing: cut off, or their file is not given", t.logID, t.next, t.size-1)
	if t.largestPeer.size == t.size {
		message += "; their checkpoint is in the line " + t.largestPeer.at.String()
	}
	if t.lastSeq < 0 {
		t.last = t.largestPeer.at
	}
	return c.report(Finding{t.last, Tail, message})
}
