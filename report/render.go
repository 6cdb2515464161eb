package report

import (
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/internal/look"
)

// Section is a table for people.
type Section struct {
	Title   string
	Heading []string
	// Texts is how many columns are texts. Those behind them are numbers and times.
	Texts int
	Rows  [][]string
	// More is how many further rows there are.
	More int
}

// shownRows is how many rows a section has for people; JSON and CSV have all.
const shownRows = 50

// Sections gives the tables of a report. Their texts are as logs have them: escape them before
// showing them. Those without rows are left out.
func (r *Report) Sections() []Section {
	counts := []string{"asked", "allowed", "refused", "failed", "held", "waited"}
	ofCounts := func(title, name string, rows []Row) Section {
		return section(title, append([]string{name}, counts...), 1, rows, func(row Row) []string {
			c := row.Counts
			return []string{
				cmp.Or(row.Name, "-"), number(c.Asked), number(c.Allowed), number(c.Refused), number(c.Failed), number(c.Held),
				seconds(c.WaitSeconds),
			}
		})
	}
	ofUses := func(title, what string, uses []Use) Section {
		return section(title, []string{what, "agent", "requests"}, 2, uses, func(u Use) []string {
			return []string{u.What, cmp.Or(u.Agent, "-"), number(u.Count)}
		})
	}
	all := []Section{
		ofCounts("Teams", "team", r.Owners), ofCounts("Crawlers", "agent", r.Agents), ofCounts("Reasons", "reason", r.Reasons),
		ofCounts("Hosts", "host", r.Hosts), ofCounts("Against a preference of the site", "purpose", r.Conflicts), ofUses("Exceptions in use", "exception", r.Exceptions),
		ofUses("Modes other than enforce in use", "mode", r.Modes),
		section("Refused because robots.txt was unreachable", []string{"host", "cause", "refused", "first", "last"}, 2, r.Unreachable, func(u Unreachable) []string {
			return []string{u.Host, u.Cause, number(u.Refused), moment(u.First), moment(u.Last)}
		}),
		section("Least gaps under a Crawl-delay", []string{"host", "Crawl-delay", "least gap", "gaps"}, 1, r.Gaps, func(g Gap) []string {
			return []string{g.Host, seconds(g.Delay), seconds(g.Least), number(g.Pairs)}
		}),
	}
	return slices.DeleteFunc(all, func(s Section) bool { return len(s.Rows) == 0 })
}

func section[T any](title string, heading []string, texts int, all []T, row func(T) []string) Section {
	s := Section{Title: title, Heading: heading, Texts: texts, More: max(len(all)-shownRows, 0)}
	for _, x := range all[:len(all)-s.More] {
		s.Rows = append(s.Rows, row(x))
	}
	return s
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

func seconds(s float64) string { return strconv.FormatFloat(s, 'f', 3, 64) + " s" }

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Summary says in sentences what the report is about, and what it does not prove.
func (r *Report) Summary() []string {
	c := r.Total
	all := []string{
		fmt.Sprintf("From %s to %s: %d requests, %d allowed, %d refused, %d failed; %d were held for %s in all.",
			moment(r.First), moment(r.Last), c.Asked, c.Allowed, c.Refused, c.Failed, c.Held, seconds(c.WaitSeconds)),
	}
	switch {
	case c.Asked == 0:
	case r.Sealed == c.Asked:
		all = append(all, "Every line has a seal: robots audit --seal proves that none is missing or changed.")
	default:
		all = append(all, fmt.Sprintf("%d of %d lines have no seal: nothing shows whether lines are missing or changed.", c.Asked-r.Sealed, c.Asked))
	}
	all = append(all, "The counts are what the lines say; robots audit proves the decisions from the texts of robots.txt.")
	if r.PaymentRequired > 0 {
		all = append(all, fmt.Sprintf("%d answers asked for payment (402).", r.PaymentRequired))
	}
	if r.Unreadable > 0 {
		all = append(all, fmt.Sprintf("%d lines could not be read and are not counted.", r.Unreadable))
	}
	if r.Untimed > 0 {
		all = append(all, fmt.Sprintf("%d requests are in no gap: their lines do not have the time of sending.", r.Untimed))
	}
	if r.Beyond > 0 {
		all = append(all, fmt.Sprintf("%d times a name was one too many to be kept: see (others).", r.Beyond))
	}
	return all
}

// CSV writes a row for each total, team, agent, host, reason, purpose of a conflict, and hour.
func (r *Report) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	row := func(by, name string, c Counts) {
		_ = out.Write([]string{ // its error is kept
			by, cell(name), number(c.Asked), number(c.Allowed), number(c.Refused), number(c.Failed), number(c.Held),
			strconv.FormatFloat(c.WaitSeconds, 'f', 3, 64),
		})
	}
	_ = out.Write([]string{"by", "name", "asked", "allowed", "refused", "failed", "held", "wait_s"}) // as above
	row("total", "", r.Total)
	for _, part := range []struct {
		by   string
		rows []Row
	}{{"owner", r.Owners}, {"agent", r.Agents}, {"host", r.Hosts}, {"reason", r.Reasons}, {"purpose", r.Conflicts}} {
		for _, x := range part.rows {
			row(part.by, x.Name, x.Counts)
		}
	}
	for _, h := range r.Hours {
		row("hour", moment(h.Begin), h.Counts)
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing a report: %w", err)
	}
	return nil
}

// cell keeps a spreadsheet from taking a text for a formula (OWASP, CSV injection).
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Parse(
	`{{define "head"}}` + look.Head + `{{end}}{{define "brand"}}` + look.Brand + `{{end}}` + page))

// HTML writes the report as a page that stands by itself: no script, no request to anywhere.
func (r *Report) HTML(w io.Writer, title string) error {
	err := pageTemplate.Execute(w, struct {
		Title, Policy string
		Summary       []string
		Plots         []plot
		Sections      []Section
	}{title, look.Policy, r.Summary(), r.plots(), r.Sections()})
	if err != nil {
		return fmt.Errorf("writing a report: %w", err)
	}
	return nil
}
