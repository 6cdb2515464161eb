package stall

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestStall: a line that the log does not take holds up the lines after it for Wait, and no longer.
func TestStall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := new(Log)
		first := Line{Log: log}
		first.Begin()
		if !log.Admit() || log.Stalls() || log.Idle() {
			t.Error("a line that has just begun holds others up")
		}
		time.Sleep(suspect)
		began := time.Now()
		if log.Admit() {
			t.Error("a line after one that is not taken was admitted")
		}
		if waited := time.Since(began); waited < Wait-suspect || waited > Wait {
			t.Errorf("it waited for %v", waited)
		}
		if !log.Stalls() {
			t.Error("the log does not stall")
		}
		began = time.Now()
		if log.Admit() || time.Since(began) > 0 {
			t.Error("the log stalls, but others wait for it")
		}
		first.End()
		first.End()
		if !log.Admit() || log.Stalls() || !log.Idle() {
			t.Error("the log has taken the line, and does not go on")
		}
	})
}

// TestSlow: a log that takes its lines late, but takes them, loses none.
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

// TestPlaces: as many lines as there are places may be written at once. Another line waits for one
// of them, however old they are.
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
				t.Errorf("admitted after %v", time.Since(began))
			}
		})
		time.Sleep(suspect / 2)
		lines[places].End() // has none
		lines[3].End()
		wg.Wait()
		lines[3].Begin()
		began := time.Now()
		wg.Go(func() {
			if log.Admit() || time.Since(began) > Wait+suspect {
				t.Errorf("admitted, or waited for %v, with no place ever free", time.Since(began))
			}
		})
		for time.Since(began) < Wait+suspect {
			for i := range lines[:places] {
				lines[i].Begin() // always young
			}
			time.Sleep(suspect / 2)
		}
		wg.Wait()
	})
}

// waiter counts how often it was released.
type waiter struct{ released atomic.Int32 }

func (w *waiter) Release() { w.released.Add(1) }

// TestRelease: a waiter for a line that is not taken is released after Wait, once, and never after
// the end of the line.
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
