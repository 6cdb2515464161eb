package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
	"github.com/crawlgate/crawlgate/robotscache/redisstore"
)

// records is the cache over one store. It is shared by all configurations that name the same store.
type records struct {
	store   robotscache.Store // the cache's
	cache   *robotscache.Cache
	fetcher currentFetcher
	files   atomic.Pointer[robotscache.Cache] // of TDM files; nil until a configuration reads them
}

// acquireRecords opens the store of e, or returns the open one.
func acquireRecords(e *Engine) (*records, error) {
	url := ""
	if e.Config.Store.Kind == "redis" {
		url = e.Config.Store.URL
	}
	l, err := acquireLink(e, "redis store", url)
	if err != nil {
		return nil, err
	}
	r, err := acquire(e, "records "+e.Config.Store.identity(e.Config.Prefix), func() (*records, error) { return openRecords(e, l) })
	if err == nil && e.Config.Signals.TDMFile {
		err = r.openFiles(e)
	}
	return r, err
}

// apply makes new lookups and fetches follow the configuration of e.
func (r *records) apply(e *Engine) {
	r.fetcher.Store(e)
	r.cache.Configure(e.Config.Cache)
	if f := r.files.Load(); f != nil {
		f.Configure(tdmConfig(e.Config.Cache))
	}
	if s, ok := r.store.(interface{ SetRetention(r robotscache.Retention) }); ok && e.Config.Store.module == nil {
		s.SetRetention(e.Config.Store.retention())
	}
}

// Destruct closes the cache, which writes pending records and closes the store.
func (r *records) Destruct() error {
	err := r.cache.Close()
	if f := r.files.Load(); f != nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("closing the store of robots.txt records: %w", err)
	}
	return nil
}

func openRecords(e *Engine, l *link.Link) (*records, error) {
	r := new(records)
	observer := &cacheObserver{
		logger: e.logger.Named("cache"), fetcher: &r.fetcher,
		short: rate.Sometimes{Interval: time.Minute}, full: rate.Sometimes{Interval: time.Hour},
	}
	var err error
	if r.store, err = e.Config.Store.open(l, observer.textsDropped); err != nil {
		return nil, err
	}
	r.fetcher.Store(e)
	config := e.Config.Cache
	config.Store, config.Fetcher, config.Observer = r.store, &r.fetcher, observer
	if r.cache, err = robotscache.New(config); err != nil {
		return nil, errors.Join(err, r.store.Close())
	}
	return r, nil
}

// redisTimeout bounds a call of the shared store. It is generous, because a gateway that gives up
// on a slow answer may fetch a file that another one is already fetching.
const redisTimeout = 1500 * time.Millisecond

// StoreModule is a module in the namespace robots.stores: a kind of store. docs/contributing.md
// says how to write one.
type StoreModule interface {
	caddy.Module
	// OpenStore opens the store. It outlives the module: configurations in which the kind has the same
	// JSON share one open store, which is closed after the last of them.
	OpenStore() (robotscache.Store, error)
}

const storeNamespace = "robots.stores"

// ownKinds are the built-in kinds of stores.
var ownKinds = []string{"file", "redis", "none"}

func init() {
	for _, kind := range ownKinds {
		caddy.RegisterModule(&Store{Kind: kind})
	}
}

// StoreKinds returns the kinds of stores that this binary has.
func StoreKinds() (kinds []string) {
	for _, m := range caddy.GetModules(storeNamespace) {
		kinds = append(kinds, m.ID.Name())
	}
	return kinds
}

// Store says where the records of origins are kept between requests, reloads and restarts.
type Store struct {
	// Kind is `file`, `redis`, `none` (in memory, until the process ends) or the name of another
	// module in `robots.stores`, which has fields of its own. Default: `file`, or `redis` if the
	// app has a `redis`.
	Kind string `json:"kind,omitempty"`
	// Path is the file of kind `file`, a bbolt database. Default: `crawlgate/robots.db` in Caddy's
	// data directory.
	Path string `json:"path,omitempty"`
	// URL is the server of kind `redis`, such as `redis://user:password@host:6379/0`. Placeholders are
	// replaced. Default: the URL of the app's `redis`.
	URL string `json:"url,omitempty"`
	// Retain is how long the text of a robots.txt is kept after the last decision that used it, so
	// that an audit finds it: at most 100 years. Keep it at least as long as access logs. For kinds
	// `file` and `redis`. Default: 400 days.
	Retain caddy.Duration `json:"retain,omitempty"`
	// RetainMax is the size of these texts in the file, in bytes as they are stored, about a fifth
	// of their length: at least 16 MiB. Beyond it, the texts go first that were used least
	// recently, which is counted and logged. For kind `file`; Redis has its `maxmemory`. Default: 4
	// GiB.
	RetainMax int64 `json:"retain_max,omitempty"`

	other  json.RawMessage // the fields of another module's kind, including the kind
	module StoreModule     // nil for built-in kinds
}

// CaddyModule returns the Caddy module information of a kind.
func (s *Store) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{
		ID:  caddy.ModuleID(storeNamespace + "." + s.Kind),
		New: func() caddy.Module { return &Store{Kind: s.Kind} },
	}
}

// OwnKind reports whether the kind is built in, or the default.
func (s *Store) OwnKind() bool {
	return s.Kind == "" || slices.Contains(ownKinds, s.Kind)
}

// storeFields are the fields of the built-in kinds.
type storeFields Store

// UnmarshalJSON leaves the fields of other kinds to their module.
func (s *Store) UnmarshalJSON(text []byte) error {
	var named struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(text, &named); err != nil {
		return err
	}
	if other := (Store{Kind: named.Kind}); !other.OwnKind() {
		other.other = bytes.Clone(text)
		*s = other
		return nil
	}
	return caddy.StrictUnmarshalJSON(text, (*storeFields)(s))
}

// MarshalJSON returns what UnmarshalJSON reads.
func (s Store) MarshalJSON() ([]byte, error) {
	if s.other != nil {
		return s.other, nil
	}
	return json.Marshal(storeFields(s))
}

// Load provisions the module of a kind that is not built in.
func (s *Store) Load(ctx caddy.Context) error {
	if s.OwnKind() {
		return nil
	}
	fields := make(map[string]json.RawMessage)
	if err := json.Unmarshal(s.other, &fields); err != nil {
		return err
	}
	delete(fields, "kind")
	text, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	id := storeNamespace + "." + s.Kind
	module, err := ctx.LoadModuleByID(id, text)
	if err != nil {
		return err
	}
	var ok bool
	if s.module, ok = module.(StoreModule); !ok {
		return fmt.Errorf("module %s: %T has no method OpenStore", id, module)
	}
	return nil
}

// retention says how long texts are kept, in a file or a Redis.
func (s Store) retention() robotscache.Retention {
	return robotscache.Retention{For: time.Duration(s.Retain), Max: s.RetainMax}
}

// identity names the store. Two configurations with the same identity share it.
func (s Store) identity(prefix string) string {
	switch s.Kind {
	case "none":
		return s.Kind
	case "file":
		return "file " + s.Path
	case "redis":
		return "redis " + prefix + " " + s.URL
	}
	return s.Kind + " " + string(s.other)
}

// folder returns the folder for the state files of the process, or "".
func (s Store) folder() string {
	switch s.Kind {
	case "none":
		return ""
	case "file":
		return filepath.Dir(s.Path)
	}
	return filepath.Join(caddy.AppDataDir(), "crawlgate")
}

// isNew reports whether the store is a file that does not exist yet, so no gateway has run with it.
func (s Store) isNew() bool {
	_, err := os.Stat(s.Path)
	return s.Kind == "file" && errors.Is(err, fs.ErrNotExist)
}

// open opens the store. l is the link of kind redis. It calls dropped for texts that the file
// drops.
func (s Store) open(l *link.Link, dropped func(texts int, early bool)) (robotscache.Store, error) {
	switch {
	case s.module != nil:
		return s.module.OpenStore()
	case s.Kind == "redis":
		return redisstore.New(redisstore.Config{Link: l, Retention: s.retention(), Timeout: redisTimeout}), nil
	case s.Kind == "none":
		return memstore.New(0), nil
	}
	return boltstore.Open(boltstore.Config{Path: s.Path, Retention: s.retention(), Dropped: dropped})
}

// currentFetcher fetches by the current configuration. A refresh that starts after a reload follows
// the new one, even if a request of the old one caused it.
type currentFetcher struct{ atomic.Pointer[Engine] }

// Fetch implements robotscache.Fetcher.
func (f *currentFetcher) Fetch(ctx context.Context, k fetch.Key, gate fetch.Gate) fetch.Outcome {
	e := f.Load()
	return e.fetch(ctx, e.fetcher, k, gate)
}

// fetch fetches a file from an origin, in the name of an agent if the key has one. A fetch that the
// operator stops counts as canceled, which says nothing about the site.
func (e *Engine) fetch(ctx context.Context, by *fetch.Fetcher, k fetch.Key, gate fetch.Gate) fetch.Outcome {
	e.Fleet().AwaitOrders(ctx)
	ctx, entry, _ := underWay.enter(ctx, &InFlight{origin: k.Origin}, math.MaxInt)
	defer entry.Leave()
	out := fetch.Outcome{Cause: fetch.CauseCanceled, Started: time.Now()}
	if err := e.StopsFetch(k.Origin); err != nil {
		out.Detail = err.Error()
		return out
	}
	if ctx.Err() == nil {
		out = by.Fetch(e.askAs(ctx, k.Agent), k, gate)
	}
	if stop := StoppedBy(ctx); stop != nil {
		return fetch.Outcome{Cause: fetch.CauseCanceled, Detail: stop.Error(), Started: out.Started, Duration: out.Duration}
	}
	return out
}

// StopsFetch returns why the robots.txt of an origin may not be fetched, or nil. The reason is a
// stop, or a deny list at every site: all sites share a record, and any site that may crawl the
// origin needs it.
func (e *Engine) StopsFetch(o origin.Origin) error {
	if order, stopped := e.stops.held.Match(o, ""); stopped {
		return fmt.Errorf("by a stop: %s", order)
	}
	if pattern, denied := e.denied(o); denied {
		return fmt.Errorf("by the configuration: deny %s", pattern)
	}
	return nil
}

// robotsTransport keeps redirects of robots.txt from leading to a host that the operator stops. It
// marks each hop of a fetch in an agent's name as the agent's.
type robotsTransport struct {
	http.RoundTripper
	stops func(origin.Origin) error
}

func (t robotsTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	o, err := origin.FromURL(r.URL)
	if err != nil {
		return nil, err
	}
	if err := t.stops(o); err != nil {
		return nil, stoppedHopError{err}
	}
	if a, ok := r.Context().Value(askedAs{}).(*enforce.Agent); ok {
		return sendAs(a, o, r, t.RoundTripper)
	}
	return t.RoundTripper.RoundTrip(r)
}

// stoppedHopError is the operator's refusal of a redirect.
type stoppedHopError struct{ error }

// Forbidden makes the fetcher treat the order as a refusal by the gateway.
func (stoppedHopError) Forbidden() string { return string(fetch.CauseForbiddenAddress) }
