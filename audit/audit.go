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

// Callbacks receives findings and faults, in the order of the lines.
type Callbacks struct {
	Finding func(Finding) error
	Fault   func(Fault) error
}

// Run audits logs. It reads the sources of each list one after the other, and merges the lists by
// the times of their lines. It ends early when ctx ends or a function of the report returns an
// error; the totals then cover the lines read so far. Errors of a log go to the report.
func Run(ctx context.Context, cfg Config, logs [][]Source, report Callbacks) (Totals, error) {
	if cfg.Texts == nil {
		return Totals{}, errors.New("auditing: no source of texts is given")
	}
	if cfg.limits == (limits{}) {
		cfg.limits = defaultLimits
	}
	a := &auditor{
		cfg: cfg, judge: judge{cfg, newTexts(ctx, cfg)},
		gaps: NewGaps(cfg.limits.hosts), histories: newHistories(cfg.limits.records), counts: newCounts(cfg.limits), report: report,
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
	err := each(ctx, logs, a.histories, a.line)
	if c := a.counts; err == nil && c.Checked == 0 && c.Unjudged > 0 {
		err = a.fault(Place{File: logs[0][0].Name}, errors.New("no line has the object robots: the log is no gateway's, or its filter took it out"))
	}
	if err == nil && a.seals != nil {
		var totals verify.Totals
		totals, err = a.seals.End()
		a.counts.Seals = &totals
	}
	return a.totals(), err
}

// auditor replays logs, once.
type auditor struct {
	cfg       Config
	judge     judge
	gaps      *Gaps
	histories *histories
	counts    *counts
	report    Callbacks
	seals     *verify.Checker // nil: not asked for
}

// sealFinding reports a line that contradicts its seal, or lines that the log itself calls missing.
func (a *auditor) sealFinding(f verify.Finding) error {
	if f.Kind == verify.Incomplete {
		return a.fault(f.Place, errors.New("the log is incomplete: "+f.Message))
	}
	a.counts.Findings[f.Kind]++
	return a.report.Finding(Finding{Place: f.Place, Kind: f.Kind, Message: f.Message})
}

// line audits a line, or reports why it could not be read.
func (a *auditor) line(l *Line) error {
	c := a.counts
	if l.Line == 0 {
		c.Files--
		return a.fault(l.Place, l.err)
	}
	c.Lines++
	if l.text != nil && a.seals != nil {
		if err := a.seals.Line(l.series, l.Place, l.text, l.Time()); err != nil {
			return err
		}
	}
	if l.torn != nil {
		c.Torn++
		if err := a.report.Fault(Fault{l.Place, l.torn, true}); err != nil {
			return err
		}
	}
	switch e := &l.entry; {
	case l.err != nil:
		c.Unreadable++
		return a.fault(l.Place, l.err)
	case e.Robots != nil:
		if n := e.Robots.Lost; n > 0 {
			since := e.Robots.LostSince.Time().UTC().Format(time.RFC3339)
			if err := a.fault(l.Place, fmt.Errorf("the log is incomplete: from %s until this line it took none, and %d are missing", since, n)); err != nil {
				return err
			}
		}
		return a.judged(l)
	case e.Answer != nil:
		return a.answer(l)
	case e.Tunnel() || strings.Contains(e.Request.URI, "://") || e.Request.URI == "" && e.Request.Method != "":
		if u, err := url.Parse(e.Request.URI); err != nil || !strings.EqualFold(u.Hostname(), enforce.OwnHost) {
			c.Unjudged++
		}
	}
	c.Foreign++
	return nil
}

// answer audits a line about a robots.txt.
func (a *auditor) answer(l *Line) error {
	a.counts.Answers++
	r, f := l.Answer, Finding{Place: l.Place, Kind: KindImpossible, Message: badAnswer(l.Answer)}
	if sha, ok := shaOf(r.SHA256); ok && f.Message == "" && a.judge.texts.get(sha).altered {
		f.Kind, f.Message = KindText, "the stored text has another hash: it is not the one that the site gave"
	}
	if f.Message == "" {
		return nil
	}
	a.counts.Findings[f.Kind]++ // it belongs to no agent
	f.Agent, f.URL, f.SHA256 = r.FetchedAs, r.Origin+"/robots.txt", r.SHA256
	return a.report.Finding(f)
}

// judged judges a line, counts it, and reports its findings.
func (a *auditor) judged(l *Line) error {
	v := a.judge.line(l)
	agent := a.counts.line(l, &v)
	for _, f := range v.findings {
		f.Place = l.Place
		if err := a.finding(f, agent); err != nil {
			return err
		}
	}
	if v.how == unproven && (v.cause == CauseTextMissing || v.cause == CauseTextUnread) {
		if first := a.counts.text(l, v.cause); first && v.fault != nil {
			if err := a.fault(l.Place, v.fault); err != nil {
				return err
			}
		}
	}
	return a.gap(l, &v)
}

// gap compares a request that was sent with its neighbours.
func (a *auditor) gap(l *Line, v *verdict) (err error) {
	s, left := l.Sending()
	if v.host == "" || !left {
		return nil
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
		return nil
	}
	late := a.gaps.Add(v.host, s, func(p Pair, n int64) {
		if p.Gap >= p.Delay-a.cfg.Tolerance {
			g.Pairs, g.Kept = g.Pairs+n, g.Kept+n
		} else if n > 0 {
			g.Pairs, g.Short = g.Pairs+1, g.Short+1
			err = errors.Join(err, a.finding(l.tooShort(p, v.host), a.counts.agent(p.Second.Agent)))
		}
	})
	if late {
		g.Late++
	}
	return err
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
	a.counts.Caps.Hosts, a.counts.Caps.Records = a.gaps.Forgotten, a.histories.forgotten
	return a.counts.sum()
}
