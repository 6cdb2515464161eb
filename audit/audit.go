package audit

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/evidence/verify"
)

// Config says how logs are replayed. The zero value of a field is its default.
type Config struct {
	// Texts finds the texts that lines rest on. It is required.
	Texts Texts
	// OwnGroupOnly are the names of agents that the group * does not bind (ignore_wildcard_group). The
	// log does not say so.
	OwnGroupOnly []string
	// IndexHTML is the option of robotstxt.Options that the gateway uses.
	IndexHTML bool
	// Redacted is what the filter of the log writes in place of all or part of a query. If it is
	// empty, the log has all queries.
	Redacted string
	// MinDelay and MaxDelay are the bounds within which the operator keeps a Crawl-delay; 0 is no
	// bound.
	MinDelay, MaxDelay time.Duration
	// Tolerance is by how much a gap may be shorter than the delay: on a busy machine, time passes
	// between the clock's reading that paces a request and the one that is logged.
	Tolerance time.Duration
	// Seal says where the evidence of sealed logs is. If it is nil, seals are not checked.
	Seal *verify.Config

	limits limits // for tests
}

// Run audits logs. It reads the sources of each list one after the other, and merges the lists by
// the times of their lines. It calls finding, and fault for what cannot be read, in the order of
// the lines. It ends early when ctx ends; the totals then cover the lines read so far.
func Run(ctx context.Context, cfg Config, logs [][]Source, finding func(Finding), fault func(Fault)) (Totals, error) {
	if cfg.Texts == nil {
		return Totals{}, errors.New("auditing: no source of texts is given")
	}
	if cfg.limits == (limits{}) {
		cfg.limits = defaultLimits
	}
	a := &auditor{
		cfg: cfg, texts: newTexts(ctx, cfg), gaps: NewGaps(cfg.limits.hosts), histories: newHistories(cfg.limits.records),
		counts: newCounts(cfg.limits), report: finding, reportFault: fault,
	}
	if cfg.Seal != nil {
		var err error
		if a.seals, err = verify.New(ctx, *cfg.Seal, a.sealFinding); err != nil {
			return a.totals(), err
		}
	}
	for _, sources := range logs {
		a.counts.Files += len(sources)
	}
	if err := each(ctx, logs, a.histories, a.line); err != nil {
		return a.totals(), err
	}
	if c := a.counts; c.Checked == 0 && c.Unjudged > 0 {
		a.fault(Place{File: logs[0][0].Name}, errors.New("no line has the object robots: no gateway wrote the log, or its filter removed the object"))
	}
	for _, d := range a.doubts {
		a.finding(d.Finding, d.agent)
	}
	if a.seals != nil {
		totals := a.seals.End()
		a.counts.Seals = &totals
	}
	return a.totals(), nil
}

type auditor struct {
	cfg         Config
	texts       *texts
	gaps        *Gaps
	histories   *histories
	counts      *counts
	report      func(Finding)
	reportFault func(Fault)
	seals       *verify.Checker // nil: not asked for
	doubts      []doubt
}

// sealFinding reports a line that contradicts its seal, or lines that the log itself calls missing.
func (a *auditor) sealFinding(f verify.Finding) {
	if f.Kind == verify.Incomplete {
		a.fault(f.Place, errors.New("the log is incomplete: "+f.Message))
		return
	}
	a.finding(Finding{Place: f.Place, Kind: f.Kind, Message: f.Message}, nil)
}

func (a *auditor) line(l *Line) {
	c := a.counts
	if l.Line == 0 {
		c.Files--
		a.fault(l.Place, l.err)
		return
	}
	c.Lines++
	if l.text != nil && a.seals != nil {
		a.seals.Line(l.series, l.Place, l.text, l.Time())
	}
	if l.torn != nil {
		c.Torn++
		a.reportFault(Fault{l.Place, l.torn, true})
	}
	a.lost(l)
	switch e := &l.entry; {
	case l.err != nil:
		c.Unreadable++
		a.fault(l.Place, l.err)
		return
	case e.Robots != nil:
		a.judged(l)
		return
	case e.Answer != nil:
		a.answer(l)
		return
	case e.Tunnel() || strings.Contains(e.Request.URI, "://") || e.Request.URI == "" && e.Request.Method != "":
		if u, err := url.Parse(e.Request.URI); err != nil || !strings.EqualFold(u.Hostname(), enforce.OwnHost) {
			c.Unjudged++
		}
	}
	c.Foreign++
}

// lost reports lines that the log itself says are missing. If seals are checked, they report those
// of the sealer.
func (a *auditor) lost(l *Line) {
	n, since, _ := l.Lost()
	if n > 0 && (l.Robots != nil || a.seals == nil) {
		a.fault(l.Place, fmt.Errorf("the log is incomplete: %[2]d lines are missing, because it took none from %[1]s until this line", since.UTC().Format(time.RFC3339), n))
	}
}

// answer audits a line about a robots.txt.
func (a *auditor) answer(l *Line) {
	a.counts.Answers++
	r, f := l.Answer, Finding{Place: l.Place, Kind: KindImpossible, Message: badAnswer(l.Answer)}
	if sha, ok := shaOf(r.SHA256); ok && f.Message == "" && a.texts.get(sha).altered {
		f.Kind, f.Message = KindText, "the stored text has another hash: it is not the one that the site sent"
	}
	if f.Message != "" {
		f.Agent, f.URL, f.SHA256 = r.FetchedAs, r.Origin+"/robots.txt", r.SHA256
		a.finding(f, nil)
		return
	}
	a.refute(l)
}

func (a *auditor) judged(l *Line) {
	v := a.judge(l)
	agent := a.counts.line(l, &v)
	if f := v.finding; f != nil {
		if f.Place = l.Place; !a.doubt(l, *f, agent) {
			a.finding(*f, agent)
		}
	}
	if v.how == unproven && (v.cause == CauseTextMissing || v.cause == CauseTextUnread) {
		if first := a.counts.text(l, v.cause); first && v.fault != nil {
			a.fault(l.Place, v.fault)
		}
	}
	a.gap(l, &v)
}

// gap compares a request that was sent with its neighbours.
func (a *auditor) gap(l *Line, v *verdict) {
	s, left := l.Sending()
	if v.host == "" || !left || l.Again {
		return
	}
	g := &a.counts.Gaps
	if s.Delay = toDuration(v.delay); s.Delay > 0 {
		s.Delay = max(s.Delay, a.cfg.MinDelay)
		if a.cfg.MaxDelay > 0 && s.Delay > a.cfg.MaxDelay {
			s.Delay = a.cfg.MaxDelay
			g.Clamped++
		}
	}
	if s.At.IsZero() {
		g.Untimed++
		return
	}
	late := a.gaps.Add(v.host, s, func(p Pair, n int64) {
		if p.Gap >= p.Delay-a.cfg.Tolerance {
			g.Pairs, g.Kept = g.Pairs+n, g.Kept+n
		} else if n > 0 {
			g.Pairs, g.Short = g.Pairs+1, g.Short+1
			a.finding(l.tooShort(p, v.host), a.counts.agent(p.Second.Agent))
		}
	})
	if late {
		g.Late++
	}
}

// tooShort makes the finding for a pair whose gap is too short. The line is one of the two.
func (l *Line) tooShort(p Pair, host string) Finding {
	f := Finding{
		Place: p.Second.Place, Kind: KindGap, Agent: p.Second.Agent,
		Message: fmt.Sprintf("sent %s after %s:%d, the Crawl-delay is %s", p.Gap.Round(time.Millisecond), p.First.Place.File, p.First.Place.Line, p.Delay),
		Gap:     &Gap{After: p.First.Place, Host: host, Most: p.Gap.Seconds(), Delay: p.Delay.Seconds()},
	}
	if f.Place == l.Place {
		f.URL = l.Request.URI
	}
	return f
}

// finding counts and reports a finding. The agent is nil if the finding belongs to none.
func (a *auditor) finding(f Finding, agent *AgentTotals) {
	a.counts.Findings[f.Kind]++
	if agent != nil {
		agent.Findings++
	}
	a.report(f)
}

func (a *auditor) fault(at Place, err error) {
	a.counts.Errors++
	a.reportFault(Fault{Place: at, Err: err})
}

func (a *auditor) totals() Totals {
	a.counts.Caps.Hosts, a.counts.Caps.Records = a.gaps.Forgotten, a.histories.forgotten
	return a.counts.sum()
}
