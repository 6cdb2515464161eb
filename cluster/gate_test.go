package cluster

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/cluster/link"
)

// TestGate checks that a request waits until the orders are read, at most two seconds, or until it
// ends itself.
func TestGate(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		read, gives time.Duration // when the orders are read and when the request ends; 0 for never
		want        time.Duration
		late        bool
	}{
		"the orders are read":         {read: 300 * time.Millisecond, want: 300 * time.Millisecond},
		"redis does not answer":       {want: 2 * time.Second, late: true},
		"the orders are read later":   {read: 3 * time.Second, want: 2 * time.Second, late: true},
		"the client does not wait":    {gives: time.Second, want: time.Second, late: true},
		"the orders are read at once": {read: 1, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var g gate
				late := 0
				g.shut(readWithin, func() { late++ })
				g.shut(time.Hour, func() { t.Error("the gate was shut twice") })
				if tt.read > 0 {
					time.AfterFunc(tt.read, g.open)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.gives > 0 {
					time.AfterFunc(tt.gives, cancel)
				}
				began := time.Now()
				g.wait(ctx)
				if took := time.Since(began); took != tt.want {
					t.Errorf("it waited for %v, want %v", took, tt.want)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if (late > 0) != tt.late || late > 1 {
					t.Errorf("late %d times, want it: %v", late, tt.late)
				}
				began = time.Now()
				g.wait(t.Context())
				if took := time.Since(began); took != 0 {
					t.Errorf("the open gate held a request for %v", took)
				}
			})
		})
	}
}

// TestTheGateIsShutWhenRedisComesBack checks that the gate is shut when Redis comes back, but not
// after a late heartbeat nor while Redis is down.
func TestTheGateIsShutWhenRedisComesBack(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		away time.Duration
		back bool
		shut bool
	}{
		"a heartbeat was late":   {away: 400 * time.Millisecond, back: true},
		"redis was away":         {away: 1100 * time.Millisecond, back: true, shut: true},
		"redis is away for long": {away: time.Hour},
	} {
		f := &Fleet{config: Config{Unread: func() {}}}
		f.read.Store(time.Now().Add(-tt.away).UnixNano())
		f.watch(link.State{Up: tt.back}, true)
		if shut := f.gate.opened.Load() != nil; shut != tt.shut {
			t.Errorf("%s: the gate is shut: %v", name, shut)
		}
		f.gate.open()
		f.watch(link.State{Up: true}, false)
		if f.gate.opened.Load() != nil {
			t.Errorf("%s: a state without a change shut the gate", name)
		}
	}
}
