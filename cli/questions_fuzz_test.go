package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/cli"
	"github.com/crawlgate/crawlgate/internal/oracle"
	"github.com/crawlgate/crawlgate/origin"
)

// FuzzQuestions checks that every line that is not empty gets one line of JSON, an answer or an
// error, with the id that encoding/json reads from the line.
func FuzzQuestions(f *testing.F) {
	for _, s := range []string{
		`{"id":1,"robots":"VXNlci1hZ2VudDogKgpEaXNhbGxvdzogLw==","agent":"A","url":"http://example.com/x"}`,
		"{\"id\":{\"a\":[1,null]},\"robots\":\"\",\"agents\":[\"A\",\"\\u0042\"],\"url\":\"/\\\"\"}\n\nx\n{\"id\":\"\xff\"}",
		`{"id":1e400,"id":2}`, `{"robots":null,"url":[]}`, "{\"id\":\"a\\nb\"}\r\n[",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if bytes.Contains(in, []byte("robots_file")) || bytes.Contains(in, []byte(`\u`)) {
			return // do not read files of this machine
		}
		var out bytes.Buffer
		failed, err := cli.Answer(context.Background(), bytes.NewReader(in), &out, cli.MaxQuestion, cli.MaxParsed)
		if err != nil {
			t.Fatal(err)
		}
		questions, anyError := 0, false
		answers := bytes.Split(out.Bytes(), []byte("\n"))
		for line := range bytes.SplitSeq(in, []byte("\n")) {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			if questions++; questions >= len(answers) {
				t.Fatalf("only %d answers for the questions %q", len(answers)-1, in)
			}
			anyError = checkAnswer(t, line, answers[questions-1]) || anyError
		}
		if questions != len(answers)-1 || failed != anyError {
			t.Errorf("%d answers for %d questions, failed = %v", len(answers)-1, questions, failed)
		}
	})
}

// checkAnswer reports whether the answer is an error.
func checkAnswer(t *testing.T, line, answer []byte) bool {
	t.Helper()
	var a struct {
		ID      json.RawMessage `json:"id"`
		Allowed *bool           `json:"allowed"`
		Error   *string         `json:"error"`
	}
	if err := json.Unmarshal(answer, &a); err != nil || (a.Allowed == nil) == (a.Error == nil) {
		t.Errorf("question %q: invalid answer %q: %v", line, answer, err)
	}
	var q struct {
		ID json.RawMessage `json:"id"`
	}
	if a.Error == nil && json.Unmarshal(line, &q) == nil && q.ID != nil && !bytes.Equal(q.ID, a.ID) {
		t.Errorf("%q: id %s, want %s", line, a.ID, q.ID)
	}
	return a.Error != nil
}

// FuzzTarget checks that if the gateway accepts a URL, both match the same bytes of it.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{
		"http://example.com", "https://EXAMPLE.com:443/a%2Fb{c?d#e", "http://[::1]:8080?q", "http://example.com/caf\u00e9%2fx",
		"http://example.com//a/../b?", "ftp://example.com/;x", "http://example.com/a b?c d|e", "HTTP://b\u00fccher.example/?a#b?c",
		"http://example.com#f/g", "http://u@example.com/", "http:///x", "http://example.com/%", "mailto:a@b", "//example.com/x",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := url.Parse(raw)
		if err != nil || !strings.Contains(raw, "://") || strings.HasPrefix(raw, "/") {
			return
		}
		if authority, _, _ := strings.Cut(raw[strings.Index(raw, "://")+len("://"):], "/"); strings.Contains(authority, "%") {
			return // net/url decodes escapes in a host, but origin.Parse refuses them
		}
		target, err := origin.NewTarget(u)
		if err != nil {
			return
		}
		got, err := cli.TargetOf(raw)
		if err != nil || oracle.Canonical(got) != oracle.Canonical(target.Path) {
			t.Errorf("%q: got %q %v, the gateway matches %q", raw, got, err, target.Path)
		}
	})
}
