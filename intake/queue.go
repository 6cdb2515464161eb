package intake

// Class says how soon a piece of work has its turn.
type Class uint8

// The classes, the most patient first.
const (
	Retrieval Class = iota // the start of a retrieval of robots.txt
	Newcomer               // a connection that began to speak less than a second ago
	Regular                // one that has spoken for longer

	classes
)

// ticket is what one piece of work waits for: it is closed when its turn has come.
type ticket chan struct{}

// queue holds what waits. The zero value is empty.
type queue struct{ lines [classes]line }

func (q *queue) add(c Class, t ticket) { q.lines[c].waiting = append(q.lines[c].waiting, t) }

func (q *queue) empty() bool {
	for i := range q.lines {
		if q.lines[i].len() > 0 {
			return false
		}
	}
	return true
}

// next takes up to n tickets out, of the better classes first. Of n, which must not be less than there are classes, each
// class that waits has one at least, so that none is starved.
func (q *queue) next(n int) []ticket {
	others := 0 // classes below that wait
	for i := range q.lines {
		if q.lines[i].len() > 0 {
			others++
		}
	}
	var out []ticket
	for c := int(classes) - 1; c >= 0; c-- {
		l := &q.lines[c]
		if l.len() == 0 {
			continue
		}
		others--
		for range min(l.len(), n-len(out)-others) {
			out = append(out, l.pop())
		}
	}
	return out
}

// line is what waits of one class.
type line struct {
	waiting []ticket
	head    int // before it all have gone
	turns   int
}

func (l *line) len() int { return len(l.waiting) - l.head }

// pop takes one out. The newest goes first: in a rush the old ones wait anyway, and so those that come after it began do
// not. Each fourth turn is the oldest's, so that no ticket stays for as long as others come.
func (l *line) pop() ticket {
	l.turns++
	if l.turns%4 == 0 {
		t := l.waiting[l.head]
		l.waiting[l.head] = nil
		l.head++
		l.shrink()
		return t
	}
	last := len(l.waiting) - 1
	t := l.waiting[last]
	l.waiting[last] = nil
	l.waiting = l.waiting[:last]
	l.shrink()
	return t
}

// shrink gives memory back: the room before head when it is half of all, and everything after a rush.
func (l *line) shrink() {
	switch {
	case l.len() == 0:
		l.head = 0
		l.waiting = l.waiting[:0]
		if cap(l.waiting) > 1<<10 {
			l.waiting = nil
		}
	case l.head > len(l.waiting)/2:
		n := copy(l.waiting, l.waiting[l.head:])
		clear(l.waiting[n:])
		l.waiting, l.head = l.waiting[:n], 0
	}
}
