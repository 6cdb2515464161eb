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
	few   func() int           // how many turns there are for each question, of which each class has one
	ask   func()               // asks the poller: returns after all that were ready before have been made runnable
	spent func() time.Duration // CPU time of the process so far
	left  atomic.Int64

	waited func(time.Duration) // is told of each wait

	mu      sync.Mutex
	waiting queue
	pacing  bool // a goroutine runs pace
}

// New makes the intake of a process: there should be one, as there is one scheduler. waited, which must be safe for
// concurrent use, is told how long work had to wait, where it had to.
func New(waited func(time.Duration)) *Intake {
	var p poller
	return newIntake(func() int { return perCPU * runtime.GOMAXPROCS(0) }, p.ask, spent, waited)
}

func newIntake(few func() int, ask func(), spent func() time.Duration, waited func(time.Duration)) *Intake {
	i := &Intake{few: few, ask: ask, spent: spent, waited: waited}
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
	given, before := 0, i.spent()
	for rest := true; rest; {
		i.ask()
		now, few := i.spent(), i.few() // Caddy and the runtime fit it to a container's quota
		others := now - before - time.Duration(given)*dear
		before = now
		i.mu.Lock()
		ready := i.waiting.next(few + makeup(others, few))
		given = len(ready)
		if rest = !i.waiting.empty(); !rest {
			i.left.Store(int64(max(few-given, 0)))
			i.pacing = false
		}
		i.mu.Unlock()
		for _, t := range ready {
			close(t)
		}
	}
}

// dear is the CPU time that a piece of work takes at most, by and large, on a slow machine that collects garbage.
const dear = time.Millisecond

// makeup is how many turns there are beside the few after others, which take none, have had that much CPU time: handshakes of a port
// without turns, say, or hashes of passwords. While they keep all CPUs busy the runtime asks the poller each 10 ms only, and the
// few alone would leave nearly all of the CPUs to them.
func makeup(others time.Duration, few int) int {
	const (
		notable = 5 * time.Millisecond // less is the garbage collector's
		most    = 4                    // times the few, so that a rush does not make up for itself
	)
	if others < notable {
		return 0
	}
	return min(perCPU*int(others/time.Millisecond), most*few)
}
