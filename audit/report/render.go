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
	"unicode/utf8"

	"github.com/dustin/go-humanize"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/pagestyle"
)

// Section is a human-readable table.
type Section struct {
	Title   string
	Heading []string
	// Texts is how many columns are texts. The columns after them are numbers and times.
	Texts int
	Rows  [][]string
}

// shownRows is how many rows a section shows. One more sums up the others. JSON and CSV have all
// rows.
const shownRows = 50

// Sections returns the tables of a report that have rows: requests, tunnels, and gaps. Their texts
// are copied from the logs: escape them before you show them.
func (r *Report) Sections() (all []Section) {
	for _, tunnels := range []bool{false, true} {
		for _, t := range tables {
			// Of a long period the days are shown, and no hours.
			if s := t.section(*t.rows(r), r.Total, tunnels); len(s.Rows) > 0 && (t.by != hour || len(s.Rows) <= shownRows) {
				all = append(all, s)
			}
		}
	}
	if len(r.Gaps) == 0 {
		return all
	}
	gaps := Section{Title: "Least gaps under a Crawl-delay", Heading: []string{"host", "Crawl-delay", "least gap", "gaps"}, Texts: 1}
	var rest int64
	for i, g := range r.Gaps {
		if i < shownRows {
			gaps.Rows = append(gaps.Rows, []string{g.Host, seconds(g.Delay), seconds(g.Least), number(g.Pairs)})
		} else {
			rest += g.Pairs
		}
	}
	if n := len(r.Gaps) - shownRows; n > 0 {
		gaps.Rows = append(gaps.Rows, []string{more(n), "", "", number(rest)})
	}
	return append(all, gaps)
}

// section makes the section of a table for requests, or for tunnels.
func (t *table) section(rows []Row, total Counts, tunnels bool) (s Section) {
	counts, asked := "asked,share,allowed,refused,failed,held,waited", func(c Counts) int64 { return c.Asked }
	if s.Title = t.title; tunnels {
		s.Title = "Tunnels: " + t.title
		counts, asked = "tunnels,share,opened,refused,failed,not looked into", func(c Counts) int64 { return c.Tunnels.Asked }
	}
	keys := slices.DeleteFunc([]string{t.name, t.second}, func(s string) bool { return s == "" })
	if t.coded() {
		keys = append(keys, "code")
	}
	s.Texts, s.Heading = len(keys), append(keys, strings.Split(counts, ",")...)
	if t.dated() {
		s.Heading = append(s.Heading, "first", "last")
	}
	if t.by == budgets {
		s.Heading = append(s.Heading, "least left")
	}
	rows = slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return asked(row.Counts) == 0 })
	if n := len(rows) - shownRows; n > 0 {
		rest := sumOf(rows[shownRows:])
		rest.Name, rest.Agent = more(n), "-"
		rows = append(rows[:shownRows], rest)
	}
	for _, row := range rows {
		cells, ofTunnels := row.texts(number, seconds)
		if tunnels {
			cells = ofTunnels
		}
		cells = slices.Insert(cells, 1, share(asked(row.Counts), asked(total)))
		if cells = append(t.keys(row), cells...); t.dated() {
			cells = append(cells, when(row.First), when(row.Last))
		}
		if t.by == budgets {
			cells = append(cells, least(row.BudgetLeft, number))
		}
		s.Rows = append(s.Rows, cells)
	}
	return s
}

// keys returns the texts of a row. Plain words precede the code of a reason.
func (t *table) keys(row Row) []string {
	if t.by == hour {
		row.Name = spaced(row.Name)
	}
	keys := []string{named(row.Name), cmp.Or(row.Cause, named(row.Agent))}
	if t.second == "" {
		keys = keys[:1]
	}
	if t.coded() {
		code := enforce.Reason(keys[len(keys)-1])
		if keys = append(keys, string(code)); code.Valid() {
			keys[len(keys)-2] = code.Info().Title
		}
	}
	return keys
}

func sumOf(rows []Row) (sum Row) {
	for _, row := range rows {
		sum.Plus(row.Outcomes)
		sum.Tunnels.Plus(row.Tunnels.Outcomes)
		sum.Tunnels.Blind += row.Tunnels.Blind
		sum.Held += row.Held
		sum.WaitSeconds += row.WaitSeconds
		sum.Note(row.First)
		sum.Note(row.Last)
	}
	return sum
}

// texts formats the counts in the order of the columns.
func (c *Counts) texts(number func(int64) string, seconds func(float64) string) (requests, tunnels []string) {
	of := func(o audit.Outcomes, last int64) []string {
		return []string{number(o.Asked), number(o.Allowed), number(o.Refused), number(o.Failed), number(last)}
	}
	return append(of(c.Outcomes, c.Held), seconds(c.WaitSeconds)), of(c.Tunnels.Outcomes, c.Tunnels.Blind)
}

// least formats the smallest rest of a budget, or "-" if the log shows no limit of requests.
func least(left *int64, number func(int64) string) string {
	if left == nil {
		return "-"
	}
	return number(*left)
}

// named shows an empty name as such: a reader could take an empty cell for a mistake.
func named(name string) string { return cmp.Or(name, "(not named)") }

func more(n int) string { return "(" + number(int64(n)) + " more)" }

func number(n int64) string { return humanize.Comma(n) }

func share(n, of int64) string {
	return humanize.FormatFloat("#,###.#", 100*float64(n)/float64(of)) + "%"
}

func seconds(s float64) string {
	return strings.TrimSuffix(humanize.FormatFloat("#,###.###", s), ".000") + " s"
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

// when formats a time for readers, and spaced formats a moment for them.
func when(t time.Time) string { return spaced(moment(t)) }

func spaced(moment string) string { return strings.NewReplacer("T", " ", "Z", " UTC").Replace(moment) }

var csvHeading = []string{
	"by", "name", "asked", "allowed", "refused", "failed", "held", "wait_s",
	"tunnels", "tunnels_opened", "tunnels_refused", "tunnels_failed", "tunnels_blind", "agent", "cause", "first", "last", "budget_left",
}

// CSV writes the total, the other sums, and the rows of all tables.
func (r *Report) CSV(w io.Writer) error {
	out := csv.NewWriter(w)
	write := func(cells ...string) { _ = out.Write(cells) } // out keeps the error
	plain := func(n int64) string { return strconv.FormatInt(n, 10) }
	row := func(by string, x Row) {
		requests, tunnels := x.texts(plain, func(s float64) string { return strconv.FormatFloat(s, 'f', 3, 64) })
		write(slices.Concat([]string{by, cell(x.Name)}, requests, tunnels, []string{cell(x.Agent), cell(x.Cause), moment(x.First), moment(x.Last), least(x.BudgetLeft, plain)})...)
	}
	write(csvHeading...)
	for _, x := range [][2]string{{"statement", r.Statement}, {"made", moment(r.Made)}, {"version", r.Version}} {
		write(append([]string{x[0], cell(x[1])}, make([]string, len(csvHeading)-2)...)...)
	}
	row("total", Row{Counts: r.Total, Period: r.Period})
	sums := strings.Fields("lines unreadable not_ours again sealed untimed beyond payment_required signed lost")
	for i, n := range []int64{r.Lines, r.Unreadable, r.Foreign, r.Again, r.Sealed, r.Untimed, r.Beyond, r.PaymentRequired, r.Signed, r.Lost} {
		write(append([]string{"count", sums[i], plain(n)}, make([]string, len(csvHeading)-3)...)...)
	}
	for _, t := range tables {
		for _, x := range *t.rows(r) {
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
	if first, _ := utf8.DecodeRuneInString(text); text != "" && strings.ContainsRune("=+-@\t\r\n＝＋－＠", first) {
		return "'" + text
	}
	return text
}

//go:embed report.html
var page string

var pageTemplate = template.Must(template.New("report").Parse(
	`{{define "head"}}` + pagestyle.Head + `{{end}}{{define "brand"}}` + pagestyle.Brand + `{{end}}` + page))

// HTML writes the report as a self-contained page: it has no script and makes no requests.
func (r *Report) HTML(w io.Writer, title string) error {
	page := struct {
		Title, Policy string
		Parts         []Part
		Chart         template.HTML
		Sections      []Section
	}{title, pagestyle.Policy, r.Parts(), "", r.Sections()}
	if len(r.overTime.bars) > 0 {
		page.Chart = r.overTime.chart().HTML()
	}
	if err := pageTemplate.Execute(w, page); err != nil {
		return fmt.Errorf("writing a report: %w", err)
	}
	return nil
}
