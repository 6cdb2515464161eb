//go:build slow

package chaos

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// timing is the configuration of a gateway under chaos, in the terms of docs/status-table.md.
type timing struct {
	mode           string // of unreachable; "" for spec
	ttl            time.Duration
	retry          [2]time.Duration
	timeout        time.Duration
	unreachableFor time.Duration
	// grace is the longest time between the end of the origin's side of an exchange and the moment
	// when its outcome is in force. It covers the last bytes, parsing, and a busy machine.
	grace time.Duration
}

func (c timing) engine(store string) string {
	return fmt.Sprintf(`%s
		cache {
			ttl %s
		}
		fetch {
			unreachable %s
			timeout %s
			retry %s %s
			unreachable_for %s
		}
		pace {
			rate off
			backoff off
			concurrency 4000
			queue 4000
			wait 60s
		}`, store, c.ttl, cmp.Or(c.mode, "spec"), c.timeout, c.retry[0], c.retry[1], c.unreachableFor)
}

// leastPause returns the shortest pause after the given failure of a run, counted from 1.
func (c timing) leastPause(failure int) time.Duration {
	low := c.retry[0]
	for range failure - 1 {
		low = min(2*low, c.retry[1]/4*3)
	}
	return max(low, c.retry[0])
}

// answerClass is the outcome of a fetch of robots.txt, by the origin's record.
type answerClass uint8

const (
	classFailed answerClass = iota
	classText
	classAbsent
)

// attempt is one retrieval that an origin saw.
type attempt struct {
	name   string    // of the behaviour
	asked  time.Time // when the request came, by the kernel's clock
	start  time.Time // the outcome was not in force earlier
	latest time.Time // the outcome is in force from here on, if the gateway noticed it
	ended  time.Time // when the origin had finished it
	class  answerClass
	ttl    time.Duration // of a good one
	text   string
	sha    string // "" if the exact text that the gateway kept is unknown
	// unsure says that a good answer may count as a failure, because the site went down in the
	// middle, or that the outcome was lost with the gateway.
	unsure  bool
	starved bool          // a failure while the gateway was starved, which it may have taken for its own
	lost    bool          // the gateway died before the outcome was kept
	age     time.Duration // of a lost outcome at that death; negative if the fetch was under way
}

// chronicle is what one origin knows about the fetches of its robots.txt: all attempts, in order,
// and the times in which an attempt may have failed without the origin's notice.
type chronicle struct {
	attempts []attempt
	blind    []span
	// variant has the attempts in the crawler's name, which count while the site rejects the
	// gateway.
	variant *chronicle
}

// crawler is the product token of all clients.
const crawler = "Tester"

// turnsAway reports whether the gateway fetches in the crawler's name after a behaviour.
func turnsAway(name string) bool {
	return slices.Contains([]string{"status 401", "status 403", "status 406", "status 451"}, name)
}

type span struct{ from, to time.Time }

// chronicleOf reads an origin's record, with the deaths of gateways.
func chronicleOf(site *testorigin.Site, c timing, deaths []death) chronicle {
	var h chronicle
	history := site.History()
	for i, change := range history {
		if change.Behaviour == "refuse connections" {
			end := time.Now()
			if i+1 < len(history) {
				end = history[i+1].From
			}
			h.blind = append(h.blind, span{change.From, end.Add(c.grace)})
		}
	}
	byVersion := make(map[int]int, len(history))
	for i, change := range history {
		byVersion[change.Version] = i
	}
	h.variant = new(chronicle)
	for _, e := range site.Exchanges() {
		into, key := &h, site.Origin().String()
		if e.Header.Get("User-Agent") == crawler {
			into, key = h.variant, key+" "+crawler
		}
		switch {
		case e.Method == "": // a handshake that failed, perhaps of a request for a page
			h.blind = append(h.blind, span{e.Start, e.Start.Add(c.timeout + c.grace)})
		case e.Robots():
			a := attemptOf(e, history, byVersion[e.Version], c)
			a.noteDeaths(deaths, key)
			into.attempts = append(into.attempts, a)
		}
	}
	h.variant.blind = h.blind
	return h
}

func attemptOf(e testorigin.Exchange, history []testorigin.Change, version int, c timing) attempt {
	change := history[version]
	a := attempt{name: change.Behaviour, asked: e.Arrived, start: e.Start, latest: e.End.Add(c.grace), ended: e.End, ttl: c.ttl}
	if e.End.IsZero() {
		a.ended = e.Start.Add(c.timeout)
	}
	if limit := e.Start.Add(c.timeout + c.grace); e.End.IsZero() || a.latest.After(limit) || change.Meaning == testorigin.MeansUnreachable {
		a.latest = limit
	}
	switch change.Meaning {
	case testorigin.MeansRules:
		a.class, a.text = classText, string(change.Rules)
		if exactText(change.Behaviour) {
			sum := sha256.Sum256(change.Rules)
			a.sha = hex.EncodeToString(sum[:])
		}
	case testorigin.MeansAbsent:
		a.class = classAbsent
	case testorigin.MeansUnreachable, testorigin.MeansRedirect:
	}
	// In the meantime the site may have gone down, or have changed its answer to the second request
	// of a redirect.
	a.unsure = a.class != classFailed && version+1 < len(history) && history[version+1].From.Before(a.latest)
	return a
}

// exactText reports whether the gateway keeps the exact bytes that a behaviour calls its rules.
func exactText(name string) bool {
	for _, other := range []string{"bomb", "oversize", "utf-16", "UTF-16", "HTML", "html", "page", "status", "redirect", "charset"} {
		if strings.Contains(name, other) {
			return false
		}
	}
	return true
}

// noteStarved marks attempts during which the gateway was starved. It may have run out of time for
// an answer that came in time, and it does not count a failure as the origin's.
func (h *chronicle) noteStarved(starved []span, c timing) {
	if h.variant != nil {
		h.variant.noteStarved(starved, c)
	}
	for i := range h.attempts {
		a := &h.attempts[i]
		for _, s := range starved {
			if s.from.After(a.start.Add(c.timeout+c.grace)) || s.to.Before(a.start) {
				continue
			}
			a.unsure = a.unsure || a.class != classFailed
			a.starved = a.class == classFailed
		}
	}
}

// starvation is the longest time that the gateway takes to answer from memory while it gets its
// share of the machine.
const starvation = 250 * time.Millisecond

// starvedIn returns the times in which the gateway was slower.
func (f *fleet) starvedIn(visits []visit, lines map[string]*enforce.LogRecord) []span {
	var all []span
	for i := range visits {
		v := &visits[i]
		if line := lines[f.url(v)]; line != nil && line.Source == "hot" && v.to.Sub(v.from) > starvation {
			all = append(all, span{v.from, v.to})
		}
	}
	slices.SortFunc(all, func(a, b span) int { return a.from.Compare(b.from) })
	var merged []span
	for _, s := range all {
		if n := len(merged); n > 0 && !s.from.After(merged[n-1].to) {
			merged[n-1].to = later(merged[n-1].to, s.to)
			continue
		}
		merged = append(merged, s)
	}
	return merged
}

// death is a kill -9 of a gateway and its restart, from the signal to the first answer.
type death struct {
	span
	ended time.Time            // when the process was gone
	disk  map[string]time.Time // by origin: the last attempt that the store holds, read while no gateway ran
}

// noteDeaths marks an attempt whose outcome was lost with a gateway. The store keeps its records
// at one death, so only the first death after the attempt can lose it.
func (a *attempt) noteDeaths(deaths []death, origin string) {
	for _, d := range deaths {
		if a.start.After(d.ended) {
			continue
		}
		if d.disk[origin].Before(a.start) {
			a.lost, a.unsure, a.age = true, true, d.from.Sub(a.ended)
		}
		return
	}
}

// verdict is a possible decision of a gateway.
type verdict struct {
	state   string
	sha     string // "" for any
	allowed bool
}

// verdicts returns all decisions that were right for a visit in the states that were in force
// during it. Within one state there is only one.
func (h *chronicle) verdicts(v *visit, c timing) []verdict {
	var all []verdict
	for i := range h.attempts {
		g := &h.attempts[i]
		if g.class == classFailed || g.start.After(v.to) || h.superseded(i, v.from) {
			continue
		}
		all = append(all, h.after(i, v, c)...)
	}
	if !h.superseded(-1, v.from) {
		all = append(all, h.after(-1, v, c)...)
	}
	return all
}

// superseded reports whether a later good answer than the i-th attempt was certainly in force
// before t.
func (h *chronicle) superseded(i int, t time.Time) bool {
	for j := i + 1; j < len(h.attempts); j++ {
		a := &h.attempts[j]
		if a.start.After(t) {
			return false
		}
		if a.class != classFailed && !a.unsure && a.latest.Before(t) {
			return true
		}
	}
	return false
}

// after returns the right decisions while the i-th attempt is the last good one; -1 stands for
// none.
func (h *chronicle) after(i int, v *visit, c timing) []verdict {
	var all []verdict
	good := attempt{class: classFailed}
	var since, expired time.Time
	if i >= 0 {
		good = h.attempts[i]
		since, expired = good.start, good.start.Add(good.ttl)
		switch {
		case v.from.After(good.latest.Add(good.ttl)):
		case h.variant != nil && turnsAway(good.name):
			all = append(all, h.variant.verdicts(v, c)...)
		default:
			all = append(all, good.verdict("", v.page))
		}
	}
	first, certain, ok := h.run(i, since, v.to)
	if !ok || v.to.Before(expired) {
		return all
	}
	if c.mode == "strict" {
		return append(all, verdict{state: "unreachable"})
	}
	stale := c.mode == "stale" && good.class == classText
	if !stale && !later(v.from, first).After(certain.Add(c.unreachableFor)) {
		all = append(all, verdict{state: "unreachable"})
	}
	if stale || !v.to.Before(first.Add(c.unreachableFor)) {
		if good.class == classText {
			all = append(all, good.verdict("unreachable", v.page))
		} else {
			all = append(all, verdict{state: "unreachable", allowed: true})
		}
	}
	return all
}

// verdict returns the decision on a page by the answer of an attempt, in the given state or in its
// own.
func (a *attempt) verdict(state, page string) verdict {
	if a.class == classAbsent {
		return verdict{state: "absent", allowed: true}
	}
	if state == "" {
		state = "rules"
	}
	return verdict{state: state, sha: a.sha, allowed: textAllows(a.text, page)}
}

// run returns the earliest and the latest time at which the run of failures after the i-th attempt
// may have begun.
func (h *chronicle) run(i int, since, until time.Time) (first, certain time.Time, ok bool) {
	first, certain = until, until
	for j := max(i, 0); j < len(h.attempts); j++ {
		a := &h.attempts[j]
		if a.start.After(until) {
			break
		}
		if a.class != classFailed && !a.unsure {
			if j > i {
				break
			}
			continue
		}
		if a.start.Before(first) {
			first = a.start
		}
		ok = true
		if a.class == classFailed && !a.lost && !a.starved && a.latest.Before(certain) {
			certain = a.latest
		}
	}
	for _, b := range h.blind {
		if b.to.Before(since) || b.from.After(until) {
			continue
		}
		ok = true
		if start := later(b.from, since); start.Before(first) {
			first = start
		}
	}
	return first, certain, ok
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// judge compares a visit, and its line in the access log if there is one, with every decision that
// would have been right. It returns the fault, and whether only one decision was right.
func (h *chronicle) judge(v *visit, line *enforce.LogRecord, c timing) (fault string, exact bool) {
	if v.status == 0 {
		return "no answer", false
	}
	refused := v.status == 403
	if line != nil && line.Reason == enforce.ReasonPending || line == nil && v.pending {
		if took := v.to.Sub(v.from); !refused || took < c.timeout {
			return fmt.Sprintf("pending after %v, status %d", took, v.status), false
		}
		return "", false
	}
	all := h.verdicts(v, c)
	exact = true
	for _, possible := range all {
		exact = exact && possible.allowed == all[0].allowed
	}
	for _, possible := range all {
		if possible.allowed == refused {
			continue
		}
		if line == nil || possible.state == line.State && (possible.sha == "" || possible.sha == line.SHA256) {
			return "", exact
		}
	}
	return fmt.Sprintf("status %d, logged as %+v; want one of %+v after %q", v.status, line, all, h.before(v.to)), exact
}

// before returns the last attempts that began before t, in human-readable form.
func (h *chronicle) before(t time.Time) []string {
	var all []string
	for _, a := range h.attempts {
		if a.start.Before(t) {
			all = append(all, fmt.Sprintf("%s from %s to %s, class %d, unsure %v", a.name, stamp(a.start), stamp(a.ended), a.class, a.unsure))
		}
	}
	for _, b := range h.blind {
		if b.from.Before(t) {
			all = append(all, fmt.Sprintf("blind from %s to %s", stamp(b.from), stamp(b.to)))
		}
	}
	if h.variant != nil {
		for _, text := range h.variant.before(t) {
			all = append(all, "as the crawler: "+text)
		}
	}
	return all[max(0, len(all)-24):]
}

// fetchFaults returns the fetches that came too early: before 80 % of the TTL of a good answer, or
// before the pause after a failure.
func (h *chronicle) fetchFaults(c timing) []string {
	const clock = 10 * time.Millisecond // wall clocks are inexact
	var faults []string
	failures, again := 0, false
	for i, a := range h.attempts {
		if i+1 == len(h.attempts) {
			break
		}
		second := again
		again = false
		least := a.ttl / 10 * 8
		gap := h.attempts[i+1].asked.Sub(a.asked)
		switch {
		case a.lost, a.starved, h.variant == nil && turnsAway(a.name): // only the memory of one gateway has the last
			failures = 0
			continue
		case a.class == classFailed:
			failures++
			least = max(c.leastPause(failures), promises[a.name].pause)
			if second { // both tries count; the pause is as after a first failure
				least = max(c.leastPause(1), promises[a.name].pause)
			}
			again = failures == 1 && breaks(a.name)
		case a.unsure:
			failures, least = 0, min(least, c.leastPause(1))
			again = !second // the site may have broken it off
		default:
			failures = 0
		}
		if again = again && gap < least-clock; again {
			continue // a fetch that breaks off before a run of failures is repeated once, at once
		}
		if gap < least-clock {
			faults = append(faults, fmt.Sprintf("attempt %d (%s, %d failures) was followed after %v, want %v or more", i, a.name, failures, gap, least))
		}
	}
	return faults
}

// breaks reports whether a behaviour breaks the connection or the answer, so that the gateway read
// nothing of the site.
func breaks(name string) bool {
	for _, begins := range []string{
		"reset ", "close ", "[1", "no last chunk", "broken chunk", "endless head", "invalid status line", "not HTTP", "conflicting lengths",
	} {
		if strings.HasPrefix(name, begins) {
			return true
		}
	}
	return false
}
