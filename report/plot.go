package report

import (
	"cmp"
	"slices"
	"time"

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
	if len(r.Hours) > 0 {
		all = append(all, overTime(r.Hours))
	}
	refusals := slices.Clone(r.Reasons)
	refusals = slices.DeleteFunc(refusals, func(row Row) bool { return enforce.Reason(row.Name).Allows() })
	for _, p := range []struct {
		title string
		rows  []Row
	}{{"Hosts with the most requests", r.Hosts}, {"Reasons of refusals and failures", refusals}} {
		if len(p.rows) > 0 {
			all = append(all, byName(p.title, p.rows[:min(len(p.rows), topRows)]))
		}
	}
	return all
}

// overTime has a bar for each hour or, for a long time, for some hours.
func overTime(hours []Hour) plot {
	first, last := hours[0].Begin, hours[len(hours)-1].Begin
	n := int(last.Sub(first)/time.Hour) + 1
	step := (n + mostBars - 1) / mostBars
	counts := make([]Counts, (n+step-1)/step)
	var most int64
	for _, h := range hours {
		c := &counts[int(h.Begin.Sub(first)/time.Hour)/step]
		c.Allowed += h.Allowed
		c.Refused += h.Refused
		c.Failed += h.Failed
		most = max(most, c.Allowed+c.Refused+c.Failed)
	}
	p := plot{Title: "Requests over time", Width: plotWidth, Height: timeHeight + rowHeight}
	width := float64(plotWidth) / float64(len(counts))
	for i, c := range counts {
		at := first.Add(time.Duration(i*step) * time.Hour)
		y := float64(timeHeight)
		for _, part := range parts(c) {
			h := float64(part.n) / float64(most) * timeHeight
			if y -= h; part.n > 0 {
				p.Bars = append(p.Bars, bar{float64(i) * width, y, width * 0.9, h, part.class, moment(at) + ": " + number(part.n) + " " + part.class})
			}
		}
	}
	p.Labels = []label{
		{0, timeHeight + rowHeight - 5, "start", moment(first)},
		{plotWidth, timeHeight + rowHeight - 5, "end", moment(last.Add(time.Hour))},
		{plotWidth, 12, "end", "most: " + number(most)},
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
		for _, part := range parts(row.Counts) {
			w := float64(part.n) / float64(most) * (plotWidth - nameWidth - 80)
			if part.n > 0 {
				p.Bars = append(p.Bars, bar{x, y + 2, w, rowHeight - 4, part.class, number(part.n) + " " + part.class})
			}
			x += w
		}
		p.Labels = append(p.Labels,
			label{nameWidth - 6, y + 14, "end", cut(cmp.Or(row.Name, "-"))}, label{x + 6, y + 14, "start", number(row.Asked)})
	}
	return p
}

type part struct {
	class string
	n     int64
}

func parts(c Counts) []part {
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
