package report

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
)

// plot is a picture of bars in the units of its SVG: Width by Height.
type plot struct {
	Title         string
	Width, Height int
	Bars          []bar
	Labels        []label
}

// bar is a rectangle; Class is the outcome that it stands for.
type bar struct {
	X, Y, W, H float64
	Class      string
	Hint       string
}

type label struct {
	X, Y   float64
	Anchor string // start, middle or end
	Text   string
}

const (
	plotWidth  = 760
	timeHeight = 160
	rowHeight  = 20
	nameWidth  = 260
	mostBars   = 120
	topRows    = 10
)

// plots gives the pictures of a report.
func (r *Report) plots() []plot {
	var all []plot
	if len(r.overTime.bars) > 0 {
		all = append(all, r.overTime.plot())
	}
	refusals := slices.DeleteFunc(slices.Clone(r.Reasons), func(row Row) bool { return enforce.Reason(row.Name).Allows() })
	for _, p := range []struct {
		title string
		rows  []Row
	}{{"Hosts with the most requests", r.Hosts}, {"Reasons of refusals and failures", refusals}} {
		if len(p.rows) > 0 && p.rows[0].Asked > 0 {
			all = append(all, byName(p.title, p.rows[:min(len(p.rows), topRows)]))
		}
	}
	return all
}

// timeline counts requests in bars of one width, which grows until there are few enough.
type timeline struct {
	audit.Period
	width time.Duration
	bars  map[time.Time]*Outcomes // by their beginnings
}

// widths each go into the next one. Behind the last one, each is four times as wide.
var widths = []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

func (t *timeline) add(at time.Time, decision string) {
	if at.IsZero() {
		return
	}
	for t.Note(at); t.width == 0 || t.Last.Sub(t.First)/t.width >= mostBars; {
		t.widen()
	}
	t.bar(at).add(decision)
}

func (t *timeline) bar(at time.Time) *Outcomes {
	at = at.UTC().Truncate(t.width)
	if t.bars[at] == nil {
		t.bars[at] = new(Outcomes)
	}
	return t.bars[at]
}

func (t *timeline) widen() {
	narrow := t.bars
	i := slices.IndexFunc(widths, func(w time.Duration) bool { return w > t.width })
	if t.width *= 4; i >= 0 {
		t.width = widths[i]
	}
	t.bars = make(map[time.Time]*Outcomes)
	for at, o := range narrow {
		b := t.bar(at)
		b.Asked, b.Allowed, b.Refused, b.Failed = b.Asked+o.Asked, b.Allowed+o.Allowed, b.Refused+o.Refused, b.Failed+o.Failed
	}
}

// plot has all bars side by side.
func (t *timeline) plot() plot {
	first := t.First.Truncate(t.width)
	n := int(t.Last.Sub(first)/t.width) + 1
	width, most := float64(plotWidth)/float64(n), int64(0)
	for _, o := range t.bars {
		most = max(most, o.Asked)
	}
	p := plot{Title: "Requests over time", Width: plotWidth, Height: rowHeight + timeHeight + rowHeight}
	for _, at := range slices.SortedFunc(maps.Keys(t.bars), time.Time.Compare) {
		y := float64(rowHeight + timeHeight)
		for _, part := range parts(*t.bars[at]) {
			h := float64(part.n) / float64(most) * timeHeight
			if y -= h; part.n > 0 {
				x := float64(at.Sub(first)/t.width) * width
				p.Bars = append(p.Bars, bar{x, y, width * 0.9, h, part.class, moment(at) + ": " + number(part.n) + " " + part.class})
			}
		}
	}
	long := strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(t.width.String())
	p.Labels = []label{
		{0, rowHeight + timeHeight + rowHeight - 5, "start", moment(first)},
		{plotWidth, rowHeight + timeHeight + rowHeight - 5, "end", moment(first.Add(time.Duration(n) * t.width))},
		{plotWidth, 12, "end", "most: " + number(most) + " in " + long},
	}
	return p
}

// byName has a bar for each row.
func byName(title string, rows []Row) plot {
	p := plot{Title: title, Width: plotWidth, Height: rowHeight * len(rows)}
	var most int64
	for _, row := range rows {
		most = max(most, row.Asked)
	}
	for i, row := range rows {
		x, y := float64(nameWidth), float64(i*rowHeight)
		for _, part := range parts(row.Outcomes) {
			w := float64(part.n) / float64(most) * (plotWidth - nameWidth - 80)
			if part.n > 0 {
				p.Bars = append(p.Bars, bar{x, y + 2, w, rowHeight - 4, part.class, number(part.n) + " " + part.class})
			}
			x += w
		}
		p.Labels = append(p.Labels,
			label{nameWidth - 6, y + 14, "end", cut(named(row.Name))}, label{x + 6, y + 14, "start", number(row.Asked)})
	}
	return p
}

type part struct {
	class string
	n     int64
}

func parts(c Outcomes) []part {
	return []part{{"allowed", c.Allowed}, {"refused", c.Refused}, {"failed", c.Failed}}
}

// cut keeps a name within the width that it has.
func cut(name string) string {
	const most = 36
	if r := []rune(name); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return name
}
