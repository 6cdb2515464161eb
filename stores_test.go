package crawlgate

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
	"github.com/crawlgate/crawlgate/robotscache/storetest"
)

func init() {
	caddy.RegisterModule(new(shelf))
	caddy.RegisterModule(new(notAStore))
}

// shelf is a kind of store that another project could add.
type shelf struct {
	Name   string         `json:"name,omitempty"`
	Keep   caddy.Duration `json:"keep,omitempty"`
	loaded bool
}

var (
	shelvesOpened atomic.Int32
	lastShelf     atomic.Pointer[memstore.Store]
)

func (*shelf) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "robots.stores.shelf", New: func() caddy.Module { return new(shelf) }}
}

func (s *shelf) Provision(caddy.Context) error {
	s.loaded = true
	return nil
}

func (s *shelf) Validate() error {
	if s.Name == "" {
		return fmt.Errorf("shelf has no name")
	}
	return nil
}

func (s *shelf) OpenStore() (robotscache.Store, error) {
	if !s.loaded {
		return nil, fmt.Errorf("opened before it was provisioned")
	}
	shelvesOpened.Add(1)
	store := memstore.New(0)
	lastShelf.Store(store)
	return store, nil
}

func (s *shelf) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next() // the kind
	if d.NextArg() {
		s.Name = d.Val()
	}
	for d.NextBlock(0) {
		if d.Val() != "keep" || !d.NextArg() {
			return d.Errf("unknown option %q of shelf", d.Val())
		}
		keep, err := caddy.ParseDuration(d.Val())
		if err != nil {
			return d.WrapErr(err)
		}
		s.Keep = caddy.Duration(keep)
	}
	return nil
}

// notAStore has the name of a store, but is not one.
type notAStore struct{}

func (*notAStore) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "robots.stores.empty", New: func() caddy.Module { return new(notAStore) }}
}

// TestStoreOfAModule runs the test suite of stores, like another project would, on the store that
// its module opens.
func TestStoreOfAModule(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Medium {
		return storetest.Medium{Volatile: true, Versions: 10, Open: func(tb testing.TB) robotscache.Store {
			tb.Helper()
			store, err := (&shelf{Name: "a", loaded: true}).OpenStore()
			if err != nil {
				tb.Fatal(err)
			}
			return store
		}}
	})
}

// TestStoreModules checks that a module in robots.stores is a kind of store, in a Caddyfile and in
// JSON. An open store stays open over a reload that does not change its JSON, and records are kept
// in it.
func TestStoreModules(t *testing.T) {
	shelvesOpened.Store(0)

	dir, err := os.MkdirTemp("", "cg") //nolint:usetesting // short, because the path of a socket may have only about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(dir)
	})
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetPages(testorigin.OK("page"))
	socket := filepath.Join(dir, "proxy.sock")
	load := func(store, more string) {
		t.Helper()
		text := fmt.Sprintf("{\nadmin off\npersist_config off\nrobots {\nstore %s\negress {\nallow_private 127.0.0.0/8\n}\n%s}\n}\nhttp://:80 {\nbind unix/%s\nrobots\n}\n", store, more, socket)
		config, _, err := adapt(text, "Caddyfile")
		if err != nil {
			t.Fatal(err)
		}
		if want := `"store":{"keep":3600000000000,"kind":"shelf","name":"a`; !strings.Contains(string(config), want) {
			t.Fatalf("%s\nlacks %s", config, want)
		}
		if err := caddy.Load(config, true); err != nil {
			t.Fatal(err)
		}
		testgateway.AwaitOldListeners(t)
	}
	load("shelf a {\nkeep 1h\n}", "")
	load("shelf a {\nkeep 1h\n}", "index_html on\n")
	if n := shelvesOpened.Load(); n != 1 {
		t.Errorf("the store was opened %d times for two configurations with it, want 1", n)
	}
	first := lastShelf.Load()
	client := &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "gateway"}),
		Dial:  func(string, string) (net.Conn, error) { return net.Dial("unix", socket) }, //nolint:staticcheck // a socket
	}}
	defer client.CloseIdleConnections()
	resp, err := client.Get(site.URL("/"))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	testgateway.Until(t, "the store to have the record", func() bool {
		list, err := first.List(t.Context(), "", 0)
		return err == nil && len(list) == 1
	})
	load("shelf ab {\nkeep 1h\n}", "")
	if n := shelvesOpened.Load(); n != 2 {
		t.Errorf("%d stores were opened after a reload with another one, want 2", n)
	}
}

// TestBadStoreModules checks that faults in the configuration of a module are errors, with their
// line in a Caddyfile.
func TestBadStoreModules(t *testing.T) {
	for _, b := range []badLines{
		{"store shelf a {\nlend 1h\n}", 4, `unknown option "lend" of shelf`},
		{"store empty", 3, `module robots.stores.empty cannot be configured in a Caddyfile`},
		{"store crate", 3, `robots: store: kind "crate": want empty, file, none, redis, shelf`},
	} {
		_, _, err := adapt("{\n\trobots {\n"+b.lines+"\n\t}\n}\n", "Caddyfile")
		if want := fmt.Sprintf("%s, at Caddyfile:%d", b.err, b.line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", b.lines, err, want)
		}
	}
	for text, want := range map[string]string{
		`{"kind":"crate"}`:               `store: kind "crate": want empty, file, none, redis, shelf`,
		`{"kind":"shelf"}`:               `store: robots.stores.shelf: invalid configuration: shelf has no name`,
		`{"kind":"shelf","lend":1}`:      `unknown field "lend"`,
		`{"kind":"empty"}`:               `module robots.stores.empty: *crawlgate.notAStore has no method OpenStore`,
		`{"kind":"file","name":"a"}`:     `unknown field "name"`,
		`{"kind":"redis","url":"http:"}`: `store: redis url has scheme "http"`,
	} {
		if err := validate([]byte(`{"apps":{"robots":{"store":` + text + `}}}`)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	for _, text := range []string{`{"kind":"file","path":"/a"}`, `{"url":"x"}`, `{"kind":"shelf","name":"a"}`} {
		var s engine.Store
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(s); string(got) != text || err != nil {
			t.Errorf("the JSON %s of a store becomes %s, %v", text, got, err)
		}
	}
}
