package intake

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func ignore(time.Duration) {}

// nothing is the CPU time of a process that does nothing beside.
func nothing() time.Duration { return 0 }

// turns is a fixed number of them.
func turns(n int) func() int { return func() int { return n } }

// TestTurns holds that a few begin at once, and that the others begin a few after each question to the poller, the
// better classes first.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		i := newIntake(turns(4), func() { <-answers }, nothing, ignore)
		var mu sync.Mutex
		var begun []Class
		counts := func() (n [classes]int) {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			for _, c := range begun {
				n[c]++
			}
			return n
		}
		enter := func(c Class, n int) {
			for range n {
				go func() {
					i.Enter(t.Context(), c)
					mu.Lock()
					defer mu.Unlock()
					begun = append(begun, c)
				}()
			}
			synctest.Wait()
		}
		enter(Retrieval, 6)
		if got := counts(); got != [classes]int{4, 0, 0} {
			t.Fatalf("begun at once: %v", got)
		}
		enter(Newcomer, 3)
		enter(Regular, 3)
		for turn, want := range [][classes]int{{5, 1, 2}, {6, 3, 3}} {
			answers <- struct{}{}
			if got := counts(); got != want {
				t.Fatalf("turn %d: %v", turn, got)
			}
		}
		enter(Regular, 1) // nothing was left of the last turn: it asks again
		if got := counts(); got != [classes]int{6, 3, 3} {
			t.Fatalf("begun without a turn: %v", got)
		}
		answers <- struct{}{}
		if got := counts(); got != [classes]int{6, 3, 4} {
			t.Fatalf("afterwards: %v", got)
		}
		enter(Regular, 3) // the rest of that turn
		if got := counts(); got != [classes]int{6, 3, 7} {
			t.Fatalf("the rest: %v", got)
		}
	})
}

// TestMakeup holds that work without turns, which delays each question, does not keep those who wait from the CPUs.
func TestMakeup(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiting, hogged = 200, 20 * time.Millisecond // on two CPUs, from one question to the next
		var used time.Duration
		questions := 0
		begin := make(chan struct{})
		i := newIntake(turns(8), func() { <-begin; questions++; used += hogged }, func() time.Duration { return used }, ignore)
		var all sync.WaitGroup
		for range waiting {
			all.Go(func() { i.Enter(t.Context(), Regular) })
		}
		synctest.Wait()
		close(begin)
		all.Wait()
		if questions > waiting/16 {
			t.Errorf("%d questions for %d turns", questions, waiting)
		}
	})
	for others, want := range map[time.Duration]int{
		-time.Second: 0, 0: 0, 4 * time.Millisecond: 0, 5 * time.Millisecond: 20, time.Second: 32,
	} {
		if got := makeup(others, 8); got != want {
			t.Errorf("%v: %d, want %d", others, got, want)
		}
	}
}

// TestPollerOpensAnew holds that a question that cannot be asked leaves nothing behind.
func TestPollerOpensAnew(t *testing.T) {
	t.Parallel()
	var p poller
	p.ask()
	if p.w == nil {
		t.Skip("no pipe here")
	}
	if err := p.r.Close(); err != nil {
		t.Fatal(err)
	}
	p.ask()
	if p.w != nil {
		t.Error("the pipe is still in use")
	}
	p.ask()
	if p.w == nil {
		t.Error("there is no new one")
	}
}

// TestEnterEnds holds that work whose context ends waits no longer, and takes nobody's turn away for good.
func TestEnterEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		var waits []time.Duration
		i := newIntake(turns(3), func() { <-answers }, nothing, func(d time.Duration) { waits = append(waits, d) })
		for range 3 {
			i.Enter(t.Context(), Regular)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		i.Enter(ctx, Regular)
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			t.Fatal("it did not wait")
		}
		begun := false
		go func() {
			i.Enter(t.Context(), Retrieval)
			begun = true
		}()
		synctest.Wait()
		answers <- struct{}{}
		synctest.Wait()
		if !begun {
			t.Error("the next one waits on")
		}
		if !slices.Equal(waits, []time.Duration{time.Second, 0}) {
			t.Errorf("the waits: %v", waits)
		}
	})
}

// TestNoIntake holds that without one nothing waits.
func TestNoIntake(t *testing.T) {
	t.Parallel()
	var none *Intake
	for range 1000 {
		none.Enter(t.Context(), Retrieval)
	}
}

// TestStanding holds what a connection's class is.
func TestStanding(t *testing.T) {
	t.Parallel()
	for spoken, want := range map[time.Duration]Class{
		0: Newcomer, time.Second - 1: Newcomer, time.Second: Regular, time.Hour: Regular,
	} {
		if got := standing(spoken); got != want {
			t.Errorf("%v: %v", spoken, got)
		}
	}
}

// pair is a TCP connection under an intake, and its other end.
func pair(t *testing.T, i *Intake) (*Conn, net.Conn) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	other, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); other.Close() })
	return i.Conn(c.(*net.TCPConn)), other
}

// TestConns reads from many connections at once, with the real poller: all octets arrive, in order, and errors do.
func TestConns(t *testing.T) {
	t.Parallel()
	const conns, messages = 200, 20
	i := New(ignore)
	var readers sync.WaitGroup
	for range conns {
		c, other := pair(t, i)
		readers.Go(func() {
			got, err := io.ReadAll(c)
			want := slices.Concat(slices.Repeat([][]byte{[]byte("abcdefgh")}, messages)...)
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%d octets, %v", len(got), err)
			}
		})
		readers.Go(func() {
			for range messages {
				if _, err := io.WriteString(other, "abcdefgh"); err != nil {
					t.Error(err)
				}
			}
			if err := other.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	readers.Wait()
	for i.busy() { // the goroutine that gave the last turn is about to end
		runtime.Gosched()
	}
}

// busy reports whether a goroutine gives turns.
func (i *Intake) busy() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.pacing
}

// TestConnDeadline holds that a read that gets nothing does not wait for a turn.
func TestConnDeadline(t *testing.T) {
	t.Parallel()
	i := newIntake(turns(3), func() { t.Error("the poller was asked") }, nothing, ignore)
	c, _ := pair(t, i)
	for range 10 {
		if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
	}
}

// BenchmarkEnter is a turn: one that is left, and one among many that wait.
func BenchmarkEnter(b *testing.B) {
	b.Run("alone", func(b *testing.B) { // one in few asks the poller
		i := New(ignore)
		b.ReportAllocs()
		for b.Loop() {
			i.Enter(b.Context(), Regular)
		}
	})
	b.Run("rush", func(b *testing.B) {
		i := New(ignore)
		b.SetParallelism(1000)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				i.Enter(b.Context(), Newcomer)
			}
		})
	})
	b.Run("ask", func(b *testing.B) {
		var p poller
		b.ReportAllocs()
		for b.Loop() {
			p.ask()
		}
	})
}
