package redisclock

import (
	"testing"
	"time"
)

func TestWatchGoesByTheFastestOfTheLastAnswers(t *testing.T) {
	t.Parallel()
	start := time.Now()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	var w watch
	if w.fits(0, start, start) {
		t.Error("an answer fits a watch that has seen none")
	}
	w = w.saw(ms(1000), start, start.Add(ms(40))) // Redis was at 1 s some time in these 40 ms
	w = w.saw(ms(2010), start.Add(ms(1000)), start.Add(ms(1002)))
	w = w.saw(ms(3050), start.Add(ms(2000)), start.Add(ms(2100)))
	if got := w.shared(start.Add(ms(1001))); got != ms(2010) {
		t.Errorf("Redis's time is %s, want 2.01 s", got)
	}
	first, last := w.local(ms(5010))
	if first != start.Add(ms(4000)) || last != start.Add(ms(4002)) {
		t.Errorf("Redis's 5.01 s is between %s and %s, want 4 s and 4.002 s", first.Sub(start), last.Sub(start))
	}
	if !w.fits(ms(4011), start.Add(ms(3000)), start.Add(ms(3002))) {
		t.Error("1 ms off, by answers that take 1 ms each way, does not fit")
	}
	if w.fits(ms(4020), start.Add(ms(3000)), start.Add(ms(3002))) {
		t.Error("9 ms off fits")
	}
	for i := range len(w.seen) { // the good one is too old now
		w = w.saw(ms(9000+i*1000), start.Add(ms(8000+i*1000)), start.Add(ms(8010+i*1000)))
	}
	if got := w.best().error; got != ms(5) {
		t.Errorf("its error is %s, want that of the newer answers, 5 ms", got)
	}
}
