package crawlgate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// site is the origin of a URL.
func site(tb testing.TB, raw string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(raw)
	if err != nil {
		tb.Fatal(err)
	}
	return o
}

func TestUnderwayStop(t *testing.T) {
	t.Parallel()
	passages := map[string]struct {
		origin, agent string
	}{
		"host":           {"https://example.com", "alpha"},
		"host over http": {"http://example.com:8080", "beta"},
		"subdomain":      {"https://www.example.com", "alpha"},
		"other":          {"https://example.org", "beta"},
		"nobody":         {"https://example.net", ""},
	}
	for _, tt := range []struct {
		order enforce.Kill
		want  []string
	}{
		{enforce.Kill{Scope: enforce.KillHost, Value: "example.com"}, []string{"host", "host over http"}},
		{enforce.Kill{Scope: enforce.KillHost, Value: "*.example.com"}, []string{"subdomain"}},
		{enforce.Kill{Scope: enforce.KillHost, Value: "example.com:8080"}, []string{"host over http"}},
		{enforce.Kill{Scope: enforce.KillAgent, Value: "ALPHA"}, []string{"host", "subdomain"}},
		{enforce.Kill{Scope: enforce.KillAll}, []string{"host", "host over http", "subdomain", "other", "nobody"}},
		{enforce.Kill{Scope: enforce.KillHost, Value: "example.edu"}, nil},
	} {
		t.Run(string(tt.order.Scope)+" "+tt.order.Value, func(t *testing.T) {
			t.Parallel()
			var u underway
			contexts := make(map[string]context.Context)
			for name, entry := range passages {
				p := new(passage)
				contexts[name] = u.enter(t.Context(), p, site(t, entry.origin), entry.agent)
				defer p.leave()
			}
			var switches enforce.KillSwitch
			if n := u.stop(&switches); n != 0 {
				t.Fatalf("without an order %d were stopped", n)
			}
			if err := switches.Set(tt.order); err != nil {
				t.Fatal(err)
			}
			if n := u.stop(&switches); n != len(tt.want) {
				t.Errorf("stopped %d, want %d", n, len(tt.want))
			}
			for name, ctx := range contexts {
				want := false
				for _, w := range tt.want {
					want = want || w == name
				}
				if got := stopOf(ctx) != nil; got != want {
					t.Errorf("%s: stopped %v, want %v (%v)", name, got, want, context.Cause(ctx))
				}
			}
		})
	}
}

func TestUnderwayTellsWho(t *testing.T) {
	t.Parallel()
	var u underway
	var p passage
	ctx := u.enter(t.Context(), &p, site(t, "https://example.com"), "alpha")
	defer p.leave()
	var switches enforce.KillSwitch
	if err := switches.Set(enforce.Kill{Scope: enforce.KillHost, Value: "example.com", By: "dora", Reason: "complaint 7"}); err != nil {
		t.Fatal(err)
	}
	u.stop(&switches)
	stop := stopOf(ctx)
	if stop == nil {
		t.Fatal("not stopped")
	}
	if want := "stopped while under way: host example.com, by dora, because: complaint 7"; stop.Error() != want {
		t.Errorf("got %q, want %q", stop, want)
	}
}

// TestUnderwayLeave holds that who has left is not stopped any more, whatever the order of leaving.
func TestUnderwayLeave(t *testing.T) {
	t.Parallel()
	var u underway
	o := site(t, "https://example.com")
	all := make([]passage, 100)
	contexts := make([]context.Context, len(all))
	for i := range all {
		contexts[i] = u.enter(t.Context(), &all[i], o, "alpha")
	}
	for i := 0; i < len(all); i += 3 {
		all[i].leave()
		all[i].leave() // the second time does nothing
	}
	var switches enforce.KillSwitch
	if err := switches.Set(enforce.Kill{Scope: enforce.KillAll}); err != nil {
		t.Fatal(err)
	}
	if n := u.stop(&switches); n != 66 {
		t.Errorf("stopped %d, want 66", n)
	}
	for i, ctx := range contexts {
		if left := i%3 == 0; left != errors.Is(context.Cause(ctx), context.Canceled) {
			t.Errorf("%d: %v", i, context.Cause(ctx))
		}
		all[i].leave()
	}
	for i := range u.lanes {
		if u.lanes[i].first != nil {
			t.Errorf("lane %d is not empty", i)
		}
	}
}

// TestUnderwayNothingSlips lets requests and orders race: whoever was let pass is found by the order.
func TestUnderwayNothingSlips(t *testing.T) {
	t.Parallel()
	o := site(t, "https://example.com")
	for range 200 {
		var u underway
		var switches enforce.KillSwitch
		var group sync.WaitGroup
		begin, ended := make(chan struct{}), make(chan struct{})
		for range 8 {
			group.Go(func() {
				<-begin
				var p passage
				ctx := u.enter(context.Background(), &p, o, "alpha")
				defer p.leave()
				if _, stopped := switches.Match(o, "alpha"); stopped {
					return
				}
				<-ended
				if stopOf(ctx) == nil {
					t.Error("a request was let pass, and the order did not end it")
				}
			})
		}
		close(begin)
		if err := switches.Set(enforce.Kill{Scope: enforce.KillHost, Value: "example.com"}); err != nil {
			t.Fatal(err)
		}
		u.stop(&switches)
		close(ended)
		group.Wait()
	}
}

func TestStopOf(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancelCause(t.Context())
	if stopOf(ctx) != nil {
		t.Error("a live context was stopped")
	}
	cancel(errors.New("something else"))
	if stopOf(ctx) != nil {
		t.Error("another cause is no stop")
	}
	if s := (&stoppedError{enforce.Kill{Scope: enforce.KillAll}}).Error(); !strings.HasSuffix(s, ": all") {
		t.Errorf("got %q", s)
	}
}

// BenchmarkUnderway is what the register costs a request.
func BenchmarkUnderway(b *testing.B) {
	var u underway
	o := site(b, "https://example.com")
	ctx := b.Context()
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		var p passage
		for pb.Next() {
			u.enter(ctx, &p, o, "alpha")
			p.leave()
		}
	})
}

// BenchmarkUnderwayStop is how long an order takes with 10,000 requests under way and 1,000 orders in force.
func BenchmarkUnderwayStop(b *testing.B) {
	var u underway
	var switches enforce.KillSwitch
	for i := range 1000 {
		if err := switches.Set(enforce.Kill{Scope: enforce.KillAgent, Value: strings.Repeat("x", 1+i%60) + string(rune('a'+i%26)) + strings.Repeat("y", i/60)}); err != nil {
			b.Fatal(err)
		}
	}
	all := make([]passage, 10_000)
	o := site(b, "https://example.com")
	for i := range all {
		u.enter(context.Background(), &all[i], o, "alpha")
	}
	b.ReportAllocs()
	for b.Loop() {
		if u.stop(&switches) != 0 {
			b.Fatal("something was stopped")
		}
	}
}
