package preferences_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/signals/preferences"
)

// Each line of a file, and the codes of the warnings about it.
func TestLint(t *testing.T) {
	t.Parallel()
	lines := []struct{ line, codes, says string }{
		{"Content-Usage: train-ai=n", "preference-outside-group", "applies to no crawler"},
		{"Content-Signal: ai-train=no", "", ""}, // for all crawlers
		{"User-agent: *", "", ""},
		{"Content-Usage: train-ai=n, search=y", "", ""},
		{"Content-Usage: /a%20b*$ train-ai=n;x=1", "", ""},
		{"Content-Usage: Train-AI=n", "preference-upper-case", "lower case"},
		{`Content-Usage: train-ai="n"`, "preference-value", "string"},
		{"Content-Usage: train-ai=no", "preference-value", "write train-ai=n"},
		{"Content-Usage: train-ai=disallow", "preference-value", "write train-ai=n"},
		{"Content-Usage: train-ai=maybe", "preference-value", "the preference is unknown"},
		{"Content-Usage: train-ai, search=(n)", "preference-value" + "," + "preference-value", "neither y nor n"},
		{"Content-Usage: train-ai=y, train-ai=n", "preference-repeated", "2 times"},
		{"Content-Usage: ai-train=n", "preference-label", "train-ai"},
		{"Content-Usage: ai-input=n", "preference-label", "its label is ai-use"},
		{"Content-Usage: ai-use=n", "", ""},
		{"Content-Signal: ai-use=no", "preference-label", "its label is ai-input"},
		{"Content-Usage: genai=n", "preference-label", "draft-ietf-aipref-vocab-08"},
		{"Content-Usage: blog/ train-ai=n", "preference-path", "does not begin with a slash"},
		{"Content-Usage: *.pdf train-ai=n", "preference-path", "does not begin with a slash"},
		{"Content-Usage: train-ai=n,", "preference-syntax", "RFC 9651"},
		{"Content-Usage: /x", "preference-empty", "nothing"},
		{"Content-Usage:", "preference-empty", "nothing"},
		{"Content-Usage: " + strings.Repeat("a", 5000), "preference-too-long", "5000"},
		{"Content-Signal: search=yes, ai-input=no,ai-train=no, use=reference", "", ""},
		{"Content-Signal: AI-Train=NO", "", ""},
		{"Content-Signal: ai-train=disallow", "preference-value", "write ai-train=no"},
		{"Content-Signal: ai-train=y", "preference-value", "write ai-train=yes"},
		{"Content-Signal: train-ai=no", "preference-label", "ai-train"},
		{"Content-Signal: tdm=no", "preference-label", "not a label"},
		{"Content-Signal: cite=no", "preference-label", "kept"},
		{"Content-Signal: /blog ai-train=no", "preference-path", "no paths"},
		{"Content-Signal: search", "preference-syntax", "no ="},
		{"Content-Signal: search=no, Search=yes", "preference-repeated", "2 times"},
		{"Content-Signal: use=never", "preference-value", "immediate"},
		{"Content-Signal:", "preference-empty", "nothing"},
		{"License: https://a.example/license.xml", "", ""},
		{"License: /license.xml", "bad-license", "absolute"},
		{"License: mailto:a@b.example", "bad-license", "absolute"},
		{"Disallow: /", "", ""},
	}
	var file strings.Builder
	for _, l := range lines {
		file.WriteString(l.line + "\n")
	}
	codes, messages := make([][]string, len(lines)), make([]string, len(lines))
	for _, w := range preferences.Lint([]byte(file.String())) {
		codes[w.Line-1] = append(codes[w.Line-1], w.Code)
		messages[w.Line-1] += w.Message
	}
	for i, l := range lines {
		if got := strings.Join(codes[i], ","); got != l.codes || !strings.Contains(messages[i], l.says) {
			t.Errorf("%.60s: got %s: %s", l.line, got, messages[i])
		}
	}
}

func TestLintIsBounded(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&file, "Content-Signal: a%d=maybe\n", i)
	}
	if n := len(preferences.Lint([]byte(file.String()))); n != 1000 {
		t.Errorf("got %d warnings, want 1000", n)
	}
	if w := preferences.Lint([]byte("\xff\xfeL\x00i\x00c\x00e\x00n\x00s\x00e\x00:\x00x\x00")); w != nil {
		t.Errorf("Lint of UTF-16 = %+v, want nil", w)
	}
}
