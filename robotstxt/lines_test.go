package robotstxt

import (
	"bytes"
	"fmt"
	"testing"
)

// TestLines checks that lines are counted like the lines of rules.
func TestLines(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                   "1:",
		"a":                  "1:a",
		"a\nb\r\nc\rd\n":     "1:a 2:b 3:c 4:d 5:",
		"\xEF\xBB\xBFa\n\nb": "1:a 2: 3:b",
	} {
		var got string
		for n, line := range Lines([]byte(text)) {
			got += fmt.Sprintf(" %d:%s", n, line)
		}
		if got[1:] != want {
			t.Errorf("%q: %q, want %q", text, got[1:], want)
		}
	}

	text := []byte("\xEF\xBB\xBFUser-agent: *\r\rDisallow: /a\n\r\nDisallow: /b\rDisallow: /c")
	for _, path := range []string{"/a", "/b", "/c"} {
		m := Parse(text).Select(Agent{}).Match(path)
		for n, line := range Lines(text) {
			if (n == m.Line) != bytes.Equal(line, []byte("Disallow: "+path)) {
				t.Errorf("%s: line %d is %q, but the rule is at line %d", path, n, line, m.Line)
			}
		}
	}
	for n := range Lines(text) {
		if n == 2 {
			return // a reader may stop early
		}
	}
}
