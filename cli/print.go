package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
)

// printJSON writes v as one line.
func printJSON(w io.Writer, v any) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(v) // these types always marshal
}

// printRaw writes an answer of the gateway unchanged. Like all print functions, it leaves errors
// to the writer: see [output].
func printRaw(w io.Writer, data []byte) { _, _ = w.Write(data) }

func printLine(w io.Writer, line string) { printRaw(w, []byte(escape.Unprintable(line)+"\n")) }

// table prints rows in columns as wide as their widest cell.
type table struct {
	rows int
	text strings.Builder
}

// newTable returns a table with a line of headings, if there are any.
func newTable(headings ...any) *table {
	t := new(table)
	if len(headings) > 0 {
		t.row(headings...)
	}
	return t
}

func (t *table) row(cells ...any) {
	line := make([]string, len(cells))
	for i, c := range cells {
		line[i] = fmt.Sprint(c)
	}
	t.line(line)
}

// line adds a line. Its cells are escaped.
func (t *table) line(cells []string) {
	for i, cell := range cells {
		cells[i] = escape.Unprintable(cell)
	}
	t.text.WriteString(strings.Join(cells, "\t") + "\n")
	t.rows++
}

// fact adds a row with a name and a value, unless the value is empty.
func (t *table) fact(name, value string) {
	if value != "" {
		t.row(name, value)
	}
}

func (t *table) print(w io.Writer) {
	var columns strings.Builder
	tabs := tabwriter.NewWriter(&columns, 0, 0, 2, ' ', 0)
	_, _ = io.WriteString(tabs, t.text.String()) // cannot fail on a Builder
	_ = tabs.Flush()
	for line := range strings.Lines(columns.String()) {
		printRaw(w, []byte(strings.TrimRight(line, " \n")+"\n"))
	}
}

// printSections writes tables with a blank line before each, and skips tables without rows.
func printSections(w io.Writer, sections ...*table) {
	for _, t := range sections {
		if t.rows > 1 {
			printRaw(w, []byte("\n"))
			t.print(w)
		}
	}
}

// moment formats a time; the zero time is empty.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// withNote returns a word with its explanation.
func withNote(word, note string) string {
	if note == "" {
		return word
	}
	return word + " (" + note + ")"
}

// number formats a count. It is empty for 0.
func number[N int | int64](n N) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(int64(n), 10)
}
