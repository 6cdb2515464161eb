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

	"github.com/dustin/go-humanize"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/internal/pagestyle"
)

// Section is a human-readable table.
type Section struct {
	Title   string
	Heading []string
	// Texts is how many columns are texts. The columns after them are numbers and times.
	Texts int
	Rows  [][]string
	// More is how many further rows there are.
	More int
}

// shownRows is how many rows a section shows. JSON and CSV have all rows.
const shownRows = 50

// Sections returns the tables of a report that have rows: requests, tunnels, and gaps. Their texts
// are copied from the logs: escape them before you show them.
func (r *Report) Sections() (all []Section) {
	for _, tunnels := range []bool{false, true} {
		for i, t := range tables {
			if s := t.section(*r.rows()[i], tunnels); len(s.Rows) > 0 {
				all = append(all, s)
			}
		}
	}
	gaps := section("Least gaps under a Crawl-delay", []string{"host", "Crawl-delay", "least gap", "gaps"}, 1, r.Gaps, func(g WorstGap) []string {
		return []string{g.Host, seconds(g.Delay), seconds(g.Least), number(g.Pairs)}
	})
	if len(gaps.Rows) > 0 {
		all = append(all, gaps)
	}
	return all
}

// section makes the section of a table for requests, or for tunnels.
func (t *table) section(rows []Row, tunnels bool) Section {
	title, counts := t.title, []string{"asked", "allowed", "refused", "failed", "held", "waited"}
	if tunnels {
		title, counts = "Tunnels: "+t.title, []string{"tunnels", "opened", "refused", "failed", "not looked into"}
	}
	keys := slices.DeleteFunc([]string{t.name, t.second}, func(s string) bool { return s == "" })
	heading := slices.Concat(keys, counts)
	if t.dated() {
		heading = append(heading, "first", "last")
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return row.Asked == 0 && !tunnels || row.Tunnels.Asked == 0 && tunnels })
	return section(title, heading, len(keys), rows, func(row Row) []string {
		cells := []string{named(row.Name), cmp.Or(row.Cause, named(row.Agent))}[:len(keys)]
		requests, ofTunnels := row.texts(number, seconds)
		if tunnels {
			requests = ofTunnels
		}
		if cells = append(cells, requests...); t.dated() {
			cells = append(cells, moment(row.First), moment(row.Last))
		}
		return cells
	})
}

// texts formats the counts in the order of the columns.
func (c *Counts) texts(number func(int64) string, seconds func(float64) string) (requests, tunnels []string) {
	of := func(o audit.Outcomes, last int64) []string {
		return []string{number(o.Asked), number(o.Allowed), number(o.Refused), number(o.Failed), number(last)}
	}
	return append(of(c.Outcomes, c.Held), seconds(c.WaitSeconds)), of(c.Tunnels.Outcomes, c.Tunnels.Blind)
}

// named shows an empty name as such: a reader could take an empty cell for a mistake.
func named(name string) string { return cmp.Or(name, "(not named)") }

func section[T any](title string, heading []string, texts int, all []T, row func(T) []string) Section {
	s := Section{Title: title, Heading: heading, Texts: texts, More: max(len(all)-shownRows, 0)}
	for _, x := range all[:len(all)-s.More] {
		s.Rows = append(s.Rows, row(x))
	}
	return s
}

func number(n int64) string { return humanize.Comma(n) }

func seconds(s float64) string { return humanize.FormatFloat("#,###.###", s) + " s" }

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// Summary describes in sentences what the report covers and does not prove.
func (r *Report) Summary() []string {
	c, t := r.Total, r.Total.Tunnels
	all := []string{
		fmt.Sprintf("From %s to %s: %s requests, %s allowed, %s refused, %s failed; %s were held for %s in all.", moment(r.First), moment(r.Last),
			number(c.Asked), number(c.Allowed), number(c.Refused), number(c.Failed), number(c.Held), seconds(c.WaitSeconds)),
	}
	if t.Asked > 0 {
		all = append(all, fmt.Sprintf("%s tunnels (CONNECT), which are no requests: %s opened, %s refused, %s failed.",
			number(t.Asked), number(t.Allowed), number(t.Refused), number(t.Failed)))
	}
	all = append(all, fmt.Sprintf("%s lines were read; about no request through a gateway: %s.", number(r.Lines), number(r.Foreign)))
	switch lines := c.Asked + t.Asked; {
	case lines == 0:
	case r.Sealed == lines:
		all = append(all, "Every line has a seal: robots audit --seal proves that none is missing or changed.")
	default:
		all = append(all, fmt.Sprintf("%s of %s lines have no seal: nothing shows whether lines are missing or changed.", number(lines-r.Sealed), number(lines)))
	}
	all = append(all, "The counts are what the lines say; robots audit proves the decisions from the texts of robots.txt.")
	for _, s := range []struct {
		n    int64
		text string
	}{
		{t.Blind, "Opened and not looked into: %s of the tunnels. The requests in them are unknown."},
		{r.PaymentRequired, "%s answers asked for payment (402)."},
		{r.Unreadable, "%s lines could not be read and are not counted."},
		{r.Untimed, "%s requests are in no gap: their lines do not have the time of sending."},
		{r.Beyond, "%s times a name was one too many to be kept: see (others)."},
	} {
		if s.n > 0 {
			all = append(all, fmt.Sprintf(s.text, number(s.n)))
		}
	}
	return all
}

var csvHeading = []string{
	"by", "name", "asked", "allowed", "refused", "failed", "held", "wait_s",
	"tunnels", "tunnels_opened", "tunnels_refused", "tunnels_failed", "tunnels_blind", "agent", "cause", "first", "last",
}

// CSV writes the total, the other sums, and the rows of all tables.
func (r *Report) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	write := func(cells ...string) { _ = out.Write(cells) } // out keeps the error
	plain := func(n int64) string { return strconv.FormatInt(n, 10) }
	row := func(by string, x Row) {
		requests, tunnels := x.texts(plain, func(s float64) string { return strconv.FormatFloat(s, 'f', 3, 64) })
		write(slices.Concat([]string{by, cell(x.Name)}, requests, tunnels, []string{cell(x.Agent), cell(x.Cause), moment(x.First), moment(x.Last)})...)
	}
	write(csvHeading...)
	row("total", Row{Counts: r.Total, Period: r.Period})
	sums := strings.Fields("lines unreadable not_ours sealed untimed beyond payment_required")
	for i, n := range []int64{r.Lines, r.Unreadable, r.Foreign, r.Sealed, r.Untimed, r.Beyond, r.PaymentRequired} {
		write(append([]string{"count", sums[i], plain(n)}, make([]string, len(csvHeading)-3)...)...)
	}
	for i, t := range tables {
		for _, x := range *r.rows()[i] {
			row(t.by, x)
		}
	}
	out.Flush()
	if err := out.Error(); err != nil {
		return fmt.Errorf("writing a report: %w", err)
	}
	return nil
}

// cell makes sure that a spreadsheet does not take a text for a formula (OWASP, CSV injection).
func cell(text string) string {
	if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
		return "'" + text
	}
	return text
}

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{"number": number, "moment": moment, "named": named}).Parse(
	`{{define "head"}}` + pagestyle.Head + `{{end}}{{define "brand"}}` + pagestyle.Brand + `{{end}}` + page))

// HTML writes the report as a self-contained page: it has no script and makes no requests.
func (r *Report) HTML(w io.Writer, title string) error {
	err := pageTemplate.Execute(w, struct {
		Title, Policy string
		Summary       []string
		Plot          plot
		Sections      []Section
	}{title, pagestyle.Policy, r.Summary(), r.overTime.plot(), r.Sections()})
	if err != nil {
		return fmt.Errorf("writing a report: %w", err)
	}
	return nil
}
