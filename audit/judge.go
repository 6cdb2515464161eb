package audit

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

type how uint8

const (
	asRecorded how = iota // nothing can be computed
	byState               // the line follows from the state that it records
	replayed              // the line was computed from the text
	unproven              // the text is unavailable, or the line is incomplete: see Cause
)

type verdict struct {
	how     how
	cause   Unprovable // for unproven
	host    string
	finding *Finding // nil: none
	fault   error    // why a text could not be read
	// delay is the Crawl-delay in seconds, from the text if there is one.
	delay float64
}

func (v *verdict) add(k Kind, e *entry, message string) *Finding {
	v.finding = &Finding{Kind: k, Message: message, Agent: e.Robots.Agent, URL: e.Request.URI, SHA256: e.Robots.SHA256}
	return v.finding
}

// judge judges a line that has a robots object.
func (a *auditor) judge(l *Line) (v verdict) {
	e, r := &l.entry, l.Robots
	v.delay = r.CrawlDelay
	if r.Schema != enforce.SchemaVersion {
		v.add(KindSchema, e, fmt.Sprintf("schema %d is not known: want %d", r.Schema, enforce.SchemaVersion))
		return v
	}
	s := cmp.Or(BadWord(r), badDecision(r), badEvidence(r), badAfterwards(r, a.cfg.Tolerance), badTimes(r, a.cfg.Tolerance))
	if s == "" && beforeSending(r) && e.Status >= 200 && e.Status < 400 && !e.Tunnel() && !e.answeredByRoute() {
		s = fmt.Sprintf("the request was refused, and the answer has status %d", e.Status)
	}
	if s != "" {
		v.add(KindImpossible, e, s)
		return v
	}
	target, ok := a.target(e, &v)
	if !ok {
		return v
	}
	v.host = target.Origin.Host
	on := bases[r.Reason]
	isSelf, shown := r.PathVisible && enforce.FetchesRobotsTxt(e.Request.Method, target.Path), e.Request.Method != "" && !a.redacted(target.Path)
	if shown && isSelf != (on == onSelf) && (on == onSelf || on == onRules) {
		v.add(KindVerdict, e, "reason robots_txt_itself is only for GET and HEAD of the path /robots.txt")
		return v
	}
	switch {
	case on == onState:
		v.how = byState
	case on != onSelf && r.SHA256 != "":
		a.replay(e, target.Path, &v)
	}
	if v.finding == nil && r.PathVisible && r.SignalsRead != "" && r.Vocabulary == enforce.Vocabulary {
		a.checkPreferences(e, target.Path, &v)
	}
	if v.finding == nil && (v.how == replayed || v.how == byState && (r.State == stateAbsent || r.Reason == enforce.ReasonUnreachableExpired)) {
		a.checkHistory(l, &v)
	}
	return v
}

// target parses the URL, which must belong to the origin that the line names. The line of a
// malformed request has no URL.
func (a *auditor) target(e *entry, v *verdict) (t origin.Target, ok bool) {
	r := e.Robots
	if r.Origin+r.RobotsURL == "" && bases[r.Reason] != onRules && bases[r.Reason] != onState && r.Decision != enforce.OutcomeAllow && r.SentAt <= 0 {
		return t, true
	}
	var err error
	if e.Tunnel() {
		t.Origin, err = origin.FromAuthority("https", e.Request.URI)
	} else if u, parseErr := url.ParseRequestURI(e.Request.URI); parseErr != nil {
		err = parseErr
	} else {
		t, err = origin.NewTarget(u)
	}
	uri := e.Request.URI
	switch {
	case e.Tunnel() && !strings.Contains(uri, ":"), err != nil && !strings.HasPrefix(uri, "/") && !strings.Contains(uri, "://"),
		t.Origin.String() != r.Origin && a.redacted(uri): // the log's filter has changed it
		v.how, v.cause = unproven, CauseURL
		if o, err := origin.Parse(r.Origin); err == nil {
			v.host = o.Host
		}
		return t, false
	case err != nil:
		v.add(KindTarget, e, fmt.Sprintf("the URL cannot be read: %v", err))
	case t.Origin.String() != r.Origin:
		v.add(KindTarget, e, fmt.Sprintf("the URL is of %s, the line is for %s", t.Origin, r.Origin))
	case t.Origin.RobotsURL() != r.RobotsURL:
		v.add(KindTarget, e, fmt.Sprintf("the rules of %s are at %s, the line has them at %s", t.Origin, t.Origin.RobotsURL(), r.RobotsURL))
	default:
		return t, true
	}
	return t, false
}

// replay recomputes a line from its text.
func (a *auditor) replay(e *entry, path string, v *verdict) {
	r := e.Robots
	sha, ok := shaOf(r.SHA256)
	if !ok {
		v.add(KindImpossible, e, "sha256 is no SHA-256")
		return
	}
	t := a.texts.get(sha)
	before, _, _ := strings.Cut(path, "?")
	v.how = unproven
	switch {
	case t.altered:
		v.how = replayed
		v.add(KindText, e, "the stored text has another hash: it is not the one that decided")
		return
	case t.cause != "":
		v.cause, v.fault = t.cause, t.err
		return
	case r.PathVisible && a.pathLost(e, path):
		v.cause = CauseURL
		return
	case r.PathVisible && a.queryRedacted(r, path):
		if dependsOnQuery(t.asks, before) {
			v.cause = CauseQuery
			return
		}
		path = before + "?"
	}
	v.how = replayed
	got := a.compute(t.rules, e, path)
	kind, message := difference(r, got)
	if t.cut != nil && kind != "" {
		second := a.compute(t.cut, e, path)
		if k, _ := difference(r, second); k == "" {
			got, kind = second, ""
		}
	}
	v.delay = got.CrawlDelay
	if kind == "" {
		if r.PathVisible && otherPath(r, path) {
			v.how, v.cause = unproven, CauseURL
		}
		return
	}
	if r.Group == "" && got.Group == "*" {
		message += "; if no group * binds the agent, name it with --ignore-wildcard-group"
	}
	f, recorded := v.add(kind, e, message), evidenceOf(r)
	f.Recorded, f.Computed = &recorded, &got
}

// checkPreferences compares the preferences of a line with its text and its signal fields.
func (a *auditor) checkPreferences(e *entry, path string, v *verdict) {
	r := e.Robots
	changed := a.queryRedacted(r, path)
	if (changed || a.pathLost(e, path)) && strings.Contains(r.SignalsRead, "tdm_file") {
		return
	}
	texts := []*robotstxt.Ruleset{nil}
	if r.SHA256 != "" {
		sha, ok := shaOf(r.SHA256)
		if v.how != replayed || !ok {
			return
		}
		t := a.texts.get(sha)
		if t.rules.HasPreferences() && changed {
			return
		}
		if texts[0] = t.rules; t.cut != nil {
			texts = append(texts, t.cut)
		}
	}
	said := ""
	for _, rules := range texts {
		signals, preferences, all := enforce.Reread(r, rules, a.agent(r), path)
		if !all || slices.Equal(signals, r.Signals) && slices.Equal(preferences, r.Preferences) {
			return
		}
		said = strings.Join(slices.Concat(preferences, signals), ", ")
	}
	v.add(KindPreference, e, fmt.Sprintf("logged with the preferences %q, the text and the fields say %q",
		strings.Join(slices.Concat(r.Preferences, r.Signals), ", "), said))
}

// pathLost reports whether the line lacks the path that was judged: JSON cannot represent its
// bytes, or the filter of the log has changed it.
func (a *auditor) pathLost(e *entry, path string) bool {
	before, _, _ := strings.Cut(path, "?")
	return strings.ContainsRune(e.Request.URI, '\uFFFD') || a.redacted(before) && otherPath(e.Robots, path)
}

// redacted reports whether a part of a URL has the mark of the log's filter.
func (a *auditor) redacted(text string) bool {
	return a.cfg.Redacted != "" && strings.Contains(text, a.cfg.Redacted)
}

// otherPath reports whether the path of a line is not the one that was judged.
func otherPath(r *enforce.LogRecord, path string) bool {
	judged, _, _ := strings.Cut(r.PathSum, "-")
	return judged != "" && !strings.HasPrefix(enforce.PathSum(path), judged)
}

// queryRedacted reports whether the filter of the log has changed the query of a line. Caddy's
// filter query leaves no mark, but sorts the rest of the query.
func (a *auditor) queryRedacted(r *enforce.LogRecord, path string) bool {
	_, query, _ := strings.Cut(path, "?")
	if a.redacted(query) || r.PathSum == "" || r.PathSum == enforce.PathSum(path) || otherPath(r, path) {
		return a.redacted(query)
	}
	values, err := url.ParseQuery(query)
	return err == nil && values.Encode() == query
}

// compute returns what the rules decide, as the log writes it.
func (a *auditor) compute(rules *robotstxt.Ruleset, e *entry, path string) Verdict {
	r := e.Robots
	bound := enforce.Bind(rules, a.agent(r), r.AlsoObey)
	delay, _ := bound.Own.CrawlDelay()
	if !r.PathVisible {
		reason := enforce.ReasonTunnelRestricted
		// A refusal because a preference is not stated stands: the line does not say whether it is one.
		if bound.Unrestricted() && (r.Reason != reason || len(r.Purposes) == 0) {
			reason = enforce.ReasonUnrestricted
		}
		return shown(r, visit(r, bound, Verdict{Reason: string(reason), Group: bound.Own.Name(), CrawlDelay: delay.Seconds()}))
	}
	paths := enforce.PathsAsSent
	if r.Form == enforce.PathBoth || r.Form == enforce.PathResolved {
		paths = enforce.PathsStrict
	}
	m, form, _ := bound.Match(e.Request.Method, path, paths)
	reason := enforce.ReasonNoRule
	switch {
	case !m.Allowed:
		reason = enforce.ReasonDisallowed
	case m.Line > 0:
		reason = enforce.ReasonAllowedByRule
	}
	return shown(r, visit(r, bound, Verdict{string(reason), m.Group, m.Rule, m.Line, delay.Seconds(), form}))
}

// visit is a verdict that lets a request pass, where the line says that the Visit-time refused it
// and this was so then. No line says whether an agent keeps the Visit-time of sites.
func visit(r *enforce.LogRecord, bound enforce.Bound, v Verdict) Verdict {
	if r.Reason != enforce.ReasonVisitTime || v.refuses() {
		return v
	}
	if hours, wait := bound.Visit(r.DecidedAt.Time()); wait > 0 || hours.Line > 0 && r.DecidedAt <= 0 {
		v.Reason, v.Group, v.Rule, v.Line = string(enforce.ReasonVisitTime), bound.Own.Name(), hours.String(), int(hours.Line)
	}
	return v
}

// shown cuts and escapes the evidence as the log does.
func shown(r *enforce.LogRecord, e Verdict) Verdict {
	if e.Group == r.Group && e.Rule == r.Rule {
		return e
	}
	as := enforce.Decision{Group: e.Group, Rule: e.Rule}.Record()
	e.Group, e.Rule = as.Group, as.Rule
	return e
}

func (a *auditor) agent(r *enforce.LogRecord) robotstxt.Agent {
	as := robotstxt.Agent{Tokens: r.Tokens}
	if slices.ContainsFunc(a.cfg.OwnGroupOnly, func(name string) bool { return strings.EqualFold(name, r.Agent) }) {
		as.IgnoreWildcard = true
	} else if len(r.Tokens) > 0 && r.Group == "" {
		as.IgnoreWildcard = robotstxt.Family(r.Tokens[0]).IgnoreWildcard
	}
	return as
}

// refuses reports whether the rules alone refuse.
func (e Verdict) refuses() bool {
	return e.Reason == string(enforce.ReasonDisallowed) || e.Reason == string(enforce.ReasonTunnelRestricted)
}

// difference says how a line differs from the computed evidence. The kind is empty if they agree.
func difference(r *enforce.LogRecord, got Verdict) (kind Kind, message string) {
	rec, on := evidenceOf(r), bases[r.Reason]
	switch byRules := on == onRules || on == onTunnel; {
	case byRules && rec.Reason != got.Reason:
		return KindVerdict, fmt.Sprintf("logged as %s, the rules say %s", r.Reason, got)
	case !byRules && got.refuses() && r.Mode == modeEnforce:
		return KindVerdict, fmt.Sprintf("logged as %s, which is decided after the rules, but the rules say %s", r.Reason, got)
	}
	switch rec.Reason = got.Reason; {
	case rec == got:
		return "", ""
	case rec.CrawlDelay != got.CrawlDelay:
		return KindEvidence, fmt.Sprintf("logged with a Crawl-delay of %g s, the rules say %g s", rec.CrawlDelay, got.CrawlDelay)
	}
	return KindEvidence, fmt.Sprintf("logged with %s, the rules say %s", rec, got)
}

// String describes the evidence for humans.
func (e Verdict) String() string {
	form := ""
	if e.Form != "" {
		form = fmt.Sprintf(", form %q of the path", e.Form)
	}
	switch {
	case e.Line > 0:
		return fmt.Sprintf("%s by line %d, %q of group %q%s", e.Reason, e.Line, e.Rule, e.Group, form)
	case e.Group == "":
		return e.Reason + " without a group" + form
	}
	return fmt.Sprintf("%s of group %q%s", e.Reason, e.Group, form)
}
