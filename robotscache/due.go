package robotscache

import (
	"container/heap"
	"sync"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// dueList knows when the origins that were asked about since their last attempt
// are due for the next: the early refresh at 80 % of the TTL, or the retry of an
// unreachable one (DESIGN §3). So an origin in use need not be asked about in the
// last fifth of its TTL to be refreshed in time, and a crawler that comes back
// after Retry-After finds the retry already made. An origin that nobody asks
// about is refreshed no more than once, and then left alone.
//
// It is a heap of at most limit origins and one timer. An origin for which there
// is no room is refreshed when a request finds it due.
type dueList struct {
	limit int
	// fire begins the refresh of an item; it reports whether it could be queued.
	fire func(dueItem) bool

	mu       sync.Mutex
	heap     dueHeap
	byOrigin map[origin.Origin]*dueItem
	timer    *time.Timer // nil before the first item, and once stopped
	stopped  bool
}

type dueItem struct {
	origin origin.Origin
	at     time.Time
	retry  bool // its last attempt failed
	index  int  // in the heap
}

// fullPause is how long the list waits for room in the queues.
const fullPause = time.Second

func newDueList(limit int, fire func(dueItem) bool) *dueList {
	return &dueList{limit: limit, fire: fire, byOrigin: make(map[origin.Origin]*dueItem)}
}

// dueAt returns when the origin of r is to be asked next, if anybody is interested.
func dueAt(r fetch.Record) time.Time {
	if failing(r) {
		return r.NextAttempt
	}
	return r.FetchedAt.Add(r.FreshUntil.Sub(r.FetchedAt) / 10 * 8)
}

func failing(r fetch.Record) bool { return !r.UnreachableSince.IsZero() }

// add puts the origin of r on the list, or moves it to its new time.
func (l *dueList) add(r fetch.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	it := l.byOrigin[r.Origin]
	switch {
	case it == nil && len(l.heap) >= l.limit:
		return
	case it == nil:
		it = &dueItem{origin: r.Origin}
		l.byOrigin[r.Origin] = it
		it.at, it.retry = dueAt(r), failing(r)
		heap.Push(&l.heap, it)
	default:
		it.at, it.retry = dueAt(r), failing(r)
		heap.Fix(&l.heap, it.index)
	}
	if it.index == 0 {
		l.arm(time.Until(it.at))
	}
}

// remove takes o off the list.
func (l *dueList) remove(o origin.Origin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if it := l.byOrigin[o]; it != nil {
		delete(l.byOrigin, o)
		heap.Remove(&l.heap, it.index)
	}
}

// arm sets the timer. l.mu is held.
func (l *dueList) arm(d time.Duration) {
	d = max(d, 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.run)
		return
	}
	l.timer.Reset(d)
}

// run fires what is due, on the timer's goroutine.
func (l *dueList) run() {
	for {
		it, ok := l.pop()
		if !ok {
			return
		}
		if !l.fire(it) {
			l.putBack(it)
			return
		}
	}
}

// pop takes the first item off the list if its time has come; otherwise it sets
// the timer to that time.
func (l *dueList) pop() (dueItem, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped || len(l.heap) == 0 {
		return dueItem{}, false
	}
	it := l.heap[0]
	if d := time.Until(it.at); d > 0 {
		l.arm(d)
		return dueItem{}, false
	}
	heap.Pop(&l.heap)
	delete(l.byOrigin, it.origin)
	return *it, true
}

// putBack returns an item that could not be fired, and lets the list rest.
func (l *dueList) putBack(it dueItem) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		return
	}
	if l.byOrigin[it.origin] == nil && len(l.heap) < l.limit {
		l.byOrigin[it.origin] = &it
		heap.Push(&l.heap, &it)
	}
	l.arm(fullPause)
}

func (l *dueList) len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.heap)
}

// stop ends the list: nothing fires after a run that is under way.
func (l *dueList) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stopped = true
	l.heap, l.byOrigin = nil, nil
	if l.timer != nil {
		l.timer.Stop()
	}
}

// dueHeap implements heap.Interface, the earliest first.
type dueHeap []*dueItem

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }

func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push is for package heap.
func (h *dueHeap) Push(x any) {
	it, _ := x.(*dueItem)
	it.index = len(*h)
	*h = append(*h, it)
}

// Pop is for package heap.
func (h *dueHeap) Pop() any {
	old := *h
	it := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return it
}
