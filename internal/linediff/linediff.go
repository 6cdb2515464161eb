package linediff

import (
	"strings"

	"github.com/aymanbagabas/go-udiff/lcs"
)

// Hunk is a stretch of changed lines with some unchanged ones around them.
type Hunk struct {
	// From is the number of its first line in the old text, counted from 1. If the hunk has no line of
	// the text, it is the preceding line's.
	From int `json:"from_line"`
	// FromCount is how many lines of the old text it has.
	FromCount int `json:"from_count"`
	// To is the number of its first line in the new text, in the same way.
	To int `json:"to_line"`
	// ToCount is how many lines of the new text it has.
	ToCount int `json:"to_count"`
	// Lines are its lines without line ends. Each begins with "-" (old), "+" (new) or a space
	// (unchanged), as in a unified diff.
	Lines []string `json:"lines"`
}

// Compare returns the hunks that lead from the text a to the text b, each with up to context
// unchanged lines on either side. Texts with the same lines have no hunks. Lines end at CR, LF and
// CRLF, as in robots.txt files (RFC 9309 section 2.2). The edits are minimal if about a
// hundred suffice. Beyond that the search ends, and the unmatched lines are deleted and inserted.
func Compare(a, b []byte, context int) []Hunk {
	from, to := Lines(a), Lines(b)
	var list []Hunk
	for diffs := lcs.DiffLines(from, to); len(diffs) > 0; {
		n := 1
		for n < len(diffs) && diffs[n].Start-diffs[n-1].End <= 2*context {
			n++
		}
		list = append(list, hunk(from, to, diffs[:n], context))
		diffs = diffs[n:]
	}
	return list
}

// hunk makes one hunk of several changes, with the lines between and around them.
func hunk(a, b []string, diffs []lcs.Diff, context int) Hunk {
	at := max(diffs[0].Start-context, 0)
	h := Hunk{From: at, To: at + diffs[0].ReplStart - diffs[0].Start}
	for _, d := range diffs {
		h.add(keep, a[at:d.Start])
		h.add(remove, a[d.Start:d.End])
		h.add(insert, b[d.ReplStart:d.ReplEnd])
		at = d.End
	}
	h.add(keep, a[at:min(at+context, len(a))])
	h.From += min(h.FromCount, 1)
	h.To += min(h.ToCount, 1)
	return h
}

// What happens to a line.
const keep, remove, insert = " ", "-", "+"

func (h *Hunk) add(op string, lines []string) {
	for _, text := range lines {
		h.Lines = append(h.Lines, op+text)
	}
	if op != insert {
		h.FromCount += len(lines)
	}
	if op != remove {
		h.ToCount += len(lines)
	}
}

var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// Lines splits a text into lines. The end of the last line does not begin another line.
func Lines(text []byte) []string {
	if len(text) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(lineEnds.Replace(string(text)), "\n"), "\n")
}
