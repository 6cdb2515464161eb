package intake

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// perCPU is how many pieces of work begin for each CPU before the poller is asked again. One takes some 50 to 100 µs, so
// what becomes ready meanwhile waits for less than half a millisecond; asking takes some 3 µs. To give turns by the clock
// where they come slowly would save that, but a CPU that others use too is slower than any clock says.
const perCPU = 4

// Intake gives turns to the work of a process. A nil Intake gives them at once. It is safe for concurrent use. While
// nothing waits it holds no goroutine.
type Intake struct {
	few  func() int // how many turns there are for each question, of which each class has one
	ask  func()     // asks the poller: returns after all that were ready before have been made runnable
	left atomic.Int64

	waited func(time.Duration) // is told of each wait

	mu      sync.Mutex
	waiting queue
	pacing  bool // a goroutine runs pace
}

// New makes the intake of a process: there should be one, as there is one scheduler. waited, which must be safe for
// concurrent use, is told how long work had to wait, where it had to.
func New(waited func(time.Duration)) *Intake {
	var p poller
	return newIntake(func() int { return perCPU * runtime.GOMAXPROCS(0) }, p.ask, waited)
}

func newIntake(few func() int, ask func(), waited func(time.Duration)) *Intake {
	i := &Intake{few: few, ask: ask, waited: waited}
	i.left.Store(int64(few()))
	return i
}

// Enter returns when work of a class has its turn, or ctx has ended.
func (i *Intake) Enter(ctx context.Context, c Class) {
	if !i.free() {
		i.wait(ctx, c)
	}
}

// free takes a turn, if one is left until the poller has to be asked.
func (i *Intake) free() bool { return i == nil || i.left.Add(-1) >= 0 }

func (i *Intake) wait(ctx context.Context, c Class) {
	began, t := time.Now(), make(ticket)
	i.mu.Lock()
	i.waiting.add(c, t)
	if !i.pacing {
		i.pacing = true
		go i.pace()
	}
	i.mu.Unlock()
	select {
	case <-t:
	case <-ctx.Done(): // its turn comes for nothing
	}
	i.waited(time.Since(began))
}

// pace gives turns until nobody waits.
func (i *Intake) pace() {
	few := i.few() // Caddy and the runtime fit it to a container's quota
	for rest := true; rest; {
		i.ask()
		i.mu.Lock()
		ready := i.waiting.next(few)
		if rest = !i.waiting.empty(); !rest {
			i.left.Store(int64(few - len(ready)))
			i.pacing = false
		}
		i.mu.Unlock()
		for _, t := range ready {
			close(t)
		}
	}
}
