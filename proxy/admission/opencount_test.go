package admission

import (
	"sync"
	"testing"
)

func TestCount(t *testing.T) {
	t.Parallel()
	var c openCount[string]
	for i, step := range []struct {
		key   string
		leave bool
		limit int
		want  bool
	}{
		{key: "a", limit: 0, want: false}, // zero denies
		{key: "a", limit: 2, want: true},
		{key: "a", limit: 2, want: true},
		{key: "a", limit: 2, want: false},
		{key: "b", limit: 1, want: true},
		{key: "a", limit: 3, want: true}, // a reload raised it
		{key: "a", limit: 1, want: false},
		{key: "a", leave: true},
		{key: "a", limit: 3, want: true},
		{key: "b", leave: true},
		{key: "b", limit: 1, want: true},
	} {
		if step.leave {
			c.Leave(step.key)
		} else if got := c.Enter(step.key, step.limit); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
	if c.open["a"] != 3 || c.open["b"] != 1 {
		t.Errorf("open: %v", c.open)
	}
}

// No key is left behind, and there is never room for more than the limit.
func TestCountConcurrently(t *testing.T) {
	t.Parallel()
	var (
		c     openCount[int]
		all   sync.WaitGroup
		limit = 3
	)
	for i := range 64 {
		all.Go(func() {
			for range 200 {
				if c.Enter(i%5, limit) {
					c.mu.Lock()
					if n := c.open[i%5]; n < 1 || n > limit {
						t.Errorf("%d are open", n)
					}
					c.mu.Unlock()
					c.Leave(i % 5)
				}
			}
		})
	}
	all.Wait()
	if len(c.open) > 0 {
		t.Errorf("left: %v", c.open)
	}
}
