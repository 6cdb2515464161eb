package cli_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
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

// TestWhy checks the explanations of lines; docs/cli.md shows one.
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
	changed := fetch.Policy{}.Complete().Next(fetch.Record{Origin: origin.Origin{Scheme: "https", Host: "example.com", Port: 443}},
		fetch.Outcome{Kind: fetch.KindRules, Status: 200, Body: []byte("User-agent: *\nDisallow: /private/more/\nCrawl-delay: 2\n")},
		time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC))
	if err := errors.Join(s.Save(t.Context(), changed), s.Close()); err != nil {
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
		if tt.lines == "2" {
			testdocs.Shows(t, "cli.md", strings.ReplaceAll(r.out, dir+"/", ""))
		}
	}
	for args, want := range map[string]string{
		"":                             "want an access log",
		"--limit 0 " + log:             "a limit above 0",
		"--agent x " + log + ":2":      "give it alone",
		"--host http://x " + log:       "--host: host pattern",
		filepath.Join(dir, "no:3"):     "no such file",
		"--store a --gateway b " + log: "exclude each other",
	} {
		r := runCommand(t.Context(), t, "", append([]string{"why"}, strings.Fields(args)...)...)
		if r.status != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%q: got status %d, %s", args, r.status, r.err)
		}
	}
}

// TestWhySays checks the explanations of lines of other kinds: since when a site was unreachable,
// what refused a purpose and where the site states it, how long a request waited, and how a tunnel
// ended.
func TestWhySays(t *testing.T) {
	t.Parallel()
	store := filepath.Join(t.TempDir(), "robots.db")
	s, err := boltstore.Open(boltstore.Config{Path: store})
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	const answer = `{"robots_txt":{"schema":1,"event":"fetched","at":"2026-11-21T11:00:00Z","origin":"https://example.com","status":503,"cause":"status",` +
		`"state":"unreachable","unreachable_since":"2026-11-21T08:00:00Z"}}` + "\n"
	of := func(method, fields string) string {
		return `{"ts":1795262400,"request":{"method":"` + method + `","uri":"https://example.com/x"},"robots":{"schema":2,"decided_at":1795262400,"mode":"enforce","origin":"https://example.com",` +
			fields + "}}\n"
	}
	for line, want := range map[string]string{
		of("GET", `"decision":"deny","reason":"unreachable","state":"unreachable","cause":"status"`): "unreachable since  2026-11-21T08:00:00Z\n",
		of("GET", `"decision":"deny","reason":"disallowed","state":"rules"`):                         "request     GET https://example.com/x\n",
		of("GET", `"decision":"deny","reason":"preference_denied","state":"absent","preferences":["train-ai=n;from=headers"],`+
			`"preference_conflict":"train-ai=n;from=headers","signal_fields":["Content-Usage: train-ai=n","Tdm-Reservation: 1"]`): "against a purpose  train-ai=n;from=headers\n" +
			"said by            Content-Usage: train-ai=n\nsaid by            Tdm-Reservation: 1\n",
		of("GET", `"decision":"deny","reason":"rate_limited","detail":"a retry may succeed in 3s","state":"absent","wait_ms":1200,"crawl_delay_s":5`): "a retry may succeed in 3s\n",
		of("GET", `"decision":"allow","reason":"no_rule","state":"absent","wait_ms":1200,"crawl_delay_s":5`):                                          "Crawl-delay  5s\nheld for     1.2s\n",
		of("CONNECT", `"decision":"allow","reason":"intercepted","state":"unknown","path_visible":true`):                                              "tunnel      CONNECT https://example.com/x\ndecision    opened: ",
		of("CONNECT", `"decision":"allow","reason":"unrestricted","state":"rules","path_visible":false`):                                              "; the log does not show the requests inside it\n",
		of("CONNECT", `"decision":"deny","reason":"tunnel_restricted","state":"rules","path_visible":false`):                                          "decision    denied: ",
	} {
		if r := runCommand(t.Context(), t, answer+line, "why", "--store", store, "-"); r.status != 0 || !strings.Contains(r.out, want) {
			t.Errorf("%s: got status %d without %q: %s%s", line, r.status, want, r.out, r.err)
		}
	}
}

// TestTextOfAnotherHash checks that a text from a gateway is accepted only if its hash is right.
func TestTextOfAnotherHash(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text := `{"origins":[]}`
		if strings.HasSuffix(r.URL.Path, "/body") {
			text = "User-agent: *\nDisallow: /\n"
		}
		_, _ = w.Write([]byte(text))
	}))
	t.Cleanup(server.Close)
	_, sha := auditStore(t)
	log := exampleLog(t, sha)
	for _, command := range []string{"why --limit 9", "audit"} {
		args := append(strings.Fields(command), "--gateway", server.Listener.Addr().String(), "-")
		r := runCommand(t.Context(), t, log, args...)
		if said := r.out + r.err; strings.Contains(said, "Disallow: /") || command != "audit" && (r.status != 2 || !strings.Contains(said, "stored data is damaged")) ||
			command == "audit" && (r.status != 1 || !strings.Contains(said, ": text: the stored text has another hash")) {
			t.Errorf("%s with a text of another hash: got status %d: %s", command, r.status, said)
		}
	}
}
