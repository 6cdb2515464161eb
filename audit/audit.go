package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Config is what an [Auditor] is made of. Fields that are zero take their defaults.
type Config struct {
	// Texts finds the texts that lines rest on. Required.
	Texts Texts
	// OwnGroupOnly are the names of agents that the group * does not bind (ignore_wildcard_group): the
	// log does not tell of it.
	OwnGroupOnly []string
	// IndexHTML is the option of robotstxt.Options that the gateway uses.
	IndexHTML bool
	// Redacted is what the filter of the log writes in place of a query or of a part of it. Empty: the
	// log has all queries.
	Redacted string
	// MinDelay and MaxDelay are the bounds within which the operator keeps a Crawl-delay; 0 is no
	// bound.
	MinDelay, MaxDelay time.Duration
	// Tolerance is by how much a gap may fall short of the delay: what a busy machine lets pass
	// between the two readings of its clock that a line is made of.
	Tolerance time.Duration
	// Workers is how many lines are read at the same time. Default: GOMAXPROCS.
	Workers int

	limits limits // for tests
	room   int
}

// Defaults of the bounds: some 200 MiB if all are met.
const (
	defaultRoom       = 64 << 20
	defaultAgents     = 10_000
	defaultExceptions = 1_000
	defaultTexts      = 10_000
	defaultHosts      = 50_000
)

// Auditor replays logs. It may be used for one Run.
type Auditor struct {
	cfg    Config
	judge  *judge
	hosts  *hosts
	counts *counts
	report Report
}

// Report is told what is found, in the order of the lines. Finding or Fault may be nil.
type Report struct {
	Finding func(Finding) error
	Fault   func(Fault) error
	// Progress is called now and then with the number of lines so far.
	Progress func(lines int64)
}

// New makes an Auditor.
func New(cfg Config) (*Auditor, error) {
	if cfg.Texts == nil {
		return nil, errors.New("auditing: there is nowhere to find texts")
	}
	if cfg.Workers <= 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	if cfg.room == 0 {
		cfg.room = defaultRoom
	}
	if cfg.limits == (limits{}) {
		cfg.limits = limits{defaultAgents, defaultExceptions, defaultTexts, defaultHosts}
	}
	a := &Auditor{cfg: cfg, hosts: newHosts(cfg.Tolerance, cfg.limits.hosts), counts: newCounts(cfg.limits)}
	a.judge = &judge{redacted: cfg.Redacted}
	for _, name := range cfg.OwnGroupOnly {
		a.judge.ownGroupOnly = append(a.judge.ownGroupOnly, strings.ToLower(name))
	}
	return a, nil
}

// looked is a line that was read and judged.
type looked struct {
	entry   entry
	verdict verdict
	err     error
}

// Run reads the logs one after the other. It ends early when ctx ends or a function of the report
// returns an error. Errors of a log go to the report.
func (a *Auditor) Run(ctx context.Context, sources []Source, report Report) (Totals, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	a.judge.texts, a.report = newTexts(ctx, a.cfg), report
	// The same batches go two ways: to any idle worker that judges them, and to be counted in their
	// order.
	work, inOrder := make(chan *batch), make(chan *batch, 2*a.cfg.Workers)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop(nil) // before the wait
	group.Go(func() {
		defer close(work)
		defer close(inOrder)
		for _, s := range sources {
			a.read(ctx, s, work, inOrder)
		}
	})
	for range a.cfg.Workers {
		group.Go(func() {
			for b := range work {
				a.look(b)
			}
		})
	}
	for b := range inOrder {
		select {
		case <-b.done:
		case <-ctx.Done():
			return a.Totals(), context.Cause(ctx)
		}
		if err := a.count(b); err != nil {
			return a.Totals(), err
		}
	}
	return a.Totals(), context.Cause(ctx)
}

// read hands on the batches of one log.
func (a *Auditor) read(ctx context.Context, s Source, work, inOrder chan<- *batch) {
	emit := func(b *batch) bool {
		for _, to := range []chan<- *batch{inOrder, work} {
			select {
			case to <- b:
			case <-ctx.Done():
				return false
			}
		}
		return true
	}
	f, err := s.Open()
	var r io.Reader
	if err == nil {
		defer func() { _ = f.Close() }() // it was only read
		r, err = unpack(f)
	}
	if err != nil {
		emit(&batch{file: s.Name, lines: []rawLine{{err: err}}, done: make(chan struct{}), last: true})
		return
	}
	if c, ok := r.(io.Closer); ok {
		defer func() { _ = c.Close() }() // as above
	}
	readLines(s.Name, r, batchSize, emit)
}

// look reads and judges the lines of a batch.
func (a *Auditor) look(b *batch) {
	defer close(b.done)
	b.looks = make([]looked, len(b.lines))
	for i, l := range b.lines {
		k := &b.looks[i]
		if k.err = l.err; k.err != nil {
			continue
		}
		if k.entry, k.err = readEntry(b.bytes(l)); k.err == nil && k.entry.Robots != nil {
			k.verdict = a.judge.look(&k.entry)
		}
	}
	b.data = nil
}

// count takes the lines of a batch in their order.
func (a *Auditor) count(b *batch) error {
	c := a.counts
	for i := range b.looks {
		at, k := Place{b.file, b.lines[i].number}, &b.looks[i]
		if at.Line > 0 { // else it is the file that could not be read
			c.Lines++
		}
		var err error
		switch {
		case k.err != nil:
			c.Unreadable += min(at.Line, 1)
			err = a.fault(at, k.err)
		case k.entry.Robots == nil:
			c.Foreign++
			if e := &k.entry; e.Request.Method == http.MethodConnect || strings.Contains(e.Request.URI, "://") {
				c.Unjudged++
			}
		default:
			err = a.line(&k.entry, &k.verdict, at)
		}
		if err != nil {
			return err
		}
	}
	if b.last {
		c.Files++
	}
	if a.report.Progress != nil {
		a.report.Progress(c.Lines)
	}
	return nil
}

func (a *Auditor) line(e *entry, v *verdict, at Place) error {
	agent := a.counts.line(e, v)
	for _, f := range v.findings {
		f.Place = at
		if err := a.finding(f, agent); err != nil {
			return err
		}
	}
	if v.how == unproven && (v.cause == CauseTextMissing || v.cause == CauseTextUnread) {
		if first := a.counts.text(e, at, v.cause); first && v.fault != nil {
			if err := a.fault(at, v.fault); err != nil {
				return err
			}
		}
	}
	return a.gap(e, v, at, agent)
}

// gap compares a request that left with its neighbours.
func (a *Auditor) gap(e *entry, v *verdict, at Place, agent *AgentTotals) error {
	if v.host == "" || !left(e) {
		return nil
	}
	delay := toDuration(v.delay)
	if delay > 0 {
		delay = max(delay, a.cfg.MinDelay)
		if a.cfg.MaxDelay > 0 && delay > a.cfg.MaxDelay {
			delay = a.cfg.MaxDelay
			a.counts.Gaps.Clamped++
		}
	}
	s, ok := sendingOf(e, at, delay)
	if !ok {
		a.counts.Gaps.Untimed++
		return nil
	}
	var err error
	a.hosts.add(v.host, s, &a.counts.Gaps, func(host string, p pair) {
		f := Finding{
			Place: p.second.place, Kind: KindGap, Agent: p.second.agent,
			Message: fmt.Sprintf("sent at most %s after %s:%d, the Crawl-delay is %s",
				p.most.Round(time.Millisecond), p.first.place.File, p.first.place.Line, p.delay),
			Gap: &Gap{After: p.first.place, Host: host, Most: p.most.Seconds(), Delay: p.delay.Seconds()},
		}
		if f.Place == at {
			f.URL = e.Request.URI
		}
		of := agent
		if f.Agent != agent.Agent {
			of = a.counts.agent(f.Agent)
		}
		err = errors.Join(err, a.finding(f, of))
	})
	return err
}

func (a *Auditor) finding(f Finding, agent *AgentTotals) error {
	a.counts.Findings[f.Kind]++
	agent.Findings++
	if a.report.Finding == nil {
		return nil
	}
	return a.report.Finding(f)
}

func (a *Auditor) fault(at Place, err error) error {
	a.counts.Errors++
	if a.report.Fault == nil {
		return nil
	}
	return a.report.Fault(Fault{at, err})
}

// Totals are what was found so far. It may be called from the functions of the report.
func (a *Auditor) Totals() Totals {
	a.counts.Caps.Hosts = a.hosts.forgotten
	return a.counts.sum()
}
