package crawlgate

import (
	"regexp"
	"strings"
	"testing"
)

// Limits of the README, so that visitors read it to the end.
const (
	maxReadmeLines = 150
	maxReadmeWords = 900
)

// TestReadmeFacts checks what the README says about the project: its licence, the Go version that
// it needs, and the latest release.
func TestReadmeFacts(t *testing.T) {
	t.Parallel()
	text := readFile(t, "README.md")
	if lines, words := strings.Count(text, "\n"), len(strings.Fields(text)); lines > maxReadmeLines || words > maxReadmeWords {
		t.Errorf("README.md has %d lines and %d words, want at most %d and %d", lines, words, maxReadmeLines, maxReadmeWords)
	}
	version := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))
	release := regexp.MustCompile(`(?m)^## (\d\S*)`).FindStringSubmatch(readFile(t, "CHANGELOG.md"))
	licence := strings.Contains(readFile(t, "LICENSE"), "Apache License\n") && strings.Contains(readFile(t, "LICENSE"), "Version 2.0,")
	if version == nil || release == nil || !licence {
		t.Fatalf("go.mod, CHANGELOG.md and LICENSE have %q, %q, Apache 2.0: %t", version, release, licence)
	}
	for _, want := range []string{
		"Apache License 2.0 · Go " + version[1] + " ·", "latest release: " + release[1] + "\n",
		"needs Go " + version[1] + " or newer", "crawlgate_" + release[1] + "_amd64.deb",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("README.md does not say %q", want)
		}
	}
}
