package crawlgate

import (
	"errors"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

// TestNothingIsOpenedAfterCleanup: a request of a configuration that was refused must not take the store, which nobody
// would give back.
func TestNothingIsOpenedAfterCleanup(t *testing.T) {
	t.Parallel()
	a := new(App)
	if err := a.Cleanup(); err != nil {
		t.Fatal(err)
	}
	if err := a.open(); !errors.Is(err, errEnded) {
		t.Errorf("opened: %v", err)
	}
}

// TestFirstConfigurationIsInForce: the admin API knows a gateway as soon as that takes requests, which may be before Caddy
// starts its app. A configuration that is loaded beside it counts from its start on.
func TestFirstConfigurationIsInForce(t *testing.T) {
	provisioned := func() *App {
		t.Helper()
		ctx, cancel := caddy.NewContext(caddy.Context{Context: t.Context()})
		t.Cleanup(cancel)
		a := &App{Store: &StoreConfig{Kind: "none"}}
		if err := a.Provision(ctx); err != nil {
			t.Fatal(err)
		}
		if err := a.open(); err != nil {
			t.Fatal(err)
		}
		return a
	}
	end := func(a *App) {
		t.Helper()
		if err := a.Cleanup(); err != nil {
			t.Error(err)
		}
	}
	first := provisioned()
	if engines.inForce() != first {
		t.Error("the only configuration is not in force")
	}
	refused := provisioned()
	if engines.inForce() != first {
		t.Error("a configuration is in force before its start")
	}
	end(refused)
	next := provisioned()
	next.enter()
	if engines.inForce() != next {
		t.Error("a configuration is not in force after its start")
	}
	end(first)
	end(next)
	if engines.inForce() != nil {
		t.Error("a configuration is in force after its end")
	}
}

// BenchmarkOpen is what each request pays for asking whether the store is open. With -cpu 1,8 it shows that none waits for
// another.
func BenchmarkOpen(b *testing.B) {
	a := new(App)
	a.opening.Do(func() {})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if err := a.open(); err != nil {
				b.Error(err)
			}
		}
	})
}
