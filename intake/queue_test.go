package intake

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tickets makes n of them.
func tickets(n int) []ticket {
	out := make([]ticket, n)
	for i := range out {
		out[i] = make(ticket)
	}
	return out
}

func TestQueueOrder(t *testing.T) {
	t.Parallel()
	regular, newcomers, retrievals := tickets(6), tickets(6), tickets(6)
	var q queue
	for i := range 6 {
		q.add(Retrieval, retrievals[i])
		q.add(Newcomer, newcomers[i])
		q.add(Regular, regular[i])
	}
	for i, want := range [][]ticket{
		{regular[5], regular[4], newcomers[5], retrievals[5]},     // one for each class that waits
		{regular[3], regular[0], newcomers[4], retrievals[4]},     // the fourth of a class is the oldest
		{regular[2], regular[1], newcomers[3], retrievals[3]},     //
		{newcomers[0], newcomers[2], newcomers[1], retrievals[0]}, // no place is kept for those that do not wait
		{retrievals[2], retrievals[1]},
		nil,
	} {
		if got := q.next(4); !slices.Equal(got, want) {
			t.Fatalf("turn %d: %v of %v %v %v", i, got, regular, newcomers, retrievals)
		}
	}
	if !q.empty() {
		t.Error("not empty")
	}
}

// TestQueueLosesNothing holds that each ticket comes out once, no turn is larger than it may be or smaller than it could
// be, no class that waits is passed over, and the memory of a rush is given back.
func TestQueueLosesNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var q queue
		class := make(map[ticket]Class) // of those that wait
		wait := func() (n [classes]int) {
			for _, c := range class {
				n[c]++
			}
			return n
		}
		turn := func(n int) {
			before, had := wait(), [classes]int{}
			out := q.next(n)
			if len(out) != min(n, len(class)) {
				t.Fatalf("%d tickets of %d for %d", len(out), len(class), n)
			}
			for _, x := range out {
				c, ok := class[x]
				if !ok {
					t.Fatal("a ticket came out twice")
				}
				had[c]++
				delete(class, x)
			}
			for c, n := range before {
				if n > 0 && had[c] == 0 {
					t.Fatalf("class %d had no turn: %v of %v", c, had, before)
				}
			}
		}
		for range rapid.IntRange(1, 50).Draw(t, "steps") {
			c := Class(rapid.IntRange(0, int(classes)-1).Draw(t, "class"))
			for _, x := range tickets(rapid.IntRange(0, 40).Draw(t, "arrive")) {
				class[x] = c
				q.add(c, x)
			}
			turn(rapid.IntRange(int(classes), 20).Draw(t, "turn"))
		}
		for len(class) > 0 {
			turn(8)
		}
		if !q.empty() {
			t.Fatal("not empty")
		}
		for i := range q.lines {
			if cap(q.lines[i].waiting) > 1<<10 {
				t.Fatalf("%d places are kept", cap(q.lines[i].waiting))
			}
		}
	})
}

// TestQueueStarvesNobody holds that the oldest has its turn although others keep coming faster than turns.
func TestQueueStarvesNobody(t *testing.T) {
	t.Parallel()
	var q queue
	first := make(ticket)
	q.add(Regular, first)
	for turn := range 4 {
		for _, x := range tickets(10) {
			q.add(Regular, x)
		}
		if slices.Contains(q.next(3), first) {
			t.Logf("turn %d", turn)
			return
		}
	}
	t.Error("it waits on")
}
