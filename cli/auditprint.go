package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"

	"github.com/crawlgate/crawlgate/audit"
)

func (c *auditOptions) print(w io.Writer, findings *spool, t audit.Totals, status int) error {
	if c.json {
		printJSON(w, AuditTotals{"totals", t})
		return nil
	}
	printLine(w, auditResult(t, status))
	for _, line := range c.assumptions(t) {
		printLine(w, "assumed: "+line)
	}
	err := findings.copyTo(w)
	printSections(w, auditSummary(t), auditSeals(t), auditAgents(t), auditTexts(t))
	return err
}

func auditResult(t audit.Totals, status int) string {
	word := map[int]string{exitOK: "PASS", exitNo: "FAIL"}[status]
	text := fmt.Sprintf("%s: %d lines, %d findings, %d not proven", cmp.Or(word, "INCOMPLETE"), t.Lines, sumOf(t.Findings), t.Unproven())
	if t.Errors > 0 {
		text += fmt.Sprintf(", %d errors", t.Errors)
	}
	return text
}

// assumptions lists the assumptions behind the result that the logs do not show.
func (c *auditOptions) assumptions(t audit.Totals) []string {
	longest := "without an upper bound"
	if c.MaxDelay > 0 {
		longest = fmt.Sprintf("of at most %v", c.MaxDelay)
	}
	all := []string{fmt.Sprintf("the operator keeps a Crawl-delay of at least %v and %s; a gap may be short by %v", c.MinDelay, longest, c.Tolerance)}
	if c.Redacted != "" {
		all = append(all, fmt.Sprintf("%s in a query replaces what the log's filter removed", c.Redacted))
	}
	if t.Seals == nil {
		return append(all, "no line was removed, or changed in a consistent way: --seal checks that")
	}
	for _, l := range t.Seals.Logs {
		if l.Key != "" && !l.KeyGiven {
			all = append(all, fmt.Sprintf("the key of %s is the one beside the log: --vkey gives one that was kept elsewhere", l.Log))
		}
		if l.Size > 0 && !l.KeptElsewhere {
			all = append(all, fmt.Sprintf("%s was not rewritten by its gateway: --head, or the log of a peer, gives a checkpoint that was kept elsewhere", l.Log))
		}
	}
	return all
}

func auditSummary(t audit.Totals) *table {
	s := newTable()
	s.fact("from", moment(t.First))
	s.fact("to", moment(t.Last))
	s.row("files", t.Files)
	s.row("lines", t.Lines)
	s.fact("  unreadable", number(t.Unreadable))
	s.fact("  cut by a crash, full disk or truncation", number(t.Torn))
	s.fact("  not ours", number(t.Foreign))
	s.fact("    of these, requests through a proxy", number(t.Unjudged))
	s.fact("  about a robots.txt", number(t.Answers))
	s.row("  checked", t.Checked)
	s.fact("    about a request of an earlier line", number(t.Again))
	s.row("    replayed from a text", t.Replayed)
	s.row("    following from the state", t.ByState)
	s.row("    as recorded", t.AsRecorded)
	for _, cause := range audit.Causes() {
		s.fact("    not provable: "+string(cause), number(t.NotProvable[cause]))
	}
	g := t.Gaps
	s.row("gaps under a Crawl-delay", g.Pairs)
	s.row("  kept", g.Kept)
	s.row("  too short", g.Short)
	s.fact("  not compared: late lines", number(g.Late))
	s.fact("  not compared: lines without the time of sending", number(g.Untimed))
	s.fact("requests under a Crawl-delay that was cut", number(g.Clamped))
	if t.Seals != nil {
		s.fact("lines without a seal, before the first sealed one", number(t.Seals.WithoutSeal))
		s.fact("checkpoints of peers whose log or key is not given", number(t.Seals.PeersUnknown))
	}
	s.row("errors", t.Errors)
	s.row("findings", sumOf(t.Findings))
	for _, kind := range audit.Kinds() {
		s.fact("  "+string(kind), number(t.Findings[kind]))
	}
	s.fact("not in full: lines of further agents", number(t.Caps.Agents))
	s.fact("not in full: lines of further missing texts", number(t.Caps.Texts))
	s.fact("not in full: hosts whose last requests were forgotten", number(t.Caps.Hosts))
	s.fact("not in full: records of robots.txt that were forgotten", number(t.Caps.Records))
	return s
}

func auditSeals(t audit.Totals) *table {
	s := newTable("SEALED LOG", "SEALED", "LATE", "UNSEALED", "UNPROVEN", "EXPIRED", "CHECKPOINTS", "NEWEST", "PEERS", "BEGAN")
	if t.Seals != nil {
		for _, l := range t.Seals.Logs {
			s.row(l.Log, l.Sealed, l.Late, l.Unsealed, l.Unproven, l.Expired, l.Checkpoints, l.Size, l.Peers, cmp.Or(l.Began, "-"))
		}
	}
	return s
}

func auditAgents(t audit.Totals) *table {
	headings := []any{"AGENT", "CHECKED", "REQUESTS", "ALLOWED", "REFUSED", "FAILED", "TUNNELS", "OPENED", "REFUSED", "FAILED", "UNSEEN", "FINDINGS"}
	owned := slices.ContainsFunc(t.Agents, func(a audit.AgentTotals) bool { return a.Owner+a.Contact != "" })
	if owned {
		headings = append(headings, "OWNER", "CONTACT")
	}
	s := newTable(headings...)
	for _, a := range t.Agents {
		of := a.Tunnels
		cells := []any{
			dashed(a.Agent), a.Checked, a.Asked, a.Allowed, a.Refused, a.Failed,
			of.Asked, of.Allowed, of.Refused, of.Failed, of.Blind, a.Findings,
		}
		if owned {
			cells = append(cells, dashed(a.Owner), dashed(a.Contact))
		}
		s.row(cells...)
	}
	return s
}

// shownTexts is how many texts the table has; --json has all.
const shownTexts = 20

func auditTexts(t audit.Totals) *table {
	s := newTable("TEXT", "WHY", "LINES", "ORIGIN", "FIRST")
	for i, x := range t.Texts {
		if i == shownTexts {
			s.row(fmt.Sprintf("and %d more: see --json", len(t.Texts)-i))
			break
		}
		s.row(x.SHA256, x.Cause, x.Lines, x.Origin, fmt.Sprintf("%s:%d", x.First.File, x.First.Line))
	}
	return s
}

func sumOf[K comparable](counts map[K]int64) (sum int64) {
	for _, n := range counts {
		sum += n
	}
	return sum
}

// dashed returns the name of an agent, or - for an empty one.
func dashed(agent string) string { return cmp.Or(agent, "-") }
