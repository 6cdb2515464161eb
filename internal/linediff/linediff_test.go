package linediff

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// render writes hunks as a unified diff does.
func render(list []Hunk) string {
	var b strings.Builder
	for _, h := range list {
		fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@\n", h.From, h.FromCount, h.To, h.ToCount)
		for _, l := range h.Lines {
			fmt.Fprintf(&b, "%c%s\n", l.Op, l.Text)
		}
	}
	return b.String()
}

func TestCompare(t *testing.T) {
	t.Parallel()
	long := "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n"
	for _, tt := range []struct {
		name, a, b string
		context    int
		want       string
	}{
		{"both empty", "", "", 3, ""},
		{"equal", "a\nb\n", "a\nb\n", 3, ""},
		{"only terminators differ", "a\r\nb", "a\nb\n", 3, ""},
		{"from nothing", "", "a\nb\n", 3, "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"to nothing", "a\n", "", 3, "@@ -1,1 +0,0 @@\n-a\n"},
		{"replaced", "a\nb\nc\n", "a\nx\nc\n", 3, "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"no context", "a\nb\nc\n", "a\nx\nc\n", 0, "@@ -2,1 +2,1 @@\n-b\n+x\n"},
		{"inserted without context", "a\nb\n", "a\nx\nb\n", 0, "@@ -1,0 +2,1 @@\n+x\n"},
		{"negative context", "a\nb\n", "a\nx\nb\n", -1, "@@ -1,0 +2,1 @@\n+x\n"},
		{"moved", "a\nb\nc\n", "b\nc\na\n", 0, "@@ -1,1 +0,0 @@\n-a\n@@ -3,0 +3,1 @@\n+a\n"},
		{
			"two hunks", long, strings.NewReplacer("2\n", "two\n", "11\n", "eleven\n").Replace(strings.Replace(long, "12\n", "", 1)), 1,
			"@@ -1,3 +1,3 @@\n 1\n-2\n+two\n 3\n@@ -10,3 +10,2 @@\n 10\n-11\n-12\n+eleven\n",
		},
		{
			"near hunks are one", "1\n2\n3\n4\n", "one\n2\n3\nfour\n", 1,
			"@@ -1,4 +1,4 @@\n-1\n+one\n 2\n 3\n-4\n+four\n",
		},
		{
			"contexts do not overlap", "1\n2\n3\n4\n5\n", "one\n2\n3\n4\nfive\n", 1,
			"@@ -1,2 +1,2 @@\n-1\n+one\n 2\n@@ -4,2 +4,2 @@\n 4\n-5\n+five\n",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := render(Compare(Split([]byte(tt.a)), Split([]byte(tt.b)), tt.context)); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"":               nil,
		"a":              {"a"},
		"a\n":            {"a"},
		"\n":             {""},
		"a\r\nb\rc\n\nd": {"a", "b", "c", "", "d"},
		"a\n\r\nb\r":     {"a", "", "b"},
	} {
		if got := Split([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// TestCompareBeyondBounds takes texts for which the shortest script is not looked for to the end.
func TestCompareBeyondBounds(t *testing.T) {
	t.Parallel()
	number := func(prefix string, n int) []string {
		lines := make([]string, n)
		for i := range lines {
			lines[i] = fmt.Sprint(prefix, i)
		}
		return lines
	}
	mixed := slices.Repeat([]string{"x", "", ""}, 50_000)
	checkScript(t, number("a", 50_000), number("b", 50_000))
	checkScript(t, make([]string, len(mixed)), mixed)
}

// BenchmarkCompare is the worst case of a robots.txt: 500 KiB of which all lines are alike, or none.
func BenchmarkCompare(b *testing.B) {
	alike, mixed := make([]string, 512_000), slices.Repeat([]string{"x", ""}, 128_000)
	b.ReportAllocs()
	for b.Loop() {
		Compare(alike, mixed, 3)
	}
}

// checkScript holds that the lines kept and deleted are the old text, and those kept and inserted the new one.
func checkScript(tb testing.TB, a, b []string) (edits int) {
	tb.Helper()
	var from, to []string
	for _, l := range script(a, b) {
		switch l.Op {
		case Keep:
			from, to = append(from, l.Text), append(to, l.Text)
		case Delete:
			from = append(from, l.Text)
			edits++
		case Insert:
			to = append(to, l.Text)
			edits++
		}
	}
	if !slices.Equal(from, a) || !slices.Equal(to, b) {
		tb.Fatalf("the script of %.200q and %.200q does not give them back", a, b)
	}
	return edits
}

// shortest is the least number of edits, by the textbook's table of longest common subsequences.
func shortest(a, b []string) int {
	table := make([][]int, len(a)+1)
	for i := range table {
		table[i] = make([]int, len(b)+1)
	}
	for i := range a {
		for j := range b {
			if a[i] == b[j] {
				table[i+1][j+1] = table[i][j] + 1
			} else {
				table[i+1][j+1] = max(table[i][j+1], table[i+1][j])
			}
		}
	}
	return len(a) + len(b) - 2*table[len(a)][len(b)]
}

// checkHunks holds that the hunks lie where they say, in order, and leave out unchanged lines only.
func checkHunks(tb testing.TB, a, b []string, context int) {
	tb.Helper()
	from, to := 0, 0
	for _, h := range Compare(a, b, context) {
		f, n := h.From, h.To
		if h.FromCount > 0 {
			f--
		}
		if h.ToCount > 0 {
			n--
		}
		if f < from || f-from != n-to || !slices.Equal(a[from:f], b[to:n]) {
			tb.Fatalf("hunk at -%d +%d: what is left out before differs or overlaps", h.From, h.To)
		}
		for _, l := range h.Lines {
			if l.Op != Insert {
				if a[f] != l.Text {
					tb.Fatalf("line %d of the old text is %q, not %q", f+1, a[f], l.Text)
				}
				f++
			}
			if l.Op != Delete {
				if b[n] != l.Text {
					tb.Fatalf("line %d of the new text is %q, not %q", n+1, b[n], l.Text)
				}
				n++
			}
		}
		from, to = f, n
	}
	if !slices.Equal(a[from:], b[to:]) {
		tb.Fatal("what is left out at the end differs")
	}
}

func FuzzCompare(f *testing.F) {
	f.Add([]byte("a\nb\nc\nd"), []byte("b\nx\nd\na"), 3)
	f.Add([]byte("a\na\na\nb"), []byte("a\nb\na\na\nb\n"), 0)
	f.Add([]byte(""), []byte("\n\n\r\n"), 1)
	f.Add(bytes.Repeat([]byte("a\nb\n"), 20), bytes.Repeat([]byte("b\na\nc\n"), 15), 2)
	f.Fuzz(func(t *testing.T, old, changed []byte, context int) {
		a, b := Split(old), Split(changed)
		edits := checkScript(t, a, b)
		if len(a)+len(b) <= 400 {
			if want := shortest(a, b); edits != want {
				t.Errorf("%d edits, and %d suffice: %q, %q", edits, want, a, b)
			}
		}
		checkHunks(t, a, b, context)
	})
}
