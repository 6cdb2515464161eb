package seal

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
)

// ownLogger marks the lines that the writer of the evidence adds to the log.
const ownLogger = `"logger":"crawlgate.evidence"`

// said is what a line of the writer says.
type said struct {
	Msg, Reason, Note, Previous string
	Size, Lines                 int64
	From, To                    json.RawMessage // numbers, or times
	Root                        tlog.Hash
	Robots                      json.RawMessage // of a line that only looks like one of the writer's
}

func readSaid(line []byte) (says said) {
	if !bytes.Contains(line, []byte(ownLogger)) || json.Unmarshal(line, &says) != nil {
		return said{}
	}
	return says
}

// ages is what a tree is judged by at its end. Times are those of lines of others alone: the
// writer's are in UTC, and theirs need not be.
type ages struct {
	first          Place
	oldest, newest time.Time
	since          time.Time     // the first line behind the last checkpoint
	slowest        time.Duration // from such a line to the last one that its checkpoint has
	open           Place         // the first line that is not sealed
	openSeq        int64
	openSince      time.Time
	shut           Place // the line that closed the log, if none has opened it again
	shutSeq        int64
	deleted        Place // the last line that says that the file was deleted
}

// pass notes the age of a line.
func (t *tree) pass(at Place, seq int64) {
	if t.first.File == "" {
		t.first = at
	}
	if t.own {
		return
	}
	switch {
	case seq < t.size:
		t.shut = Place{} // a checkpoint has what came after the end
	case t.open.File == "":
		t.open, t.openSeq, t.openSince = at, seq, t.when
	}
	if !t.when.IsZero() {
		t.newest = t.when
		t.oldest, t.since = earliest(t.oldest, t.when), earliest(t.since, t.when)
	}
}

func earliest(known, other time.Time) time.Time {
	if known.IsZero() || !other.IsZero() && other.Before(known) {
		return other
	}
	return known
}

// patience is how long a line may wait for its checkpoint: a multiple of the longest wait that is
// sealed or, before there is one, the longest time that can be configured.
func (t *tree) patience() time.Duration {
	if t.slowest == 0 {
		return time.Hour
	}
	return max(time.Minute, 4*t.slowest)
}

// heed takes what a line of the writer says.
func (c *Checker) heed(t *tree, at Place, seq int64, says said) error {
	switch says.Msg {
	case "checkpoint":
		if says.Size > t.told {
			t.told, t.toldAt = says.Size, at
		}
		if seq < t.size && !t.since.IsZero() {
			t.slowest = max(t.slowest, t.newest.Sub(t.since))
		}
		t.since = time.Time{}
	case "resumed":
		return t.resumed(at, says)
	case "generation":
		return c.begun(t, at, says)
	case "closed":
		t.shut, t.shutSeq = at, seq
	case "deleted":
		t.deleted = at
	case "lost":
		return c.report(Finding{at, Incomplete, fmt.Sprintf("the log could not be written: %d lines are missing here, of the time from %.40s to %.40s", says.Lines, says.From, says.To)})
	case "peer":
		if says.Note != "" {
			return c.peer(at, says.Note)
		}
	}
	return nil
}

// resumed takes a line about lines that a start has sealed. A crash leaves those of a short time.
func (t *tree) resumed(at Place, says said) error {
	var from, to int64
	if json.Unmarshal(says.From, &from) != nil || json.Unmarshal(says.To, &to) != nil {
		return nil //nolint:nilerror // no writer writes that
	}
	t.totals.Late += max(to-from, 0)
	t.shut = Place{}
	late, waited := t.newest.Sub(t.since), !t.since.IsZero()
	t.since = time.Time{}
	if waited && late > t.patience() {
		return t.report(Finding{at, Incomplete, fmt.Sprintf("a start has sealed lines %d to %d of %s, of %s: a crash leaves %s at most, so nobody vouches for them", from, to-1, t.identity, late.Round(time.Second), t.patience().Round(time.Second))})
	}
	return nil
}

// begun takes the first line of a generation.
func (c *Checker) begun(t *tree, at Place, says said) error {
	t.totals.Began = says.Reason
	// Other reasons are about the key, the name and the state, or that a file of the log was not found:
	// if it is gone its lines are, and a rotation by another program renames it.
	if strings.Contains(says.Reason, evidence.ReasonSigned) || strings.Contains(says.Reason, evidence.ReasonUnsigned) {
		if err := c.report(Finding{at, Reset, fmt.Sprintf("the log was not as signed when %s began behind %.300s: %.300s", t.identity, says.Previous, says.Reason)}); err != nil {
			return err
		}
	}
	before := c.trees[says.Previous]
	if says.Size == 0 || before == nil || !t.follows(before) {
		return nil
	}
	p := checkpoint{size: says.Size, root: says.Root, at: at}
	switch {
	case p.size > before.size && before.told <= before.size:
		before.told, before.toldAt = p.size, at
	case p.size < before.size:
		return c.report(Finding{at, Head, fmt.Sprintf("the line says that the last checkpoint of %s has %d lines, and one of %d is signed", before.identity, p.size, before.size)})
	case p.size <= before.confirmed:
		return before.within(p, func(p checkpoint) error { return before.fork(p, fmt.Sprintf("that of %d lines", before.confirmed)) })
	}
	return nil
}

// openEnd judges the lines behind the newest checkpoint: they are as they should be only at the end
// of a log that is being written. A crash may leave some in a generation that has ended.
func (t *tree) openEnd(ended bool) error {
	waited, kind := t.newest.Sub(t.openSince), Incomplete
	long := !t.openSince.IsZero() && waited > t.patience()
	var why string
	switch {
	case t.totals.Unsealed == 0 || t.told > t.size: // that a checkpoint is gone is said
		return nil
	case t.shut.File != "" && t.openSeq > t.shutSeq:
		why = "they stand behind the end at " + t.shut.String() + ", and no line says that the log was opened again"
	case long:
		why = fmt.Sprintf("they are of %s, a checkpoint comes within %s", waited.Round(time.Second), t.patience().Round(time.Second))
	case ended:
		why = "the gateway was killed before it could sign one"
	default:
		return nil
	}
	if ended {
		why += "; a later generation has begun"
		if long || t.shut.File != "" {
			kind = Unsealed
		}
	}
	return t.report(Finding{t.open, kind, fmt.Sprintf("%d lines of %s from number %d on are in no checkpoint: %s", t.totals.Unsealed, t.identity, t.openSeq, why)})
}

// family gives generations of the log of a tree, before and behind it, of which there are lines,
// and the time that all of them span.
func (c *Checker) family(t *tree) (earlier, later *tree, span time.Duration) {
	oldest, newest := t.oldest, t.newest
	for _, other := range c.sorted() {
		switch {
		case other.lastSeq < 0 || other.tiles == "":
			continue
		case t.follows(other):
			earlier = other
		case other.follows(t):
			later = cmp.Or(later, other)
		default:
			continue
		}
		if oldest = earliest(oldest, other.oldest); other.newest.After(newest) {
			newest = other.newest
		}
	}
	return earlier, later, newest.Sub(oldest)
}

// begins judges that a log does not begin with its first line: the lines there have to go back as
// far as the operator keeps them.
func (c *Checker) begins(t *tree, span time.Duration, lines int64, at Place) error {
	if c.kept > 0 && span >= c.kept {
		t.totals.Expired += lines
		return nil
	}
	why := "; if they are no longer kept, --kept says for how long lines are"
	switch {
	case t.deleted.File != "":
		why = ": their file was deleted while it was written, as the line " + t.deleted.String() + " says"
	case c.kept > 0:
		why = fmt.Sprintf(": the log goes back %s, and is kept for %s", span.Round(time.Second), c.kept)
	}
	return c.report(Finding{at, Incomplete, fmt.Sprintf("the first %d lines of %s are missing%s", lines, t.identity, why)})
}
