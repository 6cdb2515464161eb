package robotscache

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Retrievals begin in their order, and no more at once, nor in a second, than allowed.
func TestSlots_OrderAndRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(10, 8) // 32 a second, of which 8 at once
		began := time.Now()
		var mu sync.Mutex
		var order []int
		for i := range 15 {
			go func() {
				if s.acquire(t.Context()) == nil {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
				}
			}()
			synctest.Wait()
		}
		begun := func() []int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}
		if n := len(begun()); n != 8 {
			t.Errorf("%d began at once, want 8", n)
		}
		time.Sleep(time.Second)
		if n := len(begun()); n != 10 {
			t.Errorf("%d are in flight, want 10", n)
		}
		for range 5 {
			s.inFlight.release()
			synctest.Wait()
		}
		time.Sleep(time.Second)
		if got := begun(); len(got) != 15 || !slices.IsSorted(got) || time.Since(began) > 2*time.Second {
			t.Errorf("they began in the order %v within %v", got, time.Since(began))
		}
	})
}

// A smaller limit throws nobody out and lets nobody in until enough have left; a larger one lets
// in at once those that wait.
func TestLimit_Resize(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLimit(4)
		var in atomic.Int64
		enter := func(n int) {
			for range n {
				go func() {
					if l.acquire(t.Context()) == nil {
						in.Add(1)
					}
				}()
			}
			synctest.Wait()
		}
		for _, step := range []struct {
			name                 string
			resize, enter, leave int
			want                 int64 // that have got in so far
		}{
			{"full", 4, 4, 0, 4},
			{"smaller, with one too many for a while", 2, 4, 2, 4},
			{"one leaves", 2, 0, 1, 5},
			{"smaller and larger again", 1, 0, 0, 5},
			{"as it was", 2, 0, 0, 5},
			{"larger", 10, 0, 0, 8},
		} {
			l.resize(step.resize)
			synctest.Wait()
			enter(step.enter)
			for range step.leave {
				l.release()
			}
			synctest.Wait()
			if in.Load() != step.want {
				t.Errorf("%s: %d got in, want %d", step.name, in.Load(), step.want)
			}
		}
		if l.used != 5 || l.waiting.Len() > 0 { // 8 got in, 3 left
			t.Errorf("%d are in, %d wait", l.used, l.waiting.Len())
		}
	})
}

// However small the limits, each class gets on; together they exceed none but the smallest.
func TestClass_Share(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 1000; n++ {
		sum := 0
		for cl := range classes {
			if cl.share(n) < 1 {
				t.Fatalf("class %d gets nothing of %d", cl, n)
			}
			sum += cl.share(n)
		}
		if sum > n && n > 4 {
			t.Fatalf("the shares of %d add up to %d", n, sum)
		}
	}
}

// Callers that give up leave no trace, even where they are let in at the same moment.
func TestLimit_GiveUp(t *testing.T) {
	t.Parallel()
	l := newLimit(3)
	var wg sync.WaitGroup
	for i := range 1000 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			if i%2 == 0 {
				go cancel()
			}
			defer cancel()
			if l.acquire(ctx) == nil {
				runtime.Gosched()
				l.release()
			} else if i%2 != 0 {
				t.Error("not let in")
			}
		})
	}
	wg.Wait()
	if l.used != 0 || l.waiting.Len() > 0 {
		t.Errorf("%d are in, %d wait", l.used, l.waiting.Len())
	}
}
