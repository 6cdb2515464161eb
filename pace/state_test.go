package pace

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// restarted returns a new Pacer with the file of another one, after the given time. An orderly end
// lists all keys; a kill leaves the earlier list.
func restarted(t *testing.T, old *Pacer, orderly bool, after time.Duration) *Pacer {
	t.Helper()
	file, err := json.Marshal(old.States(1000, orderly))
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(after)
	var states []State
	if err := json.Unmarshal(file, &states); err != nil {
		t.Fatal(err)
	}
	p := New(Config{Random: noJitter})
	p.Restore(states)
	return p
}

// A restart keeps the gap of a site before and after a request, for either of two agents. An
// orderly stop keeps it exactly; after a kill it counts from the start.
func TestRestartKeepsDelays(t *testing.T) {
	t.Parallel()
	const away = 150 * time.Millisecond
	slow, quick := Limit{Key: "h", Delay: 6 * time.Second}, Limit{Key: "h"}
	for _, tt := range []struct {
		name          string
		before, after Limit
		pause         time.Duration // of the host, before the end
		orderly       bool
		held          time.Duration
	}{
		{"stopped", slow, slow, 0, true, 6*time.Second - away},
		{"stopped, a while after", slow, slow, 5 * time.Second, true, time.Second - away},
		{"stopped, long after", slow, slow, time.Minute, true, 0},
		{"stopped, the gap of the one before", slow, quick, time.Second, true, 5*time.Second - away},
		{"stopped, the gap of the one after", quick, slow, time.Second, true, 5*time.Second - away},
		{"stopped, no gap", quick, quick, 0, true, 0},
		{"killed", slow, slow, 0, false, 6 * time.Second},
		{"killed, a while after", slow, slow, 5 * time.Second, false, 6 * time.Second},
		{"killed, the gap of the one before", slow, quick, time.Second, false, 6 * time.Second},
		{"killed, the gap of the one after", quick, slow, time.Second, false, 6 * time.Second},
		{"killed, no gap", quick, quick, 0, false, 0},
		{"stopped, another host", Limit{Key: "other", Delay: time.Minute}, slow, 0, true, 0},
		{"killed, another host", Limit{Key: "other", Delay: time.Minute}, slow, 0, false, 6 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				old := New(Config{Random: noJitter})
				granted(t, old, Request{Limit: tt.before, Agent: "a"}).Done()
				time.Sleep(tt.pause)
				p := restarted(t, old, tt.orderly, away)
				if s := granted(t, p, Request{Limit: tt.after, Agent: "b"}); s.Wait != tt.held {
					t.Errorf("held for %s, want %s", s.Wait, tt.held)
				}
			})
		})
	}
}

// After an orderly stop a host has the rest of its burst, after a kill none.
func TestRestartKeepsRates(t *testing.T) {
	t.Parallel()
	limit := Limit{Key: "h", Interval: time.Second, Burst: 3}
	for orderly, want := range map[bool]time.Duration{true: time.Second, false: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			old := New(Config{Random: noJitter})
			granted(t, old, Request{Limit: limit}).Done()
			p := restarted(t, old, orderly, 0)
			start := time.Now()
			for range 3 {
				granted(t, p, Request{Limit: limit}).Done()
			}
			if took := time.Since(start); took != want {
				t.Errorf("orderly is %t: three requests took %s, want %s", orderly, took, want)
			}
		})
	}
}

// An unknown state stays unknown over an orderly stop, until it no longer matters.
func TestRestartAfterAStartThatKnewNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		slow := Limit{Key: "h", Delay: 6 * time.Second}
		p := restarted(t, New(Config{}), false, 0)
		p = restarted(t, p, true, time.Second)
		p = restarted(t, p, true, time.Second)
		if s := granted(t, p, Request{Limit: slow}); s.Wait != 4*time.Second {
			t.Errorf("held for %s, want the rest of 6 s since the first start", s.Wait)
		}
	})
}

// An incomplete list says nothing about other keys.
func TestStatesAreComplete(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		complete := func(p *Pacer, limit int) bool {
			list := p.States(limit, true)
			return len(list) > 0 && list[len(list)-1].Key == ""
		}
		p := New(Config{Random: noJitter})
		if !complete(p, 10) {
			t.Error("the list is incomplete without requests")
		}
		if list := p.States(10, false); len(list) != 0 {
			t.Errorf("a list for a crash claims to be complete: %+v", list)
		}
		s := granted(t, p, Request{Limit: Limit{Key: "h", Concurrency: 2}})
		if complete(p, 10) {
			t.Error("the list claims to be complete with a request in flight")
		}
		s.Done()
		go func() { _, _ = p.Acquire(t.Context(), Request{Limit: Limit{Key: "h", Delay: 5 * time.Second}}) }()
		synctest.Wait()
		if complete(p, 10) {
			t.Error("the list claims to be complete with a waiting request")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if !complete(p, 10) {
			t.Error("the list is incomplete after all requests have ended")
		}
		for i := range 20 {
			granted(t, p, Request{Limit: Limit{Key: fmt.Sprint(i), Delay: time.Duration(i) * time.Second}}).Done()
		}
		if complete(p, 20) {
			t.Error("the list claims to be complete with more keys than fit")
		}
		if list := p.States(3, true); len(list) != 3 || list[0].Key != "19" || list[2].Key != "17" {
			t.Errorf("the list of many keys is %+v, want the longest gaps", list)
		}
	})
}

// A machine's clock that was set back, or a file with nonsense, delays requests by at most the gap.
func TestRestartByAnotherClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		p := New(Config{Random: noJitter})
		p.Restore([]State{
			{Key: "ahead", Last: now.Add(time.Hour), Gap: 5 * time.Second},
			{Key: "negative", Last: now.Add(-time.Second), Gap: -5 * time.Second, Debt: -1},
			{Key: "ancient", Last: time.Time{}.Add(1), Gap: 5 * time.Second},
			{Last: now.Add(time.Hour)},
		})
		for key, want := range map[string]time.Duration{"ahead": 5 * time.Second, "negative": 0, "ancient": 5 * time.Second, "": 0} {
			// If the file ends in the future, the time before it is unknown.
			if s := granted(t, p, Request{Limit: Limit{Key: key}}); s.Wait > want {
				t.Errorf("%q: held for %s, want at most %s", key, s.Wait, want)
			}
		}
		if s := granted(t, p, Request{Limit: Limit{Key: "unlisted", Delay: 9 * time.Second}}); s.Wait > 9*time.Second {
			t.Errorf("held for %s, want at most 9s", s.Wait)
		}
	})
}

// Only slots whose gap a crash would forget are listed.
func TestGrantedTellsOfAnotherGap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		p := New(Config{Observer: grantObserver{granted: func(kept bool) { told = append(told, kept) }}})
		for _, delay := range []time.Duration{0, 0, time.Second, time.Second, 2 * time.Second, 0} {
			granted(t, p, Request{Limit: Limit{Key: "h", Delay: delay}}).Done()
		}
		if want := "[false false true false true true]"; fmt.Sprint(told) != want {
			t.Errorf("reported %v, want %s", told, want)
		}
	})
}

type grantObserver struct {
	nopObserver
	granted func(kept bool)
}

func (o grantObserver) Granted(_ time.Duration, kept bool) { o.granted(kept) }

// BenchmarkStates measures a write of 10,000 hosts without the disk.
func BenchmarkStates(b *testing.B) {
	p := New(Config{})
	for i := range 10_000 {
		s, err := p.Acquire(b.Context(), Request{Limit: Limit{Key: fmt.Sprintf("host%05d.example.com", i), Delay: 30 * time.Second}})
		if err != nil {
			b.Fatal(err)
		}
		s.Done()
	}
	for _, all := range []bool{false, true} {
		b.Run(fmt.Sprintf("all=%t", all), func(b *testing.B) {
			for b.Loop() {
				file, err := json.Marshal(p.States(100_000, all))
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(file)), "bytes")
			}
		})
	}
}
