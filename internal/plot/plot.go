// Package plot draws counts over time as stacked bars: HTML with an inline SVG, which needs no
// script. The operator's page and the report share it. Package pagestyle has the style of its
// classes.
package plot

import (
	_ "embed" // for plot.html
	"fmt"
	"html/template"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Chart is a row of bars, each for an equal time. Its times are shown in UTC.
type Chart struct {
	// Title names what the bars count, and Unit names the unit of the scale, such as "requests a
	// minute".
	Title, Unit string
	// From is the beginning of the first bar, Width the time of each, and Bars their number.
	From  time.Time
	Width time.Duration
	Bars  int
	// Running says that the time of the last bar is not over: it is drawn pale.
	Running bool
	// Layers are stacked in this order, the first at the bottom.
	Layers []Layer
}

// Layer is one kind of the things counted.
type Layer struct {
	Name string
	// Class has the colour: "allowed", "held", "refused" or "failed".
	Class string
	// Values has one value for each bar; those that are missing are 0.
	Values []float64
}

//go:embed plot.html
var page string

var figure = template.Must(template.New("plot").Funcs(template.FuncMap{"number": number}).Parse(page))

// HTML is the chart as a figure element.
func (c Chart) HTML() template.HTML {
	most, sums := 0.0, make([]float64, c.Bars)
	said := make([]string, c.Bars)
	for _, l := range c.Layers {
		values := make([]float64, c.Bars)
		copy(values, l.Values)
		for bar, v := range values {
			sums[bar] += v
			most = max(most, sums[bar])
			said[bar] += ", " + number(v) + " " + l.Name
		}
	}
	var b strings.Builder
	err := figure.Execute(&b, map[string]any{"Chart": c, "Most": most, "Top": top(most), "Half": top(most) / 2, "Said": said, "Paths": c.paths(top(most))})
	if err != nil {
		return "This chart cannot be drawn." // it is our own template
	}
	return template.HTML(b.String()) //nolint:gosec // html/template has escaped it
}

// top is the end of a scale. Its half is a whole number, too.
func top(most float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(max(most, 2))))
	for _, n := range []float64{1, 2, 4, 6} {
		if n*unit >= max(most, 2) {
			return n * unit
		}
	}
	return 10 * unit
}

func number(v float64) string { return humanize.Comma(int64(math.Round(v))) }

// paths draws each layer on those below it: its bars, and the one whose time is not over.
func (c Chart) paths(top float64) (all [][2]string) {
	base := make([]float64, c.Bars)
	for _, l := range c.Layers {
		var paths [2]string
		for bar, v := range l.Values[:min(len(l.Values), c.Bars)] {
			i := 0
			if c.Running && bar == c.Bars-1 {
				i = 1
			}
			if v > 0 {
				paths[i] += fmt.Sprintf("M%d.05 %.9gV%.9gh.9V%.9gz", bar, top-base[bar], top-base[bar]-v, top-base[bar])
			}
			base[bar] += v
		}
		all = append(all, paths)
	}
	return all
}

// Ticks are the bars at the beginning, the end, and up to two between them that get a time below.
func (c Chart) Ticks() (bars []int) {
	n := max(min(c.Bars, 3), 1)
	for i := range n + 1 {
		bars = append(bars, c.Bars*i/n)
	}
	return bars
}

// Time is the beginning of a bar. days formats it if the chart is of more than a day.
func (c Chart) Time(bar int, days string) string {
	t := c.From.Add(time.Duration(bar) * c.Width).UTC()
	switch {
	case c.Width < time.Minute:
		return t.Format(time.TimeOnly)
	case c.Width*time.Duration(c.Bars) <= 24*time.Hour:
		return t.Format("15:04")
	}
	return t.Format(days)
}
