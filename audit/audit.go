package audit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/audit/seal"
)

// Config is how logs are replayed. Fields that are zero take their defaults.
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
	// Tolerance is by how much a gap may fall short of the delay: the time that may pass on a busy
	// machine between the two readings of its clock that a line is made of.
	Tolerance time.Duration
	// Seal says where the evidence of sealed logs is; nil to leave their seals alone.
	Seal *seal.Config

	limits limits // for tests
}

// Report is told what is found, in the order of the lines.
type Report struct {
	Finding func(Finding) error
	Fault   func(Fault) error
	// Progress, if it is set, is called now and then with the number of lines so far.
	Progress func(lines int64)
}

// progressLines is how many lines lie between two calls of [Report.Progress].
const progressLines = 500

// Run reads the logs: of each list one after the other, and the lists by the times of their lines.
// It ends early when ctx ends or a function of the report returns an error; the totals then cover
// the lines read so far. Errors of a log go to the report.
func Run(ctx context.Context, cfg Config, logs [][]Source, report Report) (Totals, error) {
	if cfg.Texts == nil {
		return Totals{}, errors.New("auditing: no source of texts is given")
	}
	if cfg.limits == (limits{}) {
		cfg.limits = defaultLimits
	}
	a := &auditor{
		cfg: cfg, judge: judge{texts: newTexts(ctx, cfg), tolerance: cfg.Tolerance, redacted: cfg.Redacted},
		hosts: newHosts(cfg.Tolerance, cfg.limits.hosts), counts: newCounts(cfg.limits), report: report,
	}
	a.judge.histories = newHistories(cfg.limits.records)
	for _, name := range cfg.OwnGroupOnly {
		a.judge.ownGroupOnly = append(a.judge.ownGroupOnly, strings.ToLower(name))
	}
	if cfg.Seal != nil {
		var err error
		if a.seals, err = seal.New(ctx, *cfg.Seal, a.sealFinding); err != nil {
			return a.totals(), err
		}
	}
	err := a.replay(ctx, logs)
	if c := a.counts; err == nil && c.Checked == 0 && c.Unjudged > 0 {
		err = a.fault(Place{File: logs[0][0].Name}, errors.New("no line has the object robots: the log is no gateway's, or its filter took it out"))
	}
	if err == nil {
		err = a.endSeals()
	}
	return a.totals(), err
}

// auditor replays logs, once.
type auditor struct {
	cfg    Config
	judge  judge
	hosts  *hosts
	counts *counts
	report Report
	seals  *seal.Checker // nil: not asked for
}

// sealFinding passes on what contradicts the seals, and what is missing by the log's own account.
func (a *auditor) sealFinding(f seal.Finding) error {
	if f.Kind == seal.Incomplete {
		return a.fault(f.Place, errors.New("the log is incomplete: "+f.Message))
	}
	a.counts.Findings[f.Kind]++
	return a.report.Finding(Finding{Place: f.Place, Kind: f.Kind, Message: f.Message})
}

// endSeals sums up the seals.
func (a *auditor) endSeals() error {
	if a.seals == nil {
		return nil
	}
	totals, err := a.seals.End()
	a.counts.Seals = &totals
	return err
}

// replay audits all lines.
func (a *auditor) replay(ctx context.Context, logs [][]Source) error {
	for l := range byTime(logs) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := a.line(&l); err != nil {
			return err
		}
		if a.report.Progress != nil && a.counts.Lines%progressLines == 0 {
			a.report.Progress(a.counts.Lines)
		}
	}
	return nil
}

// line audits a line, or notes why it could not be read.
func (a *auditor) line(l *line) error {
	c := a.counts
	switch {
	case l.file && l.err != nil:
		return a.fault(l.at, l.err)
	case l.file:
		c.Files++
		return nil
	}
	c.Lines++
	a.judge.series = l.series
	if l.text != nil && a.seals != nil {
		if err := a.seals.Line(l.series, l.at, l.text, l.entry.TS.Time); err != nil {
			return err
		}
	}
	if l.torn != nil {
		c.Torn++
		if err := a.report.Fault(Fault{l.at, l.torn, true}); err != nil {
			return err
		}
	}
	switch e := &l.entry; {
	case l.err != nil:
		c.Unreadable++
		return a.fault(l.at, l.err)
	case e.Robots != nil:
		if n := e.Robots.Lost; n > 0 {
			since := time.Unix(int64(e.Robots.LostSince), 0).UTC().Format(time.RFC3339)
			if err := a.fault(l.at, fmt.Errorf("the log is incomplete: from %s until this line it took none, and %d are missing", since, n)); err != nil {
				return err
			}
		}
		v := a.judge.look(e)
		return a.judged(e, &v, l.at)
	case e.Answer != nil:
		return a.answer(e, l.at)
	case e.Tunnel() || strings.Contains(e.Request.URI, "://") || e.Request.URI == "" && e.Request.Method != "":
		c.Unjudged++
	}
	c.Foreign++
	return nil
}

// answer takes a line about a robots.txt.
func (a *auditor) answer(e *entry, at Place) error {
	a.counts.Answers++
	f := a.judge.learn(e, at)
	if f.Message == "" {
		return nil
	}
	a.counts.Findings[f.Kind]++ // of no agent's requests
	return a.report.Finding(f)
}

// judged counts a line that was judged, and reports its findings.
func (a *auditor) judged(e *entry, v *verdict, at Place) error {
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
func (a *auditor) gap(e *entry, v *verdict, at Place, agent *AgentTotals) error {
	if v.host == "" || !e.Left() {
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
	s := sending{place: at, agent: Label(e.Robots.Agent), at: sentAt(e.Robots), delay: delay}
	if s.at.IsZero() {
		a.counts.Gaps.Untimed++
		return nil
	}
	for _, p := range a.hosts.add(v.host, s, &a.counts.Gaps) {
		f := Finding{
			Place: p.second.place, Kind: KindGap, Agent: p.second.agent,
			Message: fmt.Sprintf("sent %s after %s:%d, the Crawl-delay is %s",
				p.gap.Round(time.Millisecond), p.first.place.File, p.first.place.Line, p.delay),
			Gap: &Gap{After: p.first.place, Host: v.host, Most: p.gap.Seconds(), Delay: p.delay.Seconds()},
		}
		if f.Place == at {
			f.URL = e.Request.URI
		}
		of := agent
		if f.Agent != agent.Agent {
			of = a.counts.agent(f.Agent)
		}
		if err := a.finding(f, of); err != nil {
			return err
		}
	}
	return nil
}

func (a *auditor) finding(f Finding, agent *AgentTotals) error {
	a.counts.Findings[f.Kind]++
	agent.Findings++
	return a.report.Finding(f)
}

func (a *auditor) fault(at Place, err error) error {
	a.counts.Errors++
	return a.report.Fault(Fault{Place: at, Err: err})
}

// totals sums up the lines read so far.
func (a *auditor) totals() Totals {
	a.counts.Caps.Hosts, a.counts.Caps.Records = a.hosts.forgotten, a.judge.histories.forgotten
	return a.counts.sum()
}
