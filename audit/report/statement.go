package report

import (
	_ "embed" // for report.txt
	"slices"
	"strings"
	"text/template"

	"github.com/dustin/go-humanize/english"
)

// Part is a titled part of the text, with its paragraphs.
type Part struct {
	Title string
	Text  []string
}

// Parts returns the text before the tables. It begins with [Report.Statement]. Names in it are
// copied from the logs: escape them before you show them.
func (r *Report) Parts() []Part {
	all := []Part{{Title: "Statement"}, {Title: "Counts"}, {Title: "Method"}, {Title: "What this report does not prove"}}
	for i := range all {
		var text strings.Builder
		if err := proseTemplate.ExecuteTemplate(&text, all[i].Title, r); err != nil {
			panic(err) // the template is part of the program
		}
		all[i].Text = strings.Split(strings.TrimSpace(text.String()), "\n")
	}
	return all
}

//go:embed report.txt
var prose string

var proseTemplate = template.Must(template.New("").Funcs(template.FuncMap{
	"number": number, "seconds": seconds, "when": when, "share": share, "plural": english.Plural, "series": english.WordSeries,
	"sum": func(all ...int64) (sum int64) {
		for _, n := range all {
			sum += n
		}
		return sum
	},
	"names": func(rows []Row) (names []string) {
		for _, row := range rows {
			if row.Name != "" && row.Asked > 0 {
				names = append(names, strings.Join(strings.Fields(row.Name), " ")) // in one line
			}
		}
		return names
	},
	// rows sums up those of some names, or all.
	"rows": func(rows []Row, names ...string) Row {
		return sumOf(slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return len(names) > 0 && !slices.Contains(names, row.Name) }))
	},
	// otherRows sums up those of all names but one.
	"otherRows": func(rows []Row, name string) Row {
		return sumOf(slices.DeleteFunc(slices.Clone(rows), func(row Row) bool { return row.Name == name }))
	},
}).Parse(prose))
