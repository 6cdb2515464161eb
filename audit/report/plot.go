package report

import (
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/internal/plot"
)

const mostBars = 120

// timeline counts requests in bars of equal width. The width grows until there are few enough bars.
type timeline struct {
	audit.Period
	width time.Duration
	bars  map[time.Time]*audit.Outcomes // by when they begin
}

// widths: each is a multiple of the one before. After the last one, widths grow by a factor of 4.
var widths = []time.Duration{time.Second, 10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 6 * time.Hour, 24 * time.Hour, 7 * 24 * time.Hour}

func (t *timeline) add(at time.Time, decision string) {
	if at.IsZero() {
		return
	}
	for t.Note(at); t.width == 0 || t.Last.Sub(t.First)/t.width >= mostBars; {
		t.widen()
	}
	t.bar(at).Add(decision)
}

func (t *timeline) bar(at time.Time) *audit.Outcomes {
	at = at.UTC().Truncate(t.width)
	if t.bars[at] == nil {
		t.bars[at] = new(audit.Outcomes)
	}
	return t.bars[at]
}

func (t *timeline) widen() {
	narrow := t.bars
	i := slices.IndexFunc(widths, func(w time.Duration) bool { return w > t.width })
	if t.width *= 4; i >= 0 {
		t.width = widths[i]
	}
	t.bars = make(map[time.Time]*audit.Outcomes)
	for at, o := range narrow {
		t.bar(at).Plus(*o)
	}
}

// chart draws the bars.
func (t *timeline) chart() plot.Chart {
	first := t.First.Truncate(t.width)
	c := plot.Chart{Title: "Requests", From: first, Width: t.width, Bars: int(t.Last.Sub(first)/t.width) + 1}
	c.Unit = "in " + strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(t.width.String())
	values := make([]float64, 3*c.Bars)
	allowed, refused, failed := values[:c.Bars], values[c.Bars:2*c.Bars], values[2*c.Bars:]
	for at, o := range t.bars {
		i := at.Sub(first) / t.width
		allowed[i], refused[i], failed[i] = float64(o.Allowed), float64(o.Refused), float64(o.Failed)
	}
	c.Layers = []plot.Layer{{Name: "allowed", Class: "allowed", Values: allowed}, {Name: "refused", Class: "refused", Values: refused}, {Name: "failed", Class: "failed", Values: failed}}
	return c
}
