package engine

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock"
)

// pacing is the politeness of the process. There is one for each Redis that it shares its clocks
// by, and one where it shares none: a reload must not reset any host's clock. What hosts asked for
// by 429, 430 and 503 is kept over a restart too, and so are their Crawl-delays.
type pacing struct {
	key    string
	pacer  *pace.Pacer
	logger *zap.Logger

	shared   *redisclock.Clock // nil: this gateway keeps its clocks to itself
	link     *redisLink        // of shared
	endWatch func()            // of link

	writing sync.Mutex // guards the two below
	folder  string     // of the files
	ended   bool       // the last write was made

	mu    sync.Mutex
	last  redisclock.LastMembership
	timer *time.Timer // writes changes to the files; nil without changes
}

var (
	blocksFile = stateFile{
		"blocks.json", "the hosts that asked to be left alone",
		"to begin without: they are asked again, Crawl-delays apart from this start, and may ask for another pause",
	}
	gatewaysFile = stateFile{
		"gateways.json", "the number of gateways that share the clocks",
		"to begin without: the gateways are counted again as soon as Redis answers",
	}
)

const (
	// blocksKept bounds the file of blocks and slots, see [pace.Pacer.States].
	blocksKept = 100_000
	// blocksDelay collects the blocks of a bad moment into one write. A crash forgets at most those of
	// as long.
	blocksDelay = time.Second
)

// acquirePacing makes the clocks that e shares with other gateways or with none, or finds them.
// isNew says that no gateway has run with the store: then no host can have been asked of late.
func acquirePacing(e *Engine, isNew bool) (*pacing, error) {
	key := "pacing " + e.Config.Prefix + " " + e.Config.SharedClocks
	return acquire(key, func() (*pacing, error) { return openPacing(e, key, isNew) })
}

func openPacing(e *Engine, key string, isNew bool) (*pacing, error) {
	p := &pacing{key: key, folder: e.Config.Store.folder(), logger: e.logger}
	var states []pace.State
	if err := blocksFile.read(p.folder, &states); err != nil {
		return nil, err
	}
	config := p.config(e)
	if err := p.share(e, &config); err != nil {
		return nil, err
	}
	pacer := pace.New(config)
	if states != nil || !isNew {
		pacer.Restore(states)
	}
	p.mu.Lock() // the shared clock may have something to write down already
	p.pacer = pacer
	p.mu.Unlock()
	p.save() // the file must not tell of an orderly end any more, once a request has gone
	return p, nil
}

// share connects the clocks with the other gateways' if the configuration says so.
func (p *pacing) share(e *Engine, config *pace.Config) error {
	if e.Config.SharedClocks == "" {
		return nil
	}
	if err := gatewaysFile.read(p.folder, &p.last); err != nil {
		return err
	}
	var err error
	if p.link, err = acquireLink(e, e.Config.SharedClocks); err != nil {
		return fmt.Errorf("sharing clocks: %w", err)
	}
	// The more gateways there may be, the less each of them takes while Redis is away.
	p.shared = redisclock.New(p.link.Link, max(e.Config.Fleet.Expect, p.last.Gateways))
	p.endWatch = p.link.Watch(p.counted)
	config.Shared = p.shared
	return nil
}

// counted notes how many gateways share clocks, for a start without Redis. A Redis that has just
// come back may not have been told of all.
func (p *pacing) counted(s link.State, _ bool) {
	if !s.Up || time.Since(s.Since) < link.AliveFor {
		return
	}
	p.mu.Lock()
	before := p.last.Gateways
	p.last = p.last.Counted(s.Clocks, time.Now())
	changed := p.last.Gateways != before
	p.mu.Unlock()
	if changed {
		p.note()
	}
}

func (p *pacing) config(e *Engine) pace.Config {
	config := e.Config.Clocks
	config.Observer = clockObserver{p}
	return config
}

// apply gives the clocks the limits of e, and keeps the blocks beside its store.
func (p *pacing) apply(e *Engine) {
	p.pacer.Configure(p.config(e))
	p.writing.Lock()
	moved := p.folder != e.Config.Store.folder()
	p.folder = e.Config.Store.folder()
	p.writing.Unlock()
	if moved {
		p.save()
	}
}

// importBlocks adds the state of the clocks that were used before. Requests of an earlier
// configuration may still use them.
func (p *pacing) importBlocks(before *pacing) {
	if p != before {
		p.pacer.Merge(before.pacer.States(blocksKept, true))
		p.note()
	}
}

// note has the blocks, the gaps and the number of gateways written down soon.
func (p *pacing) note() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		return
	}
	p.timer = time.AfterFunc(blocksDelay, func() {
		p.mu.Lock()
		p.timer = nil
		p.mu.Unlock()
		p.save()
	})
}

func (p *pacing) save() {
	if err := p.write(false); err != nil {
		p.logger.Error("keeping the blocks of hosts and the number of gateways", zap.Error(err))
	}
}

// write writes them down, at the end with the last slot of each host.
func (p *pacing) write(end bool) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if p.ended {
		return nil
	}
	p.ended = end
	err := blocksFile.write(p.folder, p.pacer.States(blocksKept, end))
	p.mu.Lock()
	last := p.last
	p.mu.Unlock()
	if last.Gateways > 0 {
		err = errors.Join(err, gatewaysFile.write(p.folder, last))
	}
	return err
}

// Destruct writes them down a last time, or leaves that to the clocks that are used now.
func (p *pacing) Destruct() error {
	p.mu.Lock()
	if p.timer != nil {
		p.timer.Stop()
	}
	p.mu.Unlock()
	var err error
	if e := Current(); e != nil && e.pacing != p {
		e.pacing.importBlocks(p)
	} else {
		err = p.write(true)
	}
	if p.shared != nil {
		p.endWatch()
		p.shared.Close()
		err = errors.Join(err, p.link.release())
	}
	return err
}

// Unblock ends the back-off of one clock, has that written down, and reports which one it was if
// there was one. The error says that the other gateways cannot be told, or that a restart may bring
// the block back.
func (e *Engine) Unblock(key string) (block pace.State, found bool, err error) {
	block, found, err = e.pacing.pacer.Unblock(key)
	if found {
		err = errors.Join(err, e.pacing.write(false))
		e.logger.Info("back-off lifted by the operator",
			zap.String("clock", key), zap.Time("blocked_until", block.Until), zap.Int("strikes", block.Strikes))
	}
	return block, found, err
}
