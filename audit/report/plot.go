package report

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit"
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
		b := t.bar(at)
		b.Asked, b.Allowed, b.Refused, b.Failed = b.Asked+o.Asked, b.Allowed+o.Allowed, b.Refused+o.Refused, b.Failed+o.Failed
	}
}

// plot is the chart of the page: bars side by side, with places counted from 0. Most is the
// greatest number of requests in a bar.
type plot struct {
	Width        string
	From, To     time.Time
	Places, Most int64
	Bars         []bar
}

type bar struct {
	Place int64
	Begin time.Time
	audit.Outcomes
}

func (t *timeline) plot() (p plot) {
	if len(t.bars) == 0 {
		return p
	}
	first := t.First.Truncate(t.width)
	p = plot{From: first, Width: strings.NewReplacer("h0m0s", "h", "m0s", "m").Replace(t.width.String())}
	for _, at := range slices.SortedFunc(maps.Keys(t.bars), time.Time.Compare) {
		b := bar{int64(at.Sub(first) / t.width), at, *t.bars[at]}
		p.Bars, p.Places, p.To, p.Most = append(p.Bars, b), b.Place+1, at.Add(t.width), max(p.Most, b.Asked)
	}
	return p
}

// Judged is how many were allowed or refused: the failed ones are drawn above them.
func (b bar) Judged() int64 { return b.Allowed + b.Refused }
