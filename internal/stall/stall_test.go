package stall

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestStall checks that a line that the log does not take blocks the lines after it for Wait, but
// no longer.
func TestStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(Log)
		first := Line{Log: log}
		first.Begin()
		if !log.Admit() || log.Stalls() || log.Idle() {
			t.Error("a line that has just begun blocks others")
		}
		time.Sleep(suspect)
		began := time.Now()
		if log.Admit() {
			t.Error("a line was admitted after one that is not taken")
		}
		if waited := time.Since(began); waited < Wait-suspect || waited > Wait {
			t.Errorf("Admit waited %v, want about Wait", waited)
		}
		if !log.Stalls() {
			t.Error("the log does not stall")
		}
		began = time.Now()
		if log.Admit() || time.Since(began) > 0 {
			t.Error("lines wait although the log stalls")
		}
		first.End()
		first.End()
		if !log.Admit() || log.Stalls() || !log.Idle() {
			t.Error("no line is admitted after the log has taken the line")
		}
	})
}

// TestSlow checks that a log that takes its lines late loses none.
func TestSlow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(Log)
		var wg sync.WaitGroup
		for range 3 * places {
			wg.Go(func() {
				if !log.Admit() {
					t.Error("a line was not admitted")
				}
				line := Line{Log: log}
				line.Begin()
				time.Sleep(Wait / 4)
				line.Begin() // for another log
				time.Sleep(Wait / 8)
				line.End()
			})
		}
		wg.Wait()
		if !log.Idle() {
			t.Error("a place was not freed")
		}
	})
}

// TestPlaces checks that as many lines may be written at once as there are places. Another line
// waits for a place, whatever the age of the lines.
func TestPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(Log)
		lines := make([]Line, places+1)
		for i := range lines {
			lines[i].Log = log
			lines[i].Begin()
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			began := time.Now()
			if !log.Admit() || time.Since(began) < suspect/2 {
				t.Errorf("admitted after %v, want to wait until the place is free", time.Since(began))
			}
		})
		time.Sleep(suspect / 2)
		lines[places].End() // has no place
		lines[3].End()
		wg.Wait()
		lines[3].Begin()
		began := time.Now()
		wg.Go(func() {
			if log.Admit() || time.Since(began) > Wait+suspect {
				t.Errorf("without a free place: admitted, or waited %v", time.Since(began))
			}
		})
		for time.Since(began) < Wait+suspect {
			for i := range lines[:places] {
				lines[i].Begin() // always a recent line
			}
			time.Sleep(suspect / 2)
		}
		wg.Wait()
	})
}

// waiter counts how often it was released.
type waiter struct{ released atomic.Int32 }

func (w *waiter) Release() { w.released.Add(1) }

// TestRelease checks that a waiter for a line that is not taken is released after Wait, once, and
// never after the end of the line.
func TestRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log, late, early, ended := new(Log), new(waiter), new(waiter), new(waiter)
		lines := []*Line{{Log: log, Waiter: late}, {Log: log, Waiter: early}, {Log: log, Waiter: ended}, {Log: log}}
		for i, line := range lines {
			if i != 1 {
				line.Begin()
			}
		}
		time.Sleep(Wait / 2)
		lines[1].Begin()
		lines[2].End()
		for range 3 {
			time.Sleep(Wait / 4)
			log.Release()
			synctest.Wait()
		}
		if late.released.Load() != 1 || early.released.Load() != 0 || ended.released.Load() != 0 || !log.Stalls() {
			t.Errorf("released: %d, %d, %d; stalls: %t", late.released.Load(), early.released.Load(), ended.released.Load(), log.Stalls())
		}
	})
}

func BenchmarkLine(b *testing.B) {
	log := new(Log)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			line := Line{Log: log}
			if log.Stalls() || !log.Admit() {
				b.Fatal("the log stalls")
			}
			line.Begin()
			line.End()
		}
	})
}
