package plot_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/plot"
)

// TestChart checks a chart of three minutes; the last one is not over yet.
func TestChart(t *testing.T) {
	t.Parallel()
	c := plot.Chart{
		Title: `Requests "<b>"`, Unit: "requests a minute", From: time.Date(2026, 11, 27, 23, 58, 0, 0, time.UTC), Width: time.Minute, Bars: 3, Running: true,
		Layers: []plot.Layer{{"allowed", "allowed", []float64{1200, 0, 3}}, {"refused", "refused", []float64{300}}},
	}
	got := string(c.HTML())
	for _, want := range []string{
		`viewBox="0 0 3 2000"`, `<span>2,000</span><span>1,000</span><span>0</span>`,
		`aria-label="Requests &#34;&lt;b&gt;&#34;: 1,500 requests a minute at most"`,
		`<path class="allowed" d="M0.05 2000V800h.9V2000z"/>`, `<path class="refused" d="M0.05 800V500h.9V800z"/>`,
		`<path class="allowed running" d="M2.05 2000V1997h.9V2000z"/>`,
		"<title>23:58, 1,200 allowed, 300 refused</title>", "<title>00:00, 3 allowed, 0 refused</title>",
		"<span>23:58</span><span>23:59</span><span>00:00</span><span>00:01</span>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the chart lacks %s:\n%s", want, got)
		}
	}
	if strings.Contains(got, "<b>") || strings.Contains(got, `"refused running"`) {
		t.Errorf("the chart has unescaped or extra text:\n%s", got)
	}
}

// TestScale checks where scales end.
func TestScale(t *testing.T) {
	t.Parallel()
	for most, want := range map[float64]int{0: 2, 1: 2, 2: 2, 2.1: 4, 5: 6, 7: 10, 10: 10, 11: 20, 99: 100, 1000: 1000, 1001: 2000, 650_000: 1_000_000} {
		c := plot.Chart{Width: time.Hour, Bars: 1, Layers: []plot.Layer{{"n", "allowed", []float64{most}}}}
		if got := string(c.HTML()); !strings.Contains(got, fmt.Sprintf(`viewBox="0 0 1 %d"`, want)) {
			t.Errorf("%g: %s, want %d", most, got, want)
		}
	}
}

// TestTimes checks the format of times, depending on the length of the chart.
func TestTimes(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 11, 27, 6, 5, 10, 0, time.FixedZone("", 3600))
	for _, tt := range []struct {
		width       time.Duration
		bars        int
		short, long string
	}{
		{10 * time.Second, 60, "05:05:10", "05:05:10"},
		{time.Minute, 60, "05:05", "05:05"},
		{6 * time.Hour, 30, "2026-11-27", "2026-11-27 05:05"},
	} {
		c := plot.Chart{From: from, Width: tt.width, Bars: tt.bars}
		ticks := c.Ticks()
		if short, long := c.Time(0, time.DateOnly), c.Time(0, "2006-01-02 15:04"); short != tt.short || long != tt.long {
			t.Errorf("%s: %s and %s, want %s and %s", tt.width, short, long, tt.short, tt.long)
		}
		if len(ticks) != 4 || ticks[0] != 0 || ticks[3] != tt.bars {
			t.Errorf("ticks of width %s = %v", tt.width, ticks)
		}
	}
}
