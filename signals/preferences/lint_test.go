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
		{"Content-Usage: train-ai=n", preferences.LintLooseUsage, "for no crawler"},
		{"Content-Signal: ai-train=no", "", ""}, // for all crawlers
		{"User-agent: *", "", ""},
		{"Content-Usage: train-ai=n, search=y", "", ""},
		{"Content-Usage: /a%20b*$ train-ai=n;x=1", "", ""},
		{"Content-Usage: Train-AI=n", preferences.LintUpperCase, "lower case"},
		{`Content-Usage: train-ai="n"`, preferences.LintBadValue, "string"},
		{"Content-Usage: train-ai=no", preferences.LintBadValue, "write train-ai=n"},
		{"Content-Usage: train-ai=disallow", preferences.LintBadValue, "write train-ai=n"},
		{"Content-Usage: train-ai=maybe", preferences.LintBadValue, "nothing is known"},
		{"Content-Usage: train-ai, search=(n)", preferences.LintBadValue + "," + preferences.LintBadValue, "neither y nor n"},
		{"Content-Usage: train-ai=y, train-ai=n", preferences.LintRepeatedLabel, "2 times"},
		{"Content-Usage: ai-train=n", preferences.LintUnknownLabel, "train-ai"},
		{"Content-Usage: ai-input=n", preferences.LintUnknownLabel, "its label is ai-use"},
		{"Content-Usage: ai-use=n", "", ""},
		{"Content-Signal: ai-use=no", preferences.LintUnknownLabel, "its label is ai-input"},
		{"Content-Usage: genai=n", preferences.LintUnknownLabel, "draft-ietf-aipref-vocab-08"},
		{"Content-Usage: blog/ train-ai=n", preferences.LintBadPath, "begins with a slash"},
		{"Content-Usage: *.pdf train-ai=n", preferences.LintBadPath, "begins with a slash"},
		{"Content-Usage: train-ai=n,", preferences.LintNotDictionary, "RFC 9651"},
		{"Content-Usage: /x", preferences.LintEmpty, "nothing"},
		{"Content-Usage:", preferences.LintEmpty, "nothing"},
		{"Content-Usage: " + strings.Repeat("a", 5000), preferences.LintLongPreference, "5000"},
		{"Content-Signal: search=yes, ai-input=no,ai-train=no, use=reference", "", ""},
		{"Content-Signal: AI-Train=NO", "", ""},
		{"Content-Signal: ai-train=disallow", preferences.LintBadValue, "write ai-train=no"},
		{"Content-Signal: ai-train=y", preferences.LintBadValue, "write ai-train=yes"},
		{"Content-Signal: train-ai=no", preferences.LintUnknownLabel, "ai-train"},
		{"Content-Signal: tdm=no", preferences.LintUnknownLabel, "no label"},
		{"Content-Signal: cite=no", preferences.LintUnknownLabel, "kept"},
		{"Content-Signal: /blog ai-train=no", preferences.LintBadPath, "no paths"},
		{"Content-Signal: search", preferences.LintNotDictionary, "no ="},
		{"Content-Signal: search=no, Search=yes", preferences.LintRepeatedLabel, "2 times"},
		{"Content-Signal: use=never", preferences.LintBadValue, "immediate"},
		{"Content-Signal:", preferences.LintEmpty, "nothing"},
		{"License: https://a.example/license.xml", "", ""},
		{"License: /license.xml", preferences.LintBadLicense, "absolute"},
		{"License: mailto:a@b.example", preferences.LintBadLicense, "absolute"},
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
		t.Errorf("%d warnings", n)
	}
	if w := preferences.Lint([]byte("\xff\xfeL\x00i\x00c\x00e\x00n\x00s\x00e\x00:\x00x\x00")); w != nil {
		t.Errorf("UTF-16: %+v", w)
	}
}
