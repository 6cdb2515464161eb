package audit

import "slices"

// doubt is a finding about the history of a robots.txt that a later line can refute, because a
// collector may have changed the order of the lines.
type doubt struct {
	Finding
	line  *Line
	agent *AgentTotals
}

// mostDoubts bounds how many findings wait. Further ones are reported at once.
const mostDoubts = 1_000

// doubt keeps a finding until the end, and reports whether there was room.
func (a *auditor) doubt(l *Line, f Finding, agent *AgentTotals) bool {
	if f.Kind != KindHistory || len(a.doubts) >= mostDoubts {
		return false
	}
	line := *l
	line.text = nil // the next line overwrites it
	a.doubts = append(a.doubts, doubt{f, &line, agent})
	return true
}

// refute drops the findings that a line about a robots.txt contradicts: it came after theirs, but
// is about an earlier time.
func (a *auditor) refute(l *Line) {
	a.doubts = slices.DeleteFunc(a.doubts, func(d doubt) bool {
		return d.line.Robots.Origin == l.Answer.Origin && d.line.followsByTime()
	})
}
