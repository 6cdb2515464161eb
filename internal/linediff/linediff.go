// Package linediff compares two texts line by line, within bounds of time and memory that hold for every input.
package linediff

import (
	"bytes"
	"slices"
)

// Op says what becomes of a line.
type Op byte

// The operations, as a unified diff writes them.
const (
	Keep   Op = ' '
	Delete Op = '-'
	Insert Op = '+'
)

// Line is one line of a comparison.
type Line struct {
	Op   Op
	Text string
}

// Hunk is a stretch of changed lines with some unchanged ones around them.
type Hunk struct {
	// From and To are the numbers of its first line in the old and the new text, from 1; where it has no line of a text,
	// that of the line before.
	From, To int
	// FromCount and ToCount are how many lines of each text it has.
	FromCount, ToCount int
	Lines              []Line
}

const (
	// maxEdits and maxWork bound the search for the shortest script: beyond them the changed middle of the texts is given
	// as deleted and inserted as a whole, which is still true.
	maxEdits = 1000
	minEdits = 16
	maxWork  = 20_000_000
)

// Split cuts a text at CR, LF and CRLF, as robots.txt files are (RFC 9309 section 2.2). The end of the last line begins
// no further one.
func Split(text []byte) []string {
	var lines []string
	for len(text) > 0 {
		end := bytes.IndexAny(text, "\r\n")
		if end < 0 {
			return append(lines, string(text))
		}
		lines = append(lines, string(text[:end]))
		if text[end] == '\r' && end+1 < len(text) && text[end+1] == '\n' {
			end++
		}
		text = text[end+1:]
	}
	return lines
}

// Compare returns the hunks that lead from the lines a to the lines b, each with up to context unchanged lines on either
// side. Equal texts have none.
func Compare(a, b []string, context int) []Hunk {
	return hunks(script(a, b), min(max(context, 0), len(a)+len(b)))
}

// script returns all lines of both texts in order.
func script(a, b []string) []Line {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	lines := make([]Line, 0, max(len(a), len(b)))
	for _, s := range a[:head] {
		lines = append(lines, Line{Keep, s})
	}
	lines = middle(lines, a[head:len(a)-tail], b[head:len(b)-tail])
	for _, s := range a[len(a)-tail:] {
		lines = append(lines, Line{Keep, s})
	}
	return lines
}

// middle appends the script of two texts that differ at both ends.
func middle(lines []Line, a, b []string) []Line {
	trace, ok := search(number(a, b))
	if !ok {
		for _, s := range a {
			lines = append(lines, Line{Delete, s})
		}
		for _, s := range b {
			lines = append(lines, Line{Insert, s})
		}
		return lines
	}
	start := len(lines)
	x, y := len(a), len(b)
	for d := range slices.Backward(trace) {
		px, py := 0, 0
		if d > 0 {
			px, py = trace[d-1].before(d, x-y)
		}
		for x > px && y > py {
			x, y = x-1, y-1
			lines = append(lines, Line{Keep, a[x]})
		}
		switch {
		case d == 0:
		case x > px:
			x--
			lines = append(lines, Line{Delete, a[x]})
		default:
			y--
			lines = append(lines, Line{Insert, b[y]})
		}
	}
	slices.Reverse(lines[start:])
	return lines
}

// number gives equal lines equal numbers, which compare at once.
func number(a, b []string) (na, nb []int32) {
	ids := make(map[string]int32)
	of := func(lines []string) []int32 {
		list := make([]int32, len(lines))
		for i, s := range lines {
			id, ok := ids[s]
			if !ok {
				id = int32(len(ids))
				ids[s] = id
			}
			list[i] = id
		}
		return list
	}
	return of(a), of(b)
}

// front holds, for d edits, the furthest x on each of the diagonals -d, -d+2, …, d (x-y of a point).
type front []int32

func (f front) x(d, k int) int { return int(f[(k+d)/2]) }

// before returns the point from which the d-th edit led to diagonal k; f is the front of d-1 edits.
func (f front) before(d, k int) (x, y int) {
	if k == -d || k != d && f.x(d-1, k-1) < f.x(d-1, k+1) {
		x = f.x(d-1, k+1)
		return x, x - (k + 1)
	}
	x = f.x(d-1, k-1)
	return x, x - (k - 1)
}

// search is the greedy algorithm of Myers, "An O(ND) difference algorithm and its variations" (1986). It returns a front
// for each number of edits up to the least that suffices, and reports false if the bounds were reached first.
func search(a, b []int32) (trace []front, ok bool) {
	limit := min(maxEdits, max(minEdits, maxWork/(len(a)+len(b)+1)))
	for d := 0; d <= min(limit, len(a)+len(b)); d++ {
		f := make(front, d+1)
		trace = append(trace, f)
		for k := -d; k <= d; k += 2 {
			x := 0
			if d > 0 {
				px, py := trace[d-1].before(d, k)
				if x = px; k > px-py {
					x++
				}
			}
			y := x - k
			for x < len(a) && y >= 0 && y < len(b) && a[x] == b[y] {
				x, y = x+1, y+1
			}
			f[(k+d)/2] = int32(x)
			if x >= len(a) && y >= len(b) {
				return trace, true
			}
		}
	}
	return nil, false
}

// hunks groups the changed lines of a script.
func hunks(lines []Line, context int) (list []Hunk) {
	from, to := 0, 0 // lines of each text before lines[i]
	for i := 0; i < len(lines); {
		if lines[i].Op == Keep {
			i, from, to = i+1, from+1, to+1
			continue
		}
		lead := min(context, i)
		if n := len(list); n > 0 {
			last := list[n-1]
			lead = min(lead, from-(last.From-1+last.FromCount))
		}
		end := stretch(lines, i, context)
		h := Hunk{From: from - lead, To: to - lead, Lines: lines[i-lead : end]}
		for _, l := range h.Lines {
			if l.Op != Insert {
				h.FromCount++
			}
			if l.Op != Delete {
				h.ToCount++
			}
		}
		from, to = h.From+h.FromCount, h.To+h.ToCount
		if h.FromCount > 0 {
			h.From++
		}
		if h.ToCount > 0 {
			h.To++
		}
		list = append(list, h)
		i = end
	}
	return list
}

// stretch returns the end of the hunk whose first change is lines[i]: changes with no more than twice the context
// between them belong together.
func stretch(lines []Line, i, context int) int {
	end, kept := i+1, 0
	for j := i + 1; j < len(lines); j++ {
		if lines[j].Op != Keep {
			end, kept = j+1, 0
			continue
		}
		if kept++; kept > 2*context {
			break
		}
	}
	return min(end+context, len(lines))
}
