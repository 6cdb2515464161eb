package cli_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache/boltstore"
)

// TestWhy holds which lines are explained, and that docs/cli.md shows what is said of one.
func TestWhy(t *testing.T) {
	t.Parallel()
	store, sha := auditStore(t)
	dir := t.TempDir()
	log := filepath.Join(dir, "access.log")
	if err := os.WriteFile(log, []byte(exampleLog(t, sha)), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := boltstore.Open(boltstore.Config{Path: store})
	if err != nil {
		t.Fatal(err)
	}
	changed := fetch.DefaultPolicy().Next(fetch.Record{Origin: origin.Origin{Scheme: "https", Host: "example.com", Port: 443}},
		fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte("User-agent: *\nDisallow: /private/more/\nCrawl-delay: 2\n")},
		time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC))
	if err := errors.Join(s.Save(t.Context(), changed), s.Close()); err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(testdocs.Path("docs", "cli.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args   []string
		status int
		lines  string // explained, newest first
	}{
		{[]string{log + ":2"}, 0, "2"},
		{[]string{"--url", "https://example.com/private/x", log}, 0, "4 2"},
		{[]string{"--host", "*.com", "--agent", "acmebot", log}, 0, "5 4 3"},
		{[]string{"--agent", "acmebot", "--limit", "2", log}, 2, "7 5"}, // the text of line 7 is missing
		{[]string{"--agent", "AcmeNews", log}, 0, "6"},
		{[]string{"--agent", "nobody", log}, 1, ""},
		{[]string{log + ":4711"}, 1, ""},
	} {
		r := runCommand(t.Context(), t, "", append([]string{"why", "--store", store}, tt.args...)...)
		var lines []string
		for line := range strings.Lines(r.out) {
			if rest, ok := strings.CutPrefix(line, log+":"); ok {
				lines = append(lines, strings.Fields(rest)[0])
			}
		}
		if got := strings.Join(lines, " "); r.status != tt.status || got != tt.lines || (r.err == "") != (r.status == 0) {
			t.Errorf("%q: status %d, lines %q, want %q: %s", tt.args, r.status, got, tt.lines, r.err)
		}
		if want := "\nWHY\n"; *testdocs.Update && tt.lines == "2" && strings.Contains(string(page), want) {
			page = []byte(strings.Replace(string(page), want, "\n"+strings.ReplaceAll(r.out, dir+"/", ""), 1))
			if err := os.WriteFile(testdocs.Path("docs", "cli.md"), page, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if shown := strings.ReplaceAll(r.out, dir+"/", ""); tt.lines == "2" && !strings.Contains(string(page), "\n"+shown+"```") {
			t.Errorf("docs/cli.md does not show what the command prints:\n%s", shown)
		}
	}
	for args, want := range map[string]string{
		"":                             "want an access log",
		"--limit 0 " + log:             "a limit above 0",
		"--agent x " + log + ":2":      "it stands alone",
		"--host http://x " + log:       "--host: host pattern",
		filepath.Join(dir, "no:3"):     "no such file",
		"--store a --gateway b " + log: "exclude each other",
	} {
		r := runCommand(t.Context(), t, "", append([]string{"why"}, strings.Fields(args)...)...)
		if r.status != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%q: status %d, %s", args, r.status, r.err)
		}
	}
}
