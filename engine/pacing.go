package engine

import (
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/pace/redisclock"
)

// pacing holds the clocks of the process. There is one for each Redis that it shares clocks
// through, and one without sharing, because a reload must not reset any host's clock. The pauses
// that hosts asked for by 429, 430 and 503, and their Crawl-delays, also survive a restart.
type pacing struct {
	pacer  *pace.Pacer
	logger *zap.Logger

	shared   *redisclock.Clock // nil: this gateway does not share its clocks
	link     *link.Link        // of shared
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
	// blocksDelay collects blocks that come together into one write. A crash loses at most the blocks
	// of that time.
	blocksDelay = time.Second
)

// openPacing makes the clocks that e shares with other gateways or keeps to itself. isNew says that
// no gateway has run with the store, so no host can have had a recent request.
func openPacing(e *Engine, l *link.Link, isNew bool) (*pacing, error) {
	p := &pacing{link: l, folder: e.Config.Store.folder(), logger: e.logger}
	var states []pace.State
	if err := blocksFile.read(p.folder, &states); err != nil {
		return nil, err
	}
	config := p.config(e)
	if l != nil {
		if err := gatewaysFile.read(p.folder, &p.last); err != nil {
			return nil, err
		}
		// The more gateways there may be, the less each of them uses while Redis is away.
		p.shared = redisclock.New(l, max(e.Config.Fleet.Expect, p.last.Gateways))
		p.endWatch = l.Watch(p.counted)
		config.Shared = p.shared
	}
	pacer := pace.New(config)
	if states != nil || !isNew {
		pacer.Restore(states)
	}
	p.mu.Lock() // the shared clock may already have something to save
	p.pacer = pacer
	p.mu.Unlock()
	p.save() // once a request has been sent, the file must no longer report a clean shutdown
	return p, nil
}

// counted records how many gateways share clocks, for a start without Redis. A Redis that has just
// come back may not know all of them yet.
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

// apply sets the clocks' limits to those of e, and keeps the blocks in the folder of its store.
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

// importBlocks adds the state of the previous clocks. Requests of an earlier configuration may
// still use those.
func (p *pacing) importBlocks(before *pacing) {
	if p != before {
		p.pacer.Merge(before.pacer.States(blocksKept, true))
		p.note()
	}
}

// note schedules a write of the blocks, the gaps and the number of gateways.
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

// write saves them and, at the end of the process, the last slot of each host.
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

// Destruct saves them a last time, or leaves that to the current clocks.
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
	}
	return err
}

// Unblock ends the block of one clock, saves that, and reports the block if there was one. The
// error says that the other gateways cannot be told, or that a restart may bring the block back.
func (e *Engine) Unblock(key string) (block pace.State, found bool, err error) {
	block, found, err = e.pacing.pacer.Unblock(key)
	if found {
		err = errors.Join(err, e.pacing.write(false))
		e.logger.Info("back-off lifted by the operator",
			zap.String("clock", key), zap.Time("blocked_until", block.Until), zap.Int("strikes", block.Strikes))
	}
	return block, found, err
}
