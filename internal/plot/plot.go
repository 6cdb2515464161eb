// Package plot draws counts over time as stacked bars: HTML with an inline SVG, which needs no script.
// The operator's page and the report share it. Package pagestyle has the style of its classes.
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
	// Title says what is counted, and Unit what the scale counts, such as "requests a minute".
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

// Layer is one kind of what is counted.
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
	var b strings.Builder
	if err := figure.Execute(&b, c); err != nil {
		return "This chart cannot be drawn." // it is our own template
	}
	return template.HTML(b.String()) //nolint:gosec // html/template has escaped it
}

func (l Layer) at(bar int) float64 {
	if bar < len(l.Values) {
		return max(l.Values[bar], 0)
	}
	return 0
}

// Most is the greatest sum of a bar.
func (c Chart) Most() (most float64) {
	for bar := range c.Bars {
		sum := 0.0
		for _, l := range c.Layers {
			sum += l.at(bar)
		}
		most = max(most, sum)
	}
	return most
}

// Top is the end of the scale. Its half is a whole number, too.
func (c Chart) Top() float64 {
	most := max(c.Most(), 2)
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, n := range []float64{1, 2, 4, 6} {
		if n*unit >= most {
			return n * unit
		}
	}
	return 10 * unit
}

// Middle is the middle of the scale.
func (c Chart) Middle() float64 { return c.Top() / 2 }

func number(v float64) string { return humanize.Comma(int64(math.Round(v))) }

// Path draws the bars of a layer on those of the layers below it: all, or only the one whose time is
// not over.
func (c Chart) Path(layer int, running bool) string {
	var b strings.Builder
	top := c.Top()
	for bar := range c.Bars {
		v := c.Layers[layer].at(bar)
		if v == 0 || running != (c.Running && bar == c.Bars-1) {
			continue
		}
		y := top
		for _, below := range c.Layers[:layer] {
			y -= below.at(bar)
		}
		fmt.Fprintf(&b, "M%d.05 %.6gV%.6gh.9V%.6gz", bar, y, y-v, y)
	}
	return b.String()
}

// Tick is a time below the chart.
type Tick struct {
	Bar  int // that begins then
	Time time.Time
}

// Ticks are the beginning, the end, and up to two times between them.
func (c Chart) Ticks() (ticks []Tick) {
	n := min(c.Bars, 3)
	for i := range n + 1 {
		ticks = append(ticks, c.tick(c.Bars*i/max(n, 1)))
	}
	return ticks
}

// Slots are the beginnings of all bars.
func (c Chart) Slots() (slots []Tick) {
	for bar := range c.Bars {
		slots = append(slots, c.tick(bar))
	}
	return slots
}

func (c Chart) tick(bar int) Tick { return Tick{bar, c.From.Add(time.Duration(bar) * c.Width).UTC()} }

// Short formats a time below the chart, and Long the beginning of a bar.
func (c Chart) Short(t time.Time) string { return c.format(t, "2006-01-02") }

// Long is described at Short.
func (c Chart) Long(t time.Time) string { return c.format(t, "2006-01-02 15:04") }

func (c Chart) format(t time.Time, days string) string {
	switch {
	case c.Width < time.Minute:
		return t.Format("15:04:05")
	case c.Width*time.Duration(c.Bars) <= 24*time.Hour:
		return t.Format("15:04")
	}
	return t.Format(days)
}

// Say is what one bar counts, in words.
func (c Chart) Say(bar int) string {
	said := make([]string, len(c.Layers))
	for i, l := range c.Layers {
		said[i] = number(l.at(bar)) + " " + l.Name
	}
	return strings.Join(said, ", ")
}
