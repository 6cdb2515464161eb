package adminapi_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
)

func init() { caddy.RegisterModule(new(shaky)) }

// shaky is a kind of memory store that sometimes does not answer.
type shaky struct{}

var (
	shakyStore *memstore.Store // of the test that runs
	failures   atomic.Int32    // number of calls that still fail
)

func (*shaky) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "robots.stores.shaky", New: func() caddy.Module { return new(shaky) }}
}

func (*shaky) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (*shaky) OpenStore() (robotscache.Store, error) { return failingStore{shakyStore}, nil }

type failingStore struct{ *memstore.Store }

func (s failingStore) Load(ctx context.Context, k fetch.Key) (fetch.Record, error) {
	if failures.Add(-1) >= 0 {
		return fetch.Record{}, errors.New("the store does not answer")
	}
	return s.Store.Load(ctx, k)
}

// TestRefreshKeepsHistory checks that a refresh forgets an unreachable origin only if it was
// unknown before. A store that does not answer may know it.
func TestRefreshKeepsHistory(t *testing.T) {
	shakyStore = memstore.New(0)
	dir := t.TempDir()
	text := fmt.Sprintf("{\nadmin off\npersist_config off\nrobots {\nstore shaky\negress {\nallow_private 127.0.0.0/8\n}\n}\n}\nhttp://:80 {\nbind unix/%s\nrobots\n}\n",
		filepath.Join(dir, "proxy.sock"))
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	server := testorigin.Start(t, testorigin.Config{})
	for _, tt := range []struct {
		name     string
		history  bool
		failures int32
	}{{"new", false, 0}, {"known", true, 0}, {"known, but the store fails once", true, 1}} {
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetRobots(testorigin.Status(500))
		o := site.Origin()
		if tt.history {
			for age, state := range []fetch.State{fetch.StateAbsent, fetch.StateUnreachable} {
				at := time.Now().Add(-time.Duration(2-age) * time.Hour)
				r := fetch.Record{Origin: o, State: state, FetchedAt: at, FreshUntil: at}
				if state == fetch.StateUnreachable {
					r.Cause, r.Status, r.UnreachableSince = fetch.CauseStatus, 500, at
				}
				if err := shakyStore.Save(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
		}
		failures.Store(tt.failures)
		got, err := adminapi.Refresh(t.Context(), engine.Current(), adminapi.OriginRequest{Origin: o.String()})
		failures.Store(0)
		kept, _ := engine.Current().Cache().History(t.Context(), fetch.Key{Origin: o})
		if err != nil || got.Forgotten == tt.history || (len(kept) > 1) != tt.history {
			t.Errorf("%s: forgotten %t, error %v, %d versions are left", tt.name, got.Forgotten, err, len(kept))
		}
	}
}
