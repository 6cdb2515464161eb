package verify

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
)

// torn is the message of a line that a crash or a full disk cut off.
const torn = "torn"

// ages are what a tree's end is judged by. Its times are not those of notices, which are in UTC
// while other lines need not be.
type ages struct {
	first             Place
	newest            time.Time
	since             time.Time // the first line after the last checkpoint's notice
	open              Place     // the first unsealed line
	openSeq           int64
	terms             evidence.Terms // the last in a notice
	closedAt          Place          // the notice that closed the log, unless it was opened again
	after             Place          // the first line after it
	afterSeq, afterNo int64          // its number, and how many lines follow
	deleted           Place          // the last notice that the file was deleted
}

// pass records the age of a line, and whether the sealer could have written it there. After the
// newest checkpoint comes one notice of it.
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
	if seq == t.size { // a checkpoint covers the lines before it
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

// excess says why a crash cannot explain this many lines without a checkpoint: because of their
// number, or because they waited too long. It is empty if a crash can.
func (t *tree) excess(lines int64) (kind Kind, why string) {
	if most := t.terms.Crash(); lines > most {
		return Unsealed, fmt.Sprintf("a crash leaves at most %d", most)
	}
	if waited := t.newest.Sub(t.since); !t.since.IsZero() && waited > t.patience() {
		return Incomplete, fmt.Sprintf("they span %s, and a checkpoint comes within %s", waited.Round(time.Second), t.patience().Round(time.Second))
	}
	return "", ""
}

// readSays evaluates a notice. Anyone may have written what no checkpoint covers. Of such notices
// only two count: the size of a checkpoint, which must exist, and the checkpoint of a peer, which
// is signed.
func (c *Checker) readSays(t *tree, at Place, seq int64, says evidence.Notice) {
	covered := seq < t.size
	switch says.Msg {
	case "checkpoint":
		if says.Size > t.claimed {
			t.claimed, t.claimedAt = says.Size, at
		}
		if covered {
			t.since = time.Time{}
		}
		return
	case "opened": // a crash may have prevented the checkpoint that covers it
		t.closedAt = Place{}
	case "peer":
		if says.Note != "" {
			c.peer(at, says.Note)
		}
		return
	}
	if !covered {
		return
	}
	switch says.Msg {
	case "opened":
		if says.Reason != "" {
			c.begun(t, at, says)
		} else {
			t.late(at, says)
		}
	case "closed":
		t.closedAt = at
	case "deleted":
		t.deleted = at
	case "lost":
		c.report(Finding{at, Incomplete, fmt.Sprintf("the log could not be written: %d lines are missing here, from %.40s to %.40s", says.Lines, says.From, says.To)})
	}
}

// late judges the lines that a start has sealed late, by the terms before it. A crash leaves few
// such lines, from a short time.
func (t *tree) late(at Place, says evidence.Notice) {
	if says.Late != nil {
		from, n := says.Late.From, says.Late.To-says.Late.From
		t.totals.Late += max(n, 0)
		if kind, why := t.excess(n); why != "" {
			t.report(Finding{at, kind, fmt.Sprintf("a start has sealed %d lines of %s from number %d on, and no checkpoint vouches for them: %s", n, t.logID, from, why)})
		}
	}
	t.since = time.Time{}
}

// begun evaluates the first line of a generation.
func (c *Checker) begun(t *tree, at Place, says evidence.Notice) {
	t.totals.Began = says.Reason
	// Other reasons are about the key, the name and the state.
	if strings.Contains(says.Reason, evidence.ReasonSigned) || strings.Contains(says.Reason, evidence.ReasonUnsigned) {
		c.report(Finding{at, Reset, fmt.Sprintf("the log was not as signed when %s followed %.300s: %.300s", t.logID, says.Previous, says.Reason)})
	}
	before := c.trees[says.Previous]
	if id, err := evidence.ParseLogID(says.Previous); before == nil && err == nil && len(c.trees) < mostUnknown && evidence.WithoutGeneration(says.Previous) == evidence.WithoutGeneration(t.logID) && id.Generation < t.generation {
		c.tree(says.Previous).size = says.Size // its lines and its checkpoints are missing
	}
	if says.Size == 0 || before == nil || !t.follows(before) {
		return
	}
	p := checkpoint{size: says.Size, root: says.Root, at: at}
	switch {
	case p.size > before.size && before.claimed <= before.size:
		before.claimed, before.claimedAt = p.size, at
	case p.size < before.size:
		c.report(Finding{at, Checkpoint, fmt.Sprintf("the line says that the last checkpoint of %s has %d lines, and one of %d is signed", before.logID, p.size, before.size)})
	case p.size <= before.confirmed:
		before.within(p, func(p checkpoint) { before.report(before.forked(p, before.largestConfirmed())) })
	}
}

// openEnd judges the lines after the newest checkpoint, or after the notice that closed the log.
func (t *tree) openEnd(ended bool) {
	n := t.totals.Unsealed
	kind, why := t.excess(n)
	switch {
	case t.claimed > t.size: // a missing checkpoint is reported elsewhere, unless the log is being written
		return
	case t.afterNo > 0:
		t.report(Finding{t.after, Unsealed, fmt.Sprintf("%d lines of %s from number %d on are after its end at %s, and no line says that the log was opened again", t.afterNo, t.logID, t.afterSeq, t.closedAt)})
		return
	case n == 0:
		return
	case why != "" && ended:
		kind = Unsealed
	case ended:
		kind, why = Incomplete, "the gateway was killed before it could sign one"
	case why == "": // the log is being written, or ended in a crash
		return
	}
	t.report(Finding{t.open, kind, fmt.Sprintf("%d lines of %s from number %d on are in no checkpoint: %s", n, t.logID, t.openSeq, why)})
}

// grown reports whether the log is being written: the state now has the checkpoint that a notice
// claims.
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

// family returns the generations before and after a tree that have lines.
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

// logAges is the state shared by all generations of a log.
type logAges struct {
	oldest, newest time.Time
	file           string // of the last line
	files          int
	terms          []agreed
	inForce        evidence.Terms
	known, begun   int // the last generation that is given, and the last one with lines
}

// agreed are terms, with the first line that has them. dropped means that they explained that older
// lines are gone when other terms replaced them.
type agreed struct {
	evidence.Terms
	at      Place
	dropped bool
}

// mostTerms bounds how many terms are remembered. The first ones count, because later ones may cut
// them short.
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

// drop reports whether terms explain that lines before the oldest one are gone. An idle log may
// have lost a file that is older than its lines suggest.
func (l *logAges) drop(terms evidence.Terms) bool {
	age := l.newest.Sub(l.oldest).Hours() / 24
	return terms.Files > 0 && l.files > terms.Files || terms.Days > 0 && age >= 0.9*float64(terms.Days)
}

// begins judges a log whose first lines are missing: its terms must explain that, in order, up to
// the ones that dropped them.
func (c *Checker) begins(t *tree, lines int64, at Place) {
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
		return
	case short != nil:
		kind, why = Incomplete, fmt.Sprintf("%s; %s cuts that short", why, short.at)
	}
	c.report(Finding{at, kind, fmt.Sprintf("the first %d lines of %s are missing: %s", lines, t.logID, why)})
}
