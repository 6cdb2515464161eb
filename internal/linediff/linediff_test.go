package linediff

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// compare returns the hunks. It checks that they are in order and at their line numbers, and that
// they turn one text into the other.
func compare(tb testing.TB, a, b []byte, context int) (list []Hunk, edits int) {
	tb.Helper()
	list = Compare(a, b, context)
	old, changed := Lines(a), Lines(b)
	from, to := 0, 0
	for _, h := range list {
		f, n := h.From, h.To
		if h.FromCount > 0 {
			f--
		}
		if h.ToCount > 0 {
			n--
		}
		if f < from || f-from != n-to || !slices.Equal(old[from:f], changed[to:n]) {
			tb.Fatalf("hunk at -%d +%d: the lines before it differ or overlap", h.From, h.To)
		}
		from, to = f+h.FromCount, n+h.ToCount
		for _, l := range h.Lines {
			op, text := l[:1], l[1:]
			if op != insert {
				if old[f] != text {
					tb.Fatalf("line %d of the old text is %q, not %q", f+1, old[f], text)
				}
				f++
			}
			if op != remove {
				if changed[n] != text {
					tb.Fatalf("line %d of the new text is %q, not %q", n+1, changed[n], text)
				}
				n++
			}
			if op != keep {
				edits++
			}
		}
		if f != from || n != to {
			tb.Fatalf("hunk at -%d +%d has wrong numbers of lines", h.From, h.To)
		}
	}
	if !slices.Equal(old[from:], changed[to:]) {
		tb.Fatal("the lines after the last hunk differ")
	}
	return list, edits
}

// render formats hunks as a unified diff.
func render(list []Hunk) string {
	var b strings.Builder
	for _, h := range list {
		fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@\n", h.From, h.FromCount, h.To, h.ToCount)
		for _, l := range h.Lines {
			b.WriteString(l + "\n")
		}
	}
	return b.String()
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
		if got := Lines([]byte(text)); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
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
		{"all terminators", "a\r\nb\rc\n\n\nd\r", "a\nb\nc\n\n\ne", 0, "@@ -6,1 +6,1 @@\n-d\n+e\n"},
		{"from nothing", "", "a\nb\n", 3, "@@ -0,0 +1,2 @@\n+a\n+b\n"},
		{"to nothing", "a\n", "", 3, "@@ -1,1 +0,0 @@\n-a\n"},
		{"replaced", "a\nb\nc\n", "a\nx\nc\n", 3, "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n"},
		{"no context", "a\nb\nc\n", "a\nx\nc\n", 0, "@@ -2,1 +2,1 @@\n-b\n+x\n"},
		{"inserted without context", "a\nb\n", "a\nx\nb\n", 0, "@@ -1,0 +2,1 @@\n+x\n"},
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
			list, _ := compare(t, []byte(tt.a), []byte(tt.b), tt.context)
			if got := render(list); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// hostile returns pairs of texts of 500 KiB whose fewest edits take long to find.
func hostile() map[string][2][]byte {
	numbered := func(prefix string) []byte {
		var b bytes.Buffer
		for i := 0; b.Len() < 500<<10; i++ {
			fmt.Fprintln(&b, prefix, i)
		}
		return b.Bytes()
	}
	return map[string][2][]byte{
		"no line in common": {numbered("a"), numbered("b")},
		"all lines alike":   {bytes.Repeat([]byte("\n"), 500<<10), bytes.Repeat([]byte("x\n\n"), 170<<10)},
		"in another order":  {bytes.Repeat([]byte("a\nb\n\n"), 100<<10), bytes.Repeat([]byte("b\n\na\n"), 100<<10)},
		"two long lines":    {bytes.Repeat([]byte("a"), 500<<10), append(bytes.Repeat([]byte("a"), 500<<10), 'b')},
	}
}

// TestCompareIsBounded checks that the time is limited for any texts. Without the limit, the first
// pair would take minutes.
func TestCompareIsBounded(t *testing.T) {
	t.Parallel()
	for name, pair := range hostile() {
		start := time.Now()
		compare(t, pair[0], pair[1], 3)
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s took %s, want at most 20s", name, took)
		}
	}
}

func BenchmarkCompare(b *testing.B) {
	for name, pair := range hostile() {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				Compare(pair[0], pair[1], 3)
			}
		})
	}
}

// shortest returns the least number of edits, by the textbook algorithm for longest common
// subsequences.
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

func FuzzCompare(f *testing.F) {
	f.Add([]byte("a\nb\nc\nd"), []byte("b\nx\nd\na"), 3)
	f.Add([]byte("a\na\na\nb"), []byte("a\nb\na\na\nb\n"), 0)
	f.Add([]byte(""), []byte("\n\n\r\n"), 1)
	f.Add(bytes.Repeat([]byte("a\nb\n"), 20), bytes.Repeat([]byte("b\na\nc\n"), 15), 2)
	f.Fuzz(func(t *testing.T, old, changed []byte, context int) {
		_, edits := compare(t, old, changed, max(0, min(context, 1000)))
		if a, b := Lines(old), Lines(changed); len(a)+len(b) <= 50 {
			if want := shortest(a, b); edits != want {
				t.Errorf("got %d edits, want %d: %q, %q", edits, want, a, b)
			}
		}
	})
}
