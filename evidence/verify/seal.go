package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// Kind classifies findings. The set is closed and its spellings are stable; docs/audit.md has a row
// for each.
type Kind string

const (
	// Missing are lines that are missing between two others.
	Missing Kind = "seal_missing"
	// Changed is a line, or one line of several, whose bytes differ from those that were sealed.
	Changed Kind = "seal_changed"
	// Order is a line that comes after one that was written later.
	Order Kind = "seal_order"
	// Extra is a line that the gateway did not write there.
	Extra Kind = "seal_extra"
	// Tail are lines missing at the end of the log, which a signed checkpoint covers.
	Tail Kind = "seal_tail"
	// Fork is two signed checkpoints that exclude each other.
	Fork Kind = "seal_fork"
	// Leaves are leaf hashes that contradict the signed checkpoints, or that are gone.
	Leaves Kind = "seal_leaves"
	// Checkpoint is a checkpoint that is missing, or that its key has not signed.
	Checkpoint Kind = "seal_head"
	// Unsealed are lines after the last checkpoint, if a crash does not explain them.
	Unsealed Kind = "seal_unsealed"
	// Reset is a generation whose first line says that the log contradicted the one before.
	Reset Kind = "seal_reset"
	// Incomplete contradicts nothing: the log itself says that lines are missing or not proven. It is
	// not one of Kinds.
	Incomplete Kind = "incomplete"
)

// Kinds lists all kinds, in the order of their documentation.
func Kinds() []Kind {
	return []Kind{Missing, Changed, Order, Extra, Tail, Fork, Leaves, Checkpoint, Unsealed, Reset}
}

// Place is a line of a log, or a checkpoint of a file of them, counted from 1.
type Place struct {
	// File is the path of the log.
	File string `json:"file"`
	// Line is counted from 1. 0 stands for the file as a whole.
	Line int64 `json:"line"`
}

func (p Place) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Finding is a contradiction to the checkpoints.
type Finding struct {
	Place
	Kind Kind
	// Message is human-readable.
	Message string
}

// Totals sum up the seals of the logs.
type Totals struct {
	// WithoutSeal are the lines before the first sealed one, from a time without evidence.
	WithoutSeal int64 `json:"without_seal"`
	// PeersUnknown are checkpoints of other gateways that could not be checked, because the log or the
	// key of that gateway is not given.
	PeersUnknown int64 `json:"peers_unknown"`
	// Logs are the totals of each log, in the order of the names.
	Logs []LogTotals `json:"logs"`
}

// LogTotals are the totals of one generation of a log.
type LogTotals struct {
	// Log is the name and the generation of the log.
	Log string `json:"log"`
	// Sealed are lines that a signed checkpoint confirms.
	Sealed int64 `json:"sealed"`
	// Unsealed are lines after the newest checkpoint. Its own notice does not count.
	Unsealed int64 `json:"unsealed"`
	// Unproven are lines before the newest checkpoint whose hashes are gone or wrong.
	Unproven int64 `json:"unproven"`
	// Late are lines that a later process sealed than the one that wrote them.
	Late int64 `json:"sealed_late"`
	// Expired are the first lines of the log, if its own terms explain that they are gone.
	Expired int64 `json:"expired"`
	// Checkpoints is how many checkpoints have a good signature.
	Checkpoints int64 `json:"checkpoints"`
	// Size is the number of lines of the largest checkpoint.
	Size int64 `json:"size"`
	// Peers is how many checkpoints of this log, with a good signature, the logs of other gateways
	// have.
	Peers int64 `json:"peers"`
	// Began says why the generation began, according to its first line.
	Began string `json:"began,omitempty"`
	// Key is the verifier key.
	Key string `json:"key"`
	// KeyGiven says that the key was given, and not read from the folder of evidence.
	KeyGiven bool `json:"key_given"`
	// KeptElsewhere says that a checkpoint of the log was kept elsewhere and given.
	KeptElsewhere bool `json:"kept_elsewhere"`
}

// Checker checks logs line by line. It must not be used by several goroutines at once. Its memory
// does not grow with the logs.
type Checker struct {
	trees  map[string]*tree
	logs   map[string]*logAges // by log ID without the generation
	series map[int]*series
	keys   *keyring
	report func(Finding)
	totals Totals
}

// mostUnknown bounds the logs and generations without a known checkpoint that are tracked.
const mostUnknown = 10_000

// series is the state of consecutive files.
type series struct {
	current *tree // of the last line with a seal; nil before the first
	// lines is how many lines came before the first seal. place and hash belong to the last one.
	lines int64
	place Place
	hash  tlog.Hash
}

// Line checks the next line, with or without its newline, and its time, which may be zero. number
// identifies the files that it belongs to, because lines of several logs may be interleaved.
func (c *Checker) Line(number int, at Place, line []byte, when time.Time) {
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
		return
	case !ok:
		c.withoutSeal(s.current, at, line, hash)
		return
	}
	t := c.trees[id]
	if t == nil {
		c.report(Finding{at, Checkpoint, fmt.Sprintf("no checkpoint is known for the log %.300s", id)})
		if len(c.trees) >= mostUnknown {
			return
		}
		t = c.tree(id)
	}
	if t.log.begun > t.generation && seq >= t.size { // the generation has ended
		c.report(Finding{at, Extra, fmt.Sprintf("line %d of %s comes after its end: a later generation has begun", seq, id)})
		return
	}
	if s.current == nil && s.lines > 0 && seq > 0 {
		c.first(s, t, seq)
	}
	if s.current != t && seq == t.next {
		t.log.begun = max(t.log.begun, t.generation)
	}
	s.current = t
	t.says, t.when = evidence.ReadNotice(line), when
	c.readSays(t, at, seq, t.says)
	t.place(at, seq, hash)
}

// follows reports whether t is a later generation of the same log as other.
func (t *tree) follows(other *tree) bool {
	return t.log == other.log && t.generation > other.generation
}

// withoutSeal checks a line without a seal, after a sealed one: the tree has part of a line that a
// crash cut off. The sealer gives every whole object a seal.
func (c *Checker) withoutSeal(t *tree, at Place, line []byte, hash tlog.Hash) {
	t.says, t.when = evidence.Notice{Msg: torn}, time.Time{}
	seq := t.lastSeq + 1
	leaf, err := t.leaf(seq)
	if seq < t.confirmed && (err != nil || leaf != hash) || seq >= t.size && json.Valid(line) && line[0] == '{' {
		c.report(Finding{at, Extra, "the line has no seal, and is in no checkpoint"})
		return
	}
	t.place(at, seq, hash)
}

// first checks the line before the first seal, if that seal is not the log's first: a file may
// begin with part of a line.
func (c *Checker) first(s *series, t *tree, seq int64) {
	if leaf, err := t.leaf(seq - 1); seq <= t.confirmed && err == nil && leaf == s.hash && s.lines == 1 {
		s.lines = 0
		t.place(s.place, seq-1, leaf)
		return
	}
	c.report(Finding{s.place, Extra, "the line has no seal, and the log has sealed lines before it"})
}

// End reports the findings that only the end of all logs shows, and returns the totals.
func (c *Checker) End() Totals {
	for _, s := range c.series {
		c.totals.WithoutSeal += s.lines
	}
	for _, t := range c.sorted() {
		c.end(t)
		t.totals.Size = t.size
		c.totals.Logs = append(c.totals.Logs, t.totals)
	}
	return c.totals
}

func (c *Checker) end(t *tree) {
	t.giveUp()
	if t.size == 0 && t.tiles == "" && t.largestPeer.size == 0 {
		return // its first line was reported already
	}
	earlier, later := c.family(t)
	for _, g := range t.gaps {
		if g.atBegin && g.to <= t.confirmed && earlier == nil {
			c.begins(t, g.to-g.from, g.before)
		} else {
			t.missing(g)
		}
	}
	t.openEnd(later != nil)
	if t.claimed > t.size && !c.grown(t) {
		message := fmt.Sprintf("the line mentions a checkpoint of %d lines, but the largest that is kept has %d", t.claimed, t.size)
		c.report(Finding{t.claimedAt, Checkpoint, message})
	}
	t.checkPeers()
	switch {
	case t.next >= t.size:
		return
	case t.next == 0 && later != nil:
		c.begins(t, t.size, later.first)
		return
	}
	message := fmt.Sprintf("of the log %s, lines %d to %d are missing: cut off, or their file is not given", t.logID, t.next, t.size-1)
	if t.largestPeer.size == t.size {
		message += "; their checkpoint is in the line " + t.largestPeer.at.String()
	}
	if t.lastSeq < 0 {
		t.last = t.largestPeer.at
	}
	c.report(Finding{t.last, Tail, message})
}
