package egress

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestWatch(t *testing.T) {
	t.Parallel()
	const limit = time.Minute
	tests := []struct {
		name string
		do   func(*watch)
		want time.Duration // when it is noticed; 0 for not at all
	}{
		{"never started", func(*watch) {}, 0},
		{"nothing happens", func(w *watch) { w.start() }, limit},
		{"started twice", func(w *watch) { w.start(); time.Sleep(limit / 2); w.start() }, limit * 3 / 2},
		{"stopped", func(w *watch) { w.start(); w.stop(); w.stop() }, 0},
		{"started again", func(w *watch) { w.start(); w.stop(); time.Sleep(limit); w.start() }, 2 * limit},
		{"touched", func(w *watch) {
			w.start()
			for range 10 {
				time.Sleep(limit - 1)
				w.touch()
			}
		}, 10*(limit-1) + limit},
		{"held", func(w *watch) { w.start(); w.hold(); time.Sleep(5*limit + limit/2); w.release() }, 6*limit + limit/2},
		{"held and stopped", func(w *watch) { w.start(); w.hold(); time.Sleep(limit); w.stop() }, 0},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var noticed []time.Duration
			w := newWatch(limit, func() { noticed = append(noticed, time.Since(began)) })
			tt.do(w)
			time.Sleep(20 * limit)
			synctest.Wait()
			if tt.want == 0 && len(noticed) == 0 || len(noticed) == 1 && noticed[0] == tt.want {
				return
			}
			t.Errorf("%s: noticed %v, want %v", tt.name, noticed, tt.want)
		})
	}
}
