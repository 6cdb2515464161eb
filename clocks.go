package crawlgate

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/enforce/pace"
	"github.com/crawlgate/crawlgate/enforce/pace/redisclock"
)

// clocks is the politeness of the process. There is one for each set of gateways that it shares its clocks with, and
// but one where it shares none: a reload must not make any host's clock start anew. What hosts asked for by 429 and 503
// is kept over a restart too.
type clocks struct {
	key     string
	pacer   *pace.Pacer
	shared  *redisclock.Clock // nil: this gateway keeps its clocks to itself
	holders holders
	book    notebook
	logger  *zap.Logger

	mu   sync.Mutex
	last redisclock.LastMembership

	changed chan struct{} // holds one signal: there is something to write down
	stop    chan struct{}
	stopped sync.WaitGroup
}

var (
	blocksPage = notePage{
		"blocks.json", "the hosts that asked to be left alone",
		"to begin without: they are asked again at once, and may ask for another pause",
	}
	gatewaysPage = notePage{
		"gateways.json", "the number of gateways that share the clocks",
		"to begin without: the gateways are counted again as soon as Redis answers",
	}
)

const (
	// blocksKept bounds the page. Blocks that last longest go first.
	blocksKept = 100_000
	// blocksDelay collects the blocks of a bad moment into one write. A crash forgets at most those of as long.
	blocksDelay = time.Second
)

func acquireClocks(a *App) (*clocks, error) {
	key := "clocks " + a.cfg.pace.shared
	value, _, err := pool.LoadOrNew(key, func() (caddy.Destructor, error) { return openClocks(a, key) })
	if err != nil {
		return nil, err
	}
	c, ok := value.(*clocks)
	if !ok {
		return nil, fmt.Errorf("usage pool holds a %T under %q", value, "clocks")
	}
	return c, nil
}

func openClocks(a *App, key string) (*clocks, error) {
	c := &clocks{
		key: key, book: notebook{folder: folderOf(a.cfg.store)}, logger: a.logger,
		changed: make(chan struct{}, 1), stop: make(chan struct{}),
	}
	var blocks []pace.Block
	if err := c.book.read(blocksPage, &blocks); err != nil {
		return nil, err
	}
	config := c.config(a)
	if err := c.share(a, &config); err != nil {
		return nil, err
	}
	c.pacer = pace.New(config)
	c.pacer.Restore(blocks)
	c.stopped.Go(c.keep)
	return c, nil
}

// share connects the clocks with those of the other gateways, where that is wanted.
func (c *clocks) share(a *App, config *pace.Config) error {
	url := a.cfg.pace.shared
	if url == "" {
		return nil
	}
	if err := c.book.read(gatewaysPage, &c.last); err != nil {
		return err
	}
	var err error
	c.shared, err = redisclock.New(redisclock.Config{
		// The more gateways there may be, the less each of them takes while Redis is away.
		URL: url, Gateways: max(a.cfg.pace.gateways, c.last.Gateways), Changed: c.sharedChanged, Counted: c.counted,
	})
	if err != nil {
		return fmt.Errorf("sharing clocks: %w", err)
	}
	config.Shared = c.shared
	return nil
}

// counted notes how many gateways there are, for a start without Redis.
func (c *clocks) counted(gateways int) {
	c.mu.Lock()
	before := c.last.Gateways
	c.last = c.last.Counted(gateways, time.Now())
	changed := c.last.Gateways != before
	c.mu.Unlock()
	if changed {
		note(c.changed)
	}
}

func (c *clocks) config(a *App) pace.Config {
	p := a.cfg.pace
	return pace.Config{
		Wait:     p.Wait,
		Queue:    p.queue,
		Idle:     p.CrawlDelay.Max,
		Backoff:  pace.Backoff{Off: !p.backoff, First: p.backoffMin, Max: p.backoffMax},
		Observer: clockObserver{instruments, c.changed},
	}
}

func (c *clocks) apply(a *App) { c.pacer.Configure(c.config(a)) }

func (c *clocks) release(a *App) error {
	c.holders.leave(a, c.apply)
	_, err := pool.Delete(c.key)
	return err
}

// keep writes the blocks and the number of gateways down soon after they changed.
func (c *clocks) keep() {
	for {
		select {
		case <-c.stop:
			return
		case <-c.changed:
		}
		select {
		case <-c.stop:
			return
		case <-time.After(blocksDelay):
		}
		if err := c.write(); err != nil {
			c.logger.Error("keeping the blocks of hosts and the number of gateways", zap.Error(err))
		}
	}
}

func (c *clocks) write() error {
	err := c.book.write(blocksPage, c.pacer.Blocks(blocksKept))
	c.mu.Lock()
	last := c.last
	c.mu.Unlock()
	if last.Gateways > 0 {
		err = errors.Join(err, c.book.write(gatewaysPage, last))
	}
	return err
}

// Destruct writes them down a last time.
func (c *clocks) Destruct() error {
	close(c.stop)
	c.stopped.Wait()
	err := c.write()
	if c.shared != nil {
		err = errors.Join(err, c.shared.Close())
	}
	return err
}

// sharedChanged tells the operator, once each time, that the clocks are not shared for a while.
func (c *clocks) sharedChanged(up bool, why error) {
	instruments.sharedUp.Set(map[bool]float64{true: 1}[up])
	if up {
		c.logger.Info("clocks are shared with the other gateways")
		return
	}
	c.logger.Error("clocks cannot be shared; each gateway keeps to its part of the rate", zap.Error(why))
}

// clockObserver counts what the pacer does, and notes when there is something to keep.
type clockObserver struct {
	*metrics
	changed chan<- struct{}
}

// Blocked implements pace.Observer.
func (o clockObserver) Blocked(explicit bool) {
	o.metrics.Blocked(explicit)
	note(o.changed)
}

// note leaves a signal.
func note(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default: // noted already
	}
}
