package verify

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
)

// readNotice reads what a line says if it is the writer's.
func readNotice(line []byte) (says evidence.Notice) {
	if !bytes.Contains(line, []byte(`"logger":"`+evidence.Logger+`"`)) || json.Unmarshal(line, &says) != nil || says.Robots != nil {
		return evidence.Notice{}
	}
	return says
}

// torn stands for what the writer says in a line that is none: a crash or a full disk cut it off.
const torn = "torn"

// ages is what a tree is judged by at its end. Times are those of lines of others alone: the
// writer's are in UTC, and theirs need not be.
type ages struct {
	first             Place
	newest            time.Time
	since             time.Time // the first line behind the line of the last checkpoint
	open              Place     // the first line that is not sealed
	openSeq           int64
	terms             evidence.Terms // the last that a line has
	closedAt          Place          // the line that closed the log, if none has opened it again
	after             Place          // the first line behind it
	afterSeq, afterNo int64          // its number, and how many lines stand there
	deleted           Place          // the last line that says that the file was deleted
}

// pass notes the age of a line, and whether it stands where the writer would not write it. Behind
// the newest checkpoint there is one line that tells of it.
func (t *tree) pass(at Place, seq int64) {
	if t.first.File == "" {
		t.first = at
	}
	tells := t.says.Msg == "checkpoint"
	if t.closedAt.File != "" && t.closedAt != at && !tells && t.says.Msg != torn {
		if t.afterNo++; t.afterNo == 1 {
			t.after, t.afterSeq = at, seq
		}
	}
	switch {
	case seq < t.size:
	case tells && t.says.Size == t.size && !t.excused:
		t.excused = true
	default:
		if t.totals.Unsealed++; t.totals.Unsealed == 1 {
			t.open, t.openSeq = at, seq
		}
	}
	if seq == t.size { // the lines before it have their checkpoint
		t.since = time.Time{}
	}
	l := t.log
	if t.says.Terms != nil && seq < t.size {
		t.terms = *t.says.Terms
		l.agree(at, t.terms)
	}
	if l.file != at.File {
		l.file, l.files = at.File, l.files+1
	}
	if t.says.Msg == "" && !t.when.IsZero() {
		t.newest, l.newest = t.when, t.when
		t.since, l.oldest = earliest(t.since, t.when), earliest(l.oldest, t.when)
	}
}

func earliest(known, other time.Time) time.Time {
	if known.IsZero() || !other.IsZero() && other.Before(known) {
		return other
	}
	return known
}

// patience is how long a line may wait for its checkpoint.
func (t *tree) patience() time.Duration {
	if t.terms.Every == 0 {
		return time.Hour // the longest that can be configured
	}
	return max(time.Minute, time.Duration(4*t.terms.Every*float64(time.Second)))
}

// excess says why a crash alone does not leave so many lines without a checkpoint: by their number,
// or by how long they have waited for one. It is empty if a crash may.
func (t *tree) excess(lines int64) (kind Kind, why string) {
	if most := t.terms.Crash(); lines > most {
		return Unsealed, fmt.Sprintf("a crash leaves at most %d", most)
	}
	if waited := t.newest.Sub(t.since); !t.since.IsZero() && waited > t.patience() {
		return Incomplete, fmt.Sprintf("they are of %s, and a checkpoint comes within %s", waited.Round(time.Second), t.patience().Round(time.Second))
	}
	return "", ""
}

// readSays takes what a line of the writer says. What no checkpoint has, anyone may have written:
// of that only the size of a checkpoint counts, which is found if it is not there, and that of a
// peer, which is signed.
func (c *Checker) readSays(t *tree, at Place, seq int64, says evidence.Notice) error {
	if says.Msg == "checkpoint" {
		if says.Size > t.claimed {
			t.claimed, t.claimedAt = says.Size, at
		}
		if seq < t.size {
			t.since = time.Time{}
		}
	}
	if says.Msg == "opened" { // a crash may come before the checkpoint that covers it
		t.closedAt = Place{}
	}
	if says.Msg == "peer" && says.Note != "" {
		return c.peer(at, says.Note)
	}
	if seq >= t.size {
		return nil
	}
	switch says.Msg {
	case "opened":
		if says.Reason != "" {
			return c.begun(t, at, says)
		}
		return t.late(at, says)
	case "closed":
		t.closedAt = at
	case "deleted":
		t.deleted = at
	case "lost":
		return c.report(Finding{at, Incomplete, fmt.Sprintf("the log could not be written: %d lines are missing here, of the time from %.40s to %.40s", says.Lines, says.From, says.To)})
	}
	return nil
}

// late takes what a start says of lines that it has sealed, which is judged by the terms of before.
// A crash leaves few of them, and of a short time.
func (t *tree) late(at Place, says evidence.Notice) error {
	defer func() { t.since = time.Time{} }()
	if says.Late == nil {
		return nil
	}
	from, n := says.Late.From, says.Late.To-says.Late.From
	t.totals.Late += max(n, 0)
	kind, why := t.excess(n)
	if why == "" {
		return nil
	}
	return t.report(Finding{at, kind, fmt.Sprintf("a start has sealed %d lines of %s from number %d on, for which nobody vouches: %s", n, t.logID, from, why)})
}

// begun takes the first line of a generation.
func (c *Checker) begun(t *tree, at Place, says evidence.Notice) error {
	t.totals.Began = says.Reason
	// Other reasons are about the key, the name and the state.
	if strings.Contains(says.Reason, evidence.ReasonSigned) || strings.Contains(says.Reason, evidence.ReasonUnsigned) {
		if err := c.report(Finding{at, Reset, fmt.Sprintf("the log was not as signed when %s began behind %.300s: %.300s", t.logID, says.Previous, says.Reason)}); err != nil {
			return err
		}
	}
	before := c.trees[says.Previous]
	if id, err := evidence.ParseLogID(says.Previous); before == nil && err == nil && len(c.trees) < mostUnknown && evidence.WithoutGeneration(says.Previous) == evidence.WithoutGeneration(t.logID) && id.Generation < t.generation {
		c.tree(says.Previous).size = says.Size // its lines are missing, and what was signed of them too
	}
	if says.Size == 0 || before == nil || !t.follows(before) {
		return nil
	}
	p := checkpoint{size: says.Size, root: says.Root, at: at}
	switch {
	case p.size > before.size && before.claimed <= before.size:
		before.claimed, before.claimedAt = p.size, at
	case p.size < before.size:
		return c.report(Finding{at, Checkpoint, fmt.Sprintf("the line says that the last checkpoint of %s has %d lines, and one of %d is signed", before.logID, p.size, before.size)})
	case p.size <= before.confirmed:
		return before.within(p, func(p checkpoint) error { return before.fork(p, fmt.Sprintf("that of %d lines", before.confirmed)) })
	}
	return nil
}

// openEnd judges what stands behind the newest checkpoint or behind the line that closed the log.
func (t *tree) openEnd(ended bool) error {
	n := t.totals.Unsealed
	kind, why := t.excess(n)
	switch {
	case t.claimed > t.size: // that a checkpoint is gone is said, unless the log is being written
		return nil
	case t.afterNo > 0:
		return t.report(Finding{t.after, Unsealed, fmt.Sprintf("%d lines of %s from number %d on stand behind its end at %s, and no line says that the log was opened again", t.afterNo, t.logID, t.afterSeq, t.closedAt)})
	case n == 0:
		return nil
	case why != "" && ended:
		kind = Unsealed
	case ended:
		kind, why = Incomplete, "the gateway was killed before it could sign one"
	case why == "": // it is being written, or ended in a crash
		return nil
	}
	return t.report(Finding{t.open, kind, fmt.Sprintf("%d lines of %s from number %d on are in no checkpoint: %s", n, t.logID, t.openSeq, why)})
}

// grown reports whether the state has got the checkpoint that a line tells of since it was read:
// the log is being written.
func (c *Checker) grown(t *tree) bool {
	if t.tiles == "" {
		return false
	}
	f, err := os.Open(filepath.Join(string(t.tiles), "heads"))
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }() // it was only read
	for h, err := range evidence.ReadCheckpoints(f, c.keys) {
		if err == nil && h.LogID == t.logID && h.Size >= t.claimed {
			return true
		}
	}
	return false
}

// family gives the generations before and behind a tree, in the same log, that have lines.
func (c *Checker) family(t *tree) (earlier, later *tree) {
	for _, other := range c.sorted() {
		switch {
		case other.lastSeq < 0 || other.tiles == "":
		case t.follows(other):
			earlier = other
		case other.follows(t):
			later = cmp.Or(later, other)
		}
	}
	return earlier, later
}

// logAges is what is known of all generations of a log.
type logAges struct {
	oldest, newest time.Time
	file           string // of the last line
	files          int
	terms          []agreed
	inForce        evidence.Terms
	known, begun   int // the last generation that is given, and the last of which lines have come
}

// agreed are terms, with the first line that has them. They have dropped what was before the oldest
// line if they explained that when others took their place.
type agreed struct {
	evidence.Terms
	at      Place
	dropped bool
}

// mostTerms bounds what is remembered of a log. The first are the ones that later ones may cut
// short.
const mostTerms = 100

func (l *logAges) agree(at Place, terms evidence.Terms) {
	if l.inForce == terms {
		return
	}
	for i, a := range l.terms {
		l.terms[i].dropped = a.dropped || a.Terms == l.inForce && l.drop(l.inForce)
	}
	if l.inForce = terms; len(l.terms) < mostTerms && !slices.ContainsFunc(l.terms, func(a agreed) bool { return a.Terms == terms }) {
		l.terms = append(l.terms, agreed{Terms: terms, at: at})
	}
}

// drop reports whether a log under terms would have dropped what was before its oldest line. That
// may be younger than the file before it, if the log was idle.
func (l *logAges) drop(terms evidence.Terms) bool {
	age := l.newest.Sub(l.oldest).Hours() / 24
	return terms.Files > 0 && l.files > terms.Files || terms.Days > 0 && age >= 0.9*float64(terms.Days)
}

// begins judges that a log does not begin with its first line: the terms that its lines have must
// explain that, from the first on until some have dropped it.
func (c *Checker) begins(t *tree, lines int64, at Place) error {
	l, kind, why := t.log, Missing, "no line says for how long lines are kept"
	var long, short *agreed
	for i, a := range l.terms {
		if a.dropped || l.drop(a.Terms) {
			short = &l.terms[i]
		} else if long == nil {
			long = &l.terms[i]
			why = fmt.Sprintf("it goes back %.1f days in %d files, and %s says that it is kept for %d days in %d files besides the newest, 0 for any number",
				l.newest.Sub(l.oldest).Hours()/24, l.files, a.at, a.Days, a.Files)
		}
		if a.dropped && long == nil {
			break
		}
	}
	switch {
	case t.deleted.File != "":
		kind, why = Incomplete, fmt.Sprintf("their file was deleted while it was written, as %s says", t.deleted)
	case short != nil && long == nil:
		t.totals.Expired += lines
		return nil
	case short != nil:
		kind, why = Incomplete, fmt.Sprintf("%s; %s cuts that short", why, short.at)
	}
	return c.report(Finding{at, kind, fmt.Sprintf("the first %d lines of %s are missing: %s", lines, t.logID, why)})
}
