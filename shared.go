package crawlgate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
	"github.com/crawlgate/crawlgate/robotscache/memstore"
	"github.com/crawlgate/crawlgate/robotscache/redisstore"
)

// pool holds what outlives a reload: Caddy starts the new configuration before it stops the old one, so for a
// moment both hold it.
var pool = caddy.NewUsagePool()

// holders are the configurations that use something shared, in the order of their start. The last one that has not
// ended is in force. A configuration whose start fails ends without ever having replaced the one before: a
// rejected reload must not change how the running gateway behaves.
type holders struct {
	mu   sync.Mutex
	apps []*App
}

// enter adds a and makes it the one in force.
func (h *holders) enter(a *App, apply func(*App)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.apps = append(h.apps, a)
	apply(a)
}

// leave takes a out; if it was in force, the one before is again.
func (h *holders) leave(a *App, apply func(*App)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.apps = slices.DeleteFunc(h.apps, func(other *App) bool { return other == a })
	if n := len(h.apps); n > 0 {
		apply(h.apps[n-1])
	}
}

// rulesets is the cache over one store. It is shared by all configurations that name the same store.
type rulesets struct {
	key     string
	cache   *robotscache.Cache
	fetcher liveFetcher
	holders holders
}

// acquireRulesets opens the store of a, or finds it open.
func acquireRulesets(a *App) (*rulesets, error) {
	key := "rulesets " + a.cfg.store.identity()
	value, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return openRulesets(a, key) })
	if err != nil {
		return nil, err
	}
	r, ok := value.(*rulesets)
	if !ok {
		return nil, fmt.Errorf("usage pool holds a %T under %q", value, key)
	}
	return r, nil
}

func (r *rulesets) release(a *App) error {
	r.holders.leave(a, r.apply)
	_, err := pool.Delete(r.key)
	return err
}

// apply makes the configuration of a the one that new lookups and fetches follow.
func (r *rulesets) apply(a *App) {
	r.fetcher.Store(a)
	r.cache.Configure(a.cacheConfig())
}

// Destruct closes the cache, which writes what is pending and closes the store.
func (r *rulesets) Destruct() error {
	if err := r.cache.Close(); err != nil {
		return fmt.Errorf("closing the store of robots.txt records: %w", err)
	}
	return nil
}

func openRulesets(a *App, key string) (*rulesets, error) {
	store, err := a.cfg.store.open()
	if err != nil {
		return nil, err
	}
	r := &rulesets{key: key}
	r.fetcher.Store(a)
	config := a.cacheConfig()
	config.Store, config.Fetcher = store, &r.fetcher
	config.Observer = &cacheObserver{metrics: instruments, logger: a.logger.Named("cache"), fetcher: &r.fetcher}
	if r.cache, err = robotscache.New(config); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return r, nil
}

// fetchShare is the part of the descriptors, one in so many, that fetches may hold: most only wait for their servers.
const fetchShare = 4

// cacheConfig is what of the cache's configuration may change while it runs.
func (a *App) cacheConfig() robotscache.Config {
	return robotscache.Config{
		Policy:    a.cfg.policy,
		IndexHTML: a.cfg.indexHTML,
		MaxSize:   a.cfg.maxSize,
		Budget:    a.cfg.fetch.timeout,
		Parallel:  a.cfg.fetch.parallel,
		InFlight:  descriptorLimit() / fetchShare,
	}
}

// redisTimeout bounds a call of the shared store. It is generous: a gateway that gives up on a slow answer fetches what
// another one fetches already.
const redisTimeout = 1500 * time.Millisecond

// identity names the store: two configurations with the same one share it.
func (c StoreConfig) identity() string {
	switch c.Kind {
	case "file":
		return "file " + c.Path
	case "redis":
		return "redis " + c.URL
	}
	return "none"
}

func (c StoreConfig) open() (robotscache.Store, error) {
	switch c.Kind {
	case "redis":
		return redisstore.New(redisstore.Config{URL: c.URL, Timeout: redisTimeout})
	case "none":
		return memstore.New(memstore.Config{}), nil
	}
	if err := os.MkdirAll(filepath.Dir(c.Path), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of the store: %w", err)
	}
	return boltstore.Open(boltstore.Config{Path: c.Path})
}
