package crawlgate

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"
)

// printJSON writes v as one line.
func printJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// printRaw writes an answer of the gateway as it came.
func printRaw(w io.Writer, data []byte) error {
	if _, err := w.Write(data); err != nil {
		return fmt.Errorf("writing the answer: %w", err)
	}
	return nil
}

// table prints rows in columns as wide as their widest cell.
type table struct {
	rows   [][]string
	widths []int
}

// newTable begins with a line of headings, if there are any.
func newTable(headings ...string) *table {
	t := new(table)
	if len(headings) > 0 {
		t.row(headings...)
	}
	return t
}

// row adds a line. Its cells are made visible.
func (t *table) row(cells ...string) {
	for i, c := range cells {
		cells[i] = visible(c)
		if i == len(t.widths) {
			t.widths = append(t.widths, 0)
		}
		t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cells[i]))
	}
	t.rows = append(t.rows, cells)
}

// note adds a line that belongs to no column.
func (t *table) note(text string) { t.rows = append(t.rows, []string{visible(text)}) }

// fact is a row of a name and a value, left out where there is no value.
func (t *table) fact(name, value string) {
	if value != "" {
		t.row(name, value)
	}
}

// print writes the rows.
func (t *table) print(w io.Writer) error {
	var b strings.Builder
	for _, cells := range t.rows {
		column, at := 0, 0 // where the cell begins, and where the line is
		for i, c := range cells {
			if c != "" {
				b.WriteString(strings.Repeat(" ", column-at) + c)
				at = column + utf8.RuneCountInString(c)
			}
			if i < len(cells)-1 {
				column += t.widths[i] + 2
			}
		}
		b.WriteByte('\n')
	}
	return printRaw(w, []byte(b.String()))
}

// printLine writes a line by itself.
func printLine(w io.Writer, line string) error { return printRaw(w, []byte(visible(line)+"\n")) }

// moment is a time for people and machines, empty for none.
func moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

// withNote is a word with what explains it.
func withNote(word, note string) string {
	if note == "" {
		return word
	}
	return word + " (" + note + ")"
}
