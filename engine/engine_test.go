package engine

import (
	"errors"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/crawlgate/crawlgate/egress"
)

// TestNothingIsOpenedAfterCleanup: a request of a configuration that was refused must not take the store, which nobody
// would give back.
func TestNothingIsOpenedAfterCleanup(t *testing.T) {
	t.Parallel()
	e := new(Engine)
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Open(); !errors.Is(err, errEnded) {
		t.Errorf("opened: %v", err)
	}
}

// open makes an engine with an address guard and opens it.
func open(tb testing.TB, c Config) *Engine {
	tb.Helper()
	ctx, cancel := caddy.NewContext(caddy.Context{Context: tb.Context()})
	tb.Cleanup(cancel)
	c.Store.Kind = "none"
	c.Egress.Dialer = &egress.Dialer{Guard: new(egress.Guard)}
	e, err := New(ctx, c)
	if err != nil {
		tb.Fatal(err)
	}
	if err := e.Open(); err != nil {
		tb.Fatal(err)
	}
	return e
}

// TestFirstConfigurationIsCurrent: the admin API knows a gateway as soon as that takes requests, which may be before Caddy
// starts its app. A configuration that is loaded beside it counts from its start on.
func TestFirstConfigurationIsCurrent(t *testing.T) {
	opened := func() *Engine { return open(t, Config{}) }
	end := func(e *Engine) {
		t.Helper()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
	first := opened()
	if Current() != first {
		t.Error("the only configuration is not current")
	}
	refused := opened()
	if Current() != first {
		t.Error("a configuration is current before its start")
	}
	end(refused)
	next := opened()
	next.enter()
	if Current() != next {
		t.Error("a configuration is not current after its start")
	}
	end(first)
	end(next)
	if Current() != nil {
		t.Error("a configuration is current after its end")
	}
}

// BenchmarkOpen is what each request pays for asking whether the store is open. With -cpu 1,8 it shows that none waits for
// another.
func BenchmarkOpen(b *testing.B) {
	e := new(Engine)
	e.opening.Do(func() {})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := e.Open(); err != nil {
				b.Error(err)
			}
		}
	})
}
