package cli_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/cli"
)

const rules = "User-agent: *\nDisallow: /private\nAllow: /private/open$\n\nUser-agent: B\nDisallow: /*.pdf\n"

// ask runs questions and returns the answers.
func ask(t *testing.T, in string) (answers string, failed bool) {
	t.Helper()
	var out bytes.Buffer
	failed, err := cli.Answer(context.Background(), strings.NewReader(in), &out, cli.MaxQuestion, cli.MaxParsed)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), failed
}

func b64(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

// TestQuestions checks spelling and order of the answers: scripts compare them byte by byte.
func TestQuestions(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "robots.txt")
	if err := os.WriteFile(path, []byte(rules), 0o600); err != nil {
		t.Fatal(err)
	}
	inline := `"robots":"` + b64(rules) + `"`
	onDisk := fmt.Sprintf(`"robots_file":%q`, path)
	for _, c := range []struct{ name, question, answer string }{
		{
			"disallowed", `{"id":1,` + inline + `,"agent":"A","url":"https://example.com/private/x"}`,
			`{"id":1,"allowed":false,"rule":"/private","line":2,"group":"*"}`,
		},
		{
			"allowed by a rule", `{"id":"two",` + onDisk + `,"agent":"A","url":"https://example.com/private/open"}`,
			`{"id":"two","allowed":true,"rule":"/private/open$","line":3,"group":"*"}`,
		},
		{
			"no rule", `{"id":[3,{"a":null}],` + onDisk + `,"agent":"b","url":"http://example.com/private"}`,
			`{"id":[3,{"a":null}],"allowed":true,"rule":"","line":0,"group":"B"}`,
		},
		{
			"order of tokens", `{"id":4,` + inline + `,"agents":["C","B","A"],"url":"http://example.com/x.pdf?y"}`,
			`{"id":4,"allowed":false,"rule":"/*.pdf","line":6,"group":"B"}`,
		},
		{
			"no tokens", `{"id":5,` + inline + `,"agents":[],"url":"/private"}`,
			`{"id":5,"allowed":false,"rule":"/private","line":2,"group":"*"}`,
		},
		{
			"order of fields, blanks", ` { "url" : "/x" , "agent" : "A" , "robots" : "" , "id" : 6.50e1 } `,
			`{"id":6.50e1,"allowed":true,"rule":"","line":0,"group":""}`,
		},
		{
			"no id", `{` + inline + `,"agent":"A","url":"/private"}`,
			`{"id":null,"allowed":false,"rule":"/private","line":2,"group":"*"}`,
		},
		{
			"null is absent", `{"id":null,` + inline + `,"agent":"A","agents":null,"robots_file":null,"url":"/private"}`,
			`{"id":null,"allowed":false,"rule":"/private","line":2,"group":"*"}`,
		},
		{
			"no path", `{"id":7,"robots":"` + b64("User-agent: *\nDisallow: /$\nAllow: /?") + `","agent":"A","url":"http://example.com#f"}`,
			`{"id":7,"allowed":false,"rule":"/$","line":2,"group":"*"}`,
		},
		{
			"query without path", `{"id":8,"robots":"` + b64("User-agent: *\nDisallow: /?a") + `","agent":"A","url":"http://example.com?a"}`,
			`{"id":8,"allowed":false,"rule":"/?a","line":2,"group":"*"}`,
		},
		{
			"escapes of JSON", `{"id":9,"robots":"` + b64("User-agent: *\nDisallow: /\"é\\<") + `","\u0061gent":"A","url":"\/\"\u00e9\\<"}`,
			`{"id":9,"allowed":false,"rule":"/\"é\\<","line":2,"group":"*"}`,
		},
		{ // like in encoding/json, names are case-insensitive
			"case of a field", `{"id":2,` + inline + `,"Agent":"B","URL":"/private"}`,
			`{"id":2,"allowed":true,"rule":"","line":0,"group":"B"}`,
		},
		{
			"broken escape in the URL", `{"id":10,"robots":"` + b64("User-agent: *\nDisallow: /%zz") + `","agent":"A","url":"http://example.com/%zz"}`,
			`{"id":10,"allowed":false,"rule":"/%zz","line":2,"group":"*"}`,
		},
		{
			"rule that is not UTF-8", `{"id":11,"robots":"` + b64("User-agent: *\nDisallow: /\xff") + `","agent":"A","url":"/%FF"}`,
			`{"id":11,"allowed":false,"rule":"/\ufffd","line":2,"group":"*"}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, failed := ask(t, c.question+"\n")
			if got != c.answer+"\n" || failed {
				t.Errorf("got %s failed %v, want %s", got, failed, c.answer)
			}
		})
	}
}

// TestBadQuestions checks that each bad question gets an error, with its id if it is JSON, and that
// the stream continues.
func TestBadQuestions(t *testing.T) {
	t.Parallel()
	const good = `{"id":"after","robots":"","agent":"A","url":"/"}`
	dir := t.TempDir()
	for _, c := range []struct{ name, line, id, reason string }{
		{"not JSON", `nonsense`, `null`, "not a JSON object"},
		{"not an object", `[1]`, `null`, "not a JSON object"},
		{"cut off", `{"id":1,"robots":"","agent":"A"`, `null`, "bad JSON: unexpected EOF"},
		{"cut off in the id", `{"id":[1,`, `null`, "bad JSON"},
		{"cut off in a string", `{"id":1,"robots":"abc`, `null`, "bad JSON: unexpected EOF"},
		{"more behind it", good + good, `"after"`, "more than one value"},
		{"no comma", `{"id":1 "robots":""}`, `null`, "after object key:value pair"},
		{"comma too many", `{"id":1,}`, `null`, "object key"},
		{"no colon", `{"id" 1}`, `null`, "after object key"},
		{"unknown field", `{"id":2,"robots":"","agent":"A","url":"/","colour":"red"}`, `2`, `unknown field \"colour\"`},
		{"a field twice", `{"id":2,"robots":"","agent":"A","url":"/a","url":"/b"}`, `2`, `field \"url\" is given twice`},
		{"a field twice, once null", `{"id":2,"robots":"","agent":"A","Agent":null,"agents":["B"],"url":"/"}`, `2`, `field \"Agent\" is given twice`},
		{"robots is a number", `{"id":3,"robots":5,"agent":"A","url":"/"}`, `3`, "robots: not a string"},
		{"agent is a list", `{"id":3,"robots":"","agent":["A"],"url":"/"}`, `3`, "agent: not a string"},
		{"agents is a string", `{"id":3,"robots":"","agents":"A","url":"/"}`, `3`, "agents: not a list"},
		{"agents holds a number", `{"id":3,"robots":"","agents":["A",1],"url":"/"}`, `3`, "agents: not a list"},
		{"agents holds null", `{"id":3,"robots":"","agents":[null],"url":"/"}`, `3`, "agents: not a list"},
		{"url is an object", `{"id":3,"robots":"","agent":"A","url":{}}`, `3`, "url: not a string"},
		{"bad base64", `{"id":4,"robots":"*","agent":"A","url":"/"}`, `4`, "not base64"},
		{"no url", `{"id":5,"robots":"","agent":"A"}`, `5`, "no url"},
		{"url null", `{"id":5,"robots":"","agent":"A","url":null}`, `5`, "no url"},
		{"no agent", `{"id":5,"robots":"","url":"/"}`, `5`, "neither agent"},
		{"two agents", `{"id":5,"robots":"","agent":"A","agents":["A"],"url":"/"}`, `5`, "both agent"},
		{"no robots", `{"id":5,"agent":"A","url":"/"}`, `5`, "neither robots"},
		{"two robots", `{"id":5,"robots":"","robots_file":"x","agent":"A","url":"/"}`, `5`, "both robots"},
		{"missing file", fmt.Sprintf(`{"id":6,"robots_file":%q,"agent":"A","url":"/"}`, dir+"/none"), `6`, "no such file"},
		{"folder", fmt.Sprintf(`{"id":6,"robots_file":%q,"agent":"A","url":"/"}`, dir), `6`, "not a regular file"},
		{"relative url", `{"id":7,"robots":"","agent":"A","url":"a/b"}`, `7`, "neither absolute nor a path"},
		{"other scheme", `{"id":7,"robots":"","agent":"A","url":"gopher://example.com/"}`, `7`, "url: "},
		{"no host", `{"id":7,"robots":"","agent":"A","url":"http:///x"}`, `7`, "url: "},
		{"userinfo", `{"id":7,"robots":"","agent":"A","url":"http://u:p@example.com/"}`, `7`, "url: "},
		{"id not UTF-8", "{\"id\":\"\xff\",\"robots\":\"\",\"agent\":\"A\",\"url\":\"/\"}", `null`, "UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, failed := ask(t, c.line+"\n"+good+"\n")
			if !failed {
				t.Error("Answer does not report a failure")
			}
			lines := strings.SplitAfter(got, "\n")
			if len(lines) != 3 || lines[2] != "" {
				t.Fatalf("got %d lines, want 2: %q", len(lines)-1, got)
			}
			if !strings.HasPrefix(lines[0], `{"id":`+c.id+`,"error":"`) || !strings.Contains(lines[0], c.reason) {
				t.Errorf("got %s, want id %s and %q", lines[0], c.id, c.reason)
			}
			if want := `{"id":"after","allowed":true,"rule":"","line":0,"group":""}` + "\n"; lines[1] != want {
				t.Errorf("next line: got %s, want %s", lines[1], want)
			}
		})
	}
}

func TestEmptyLinesAreSkipped(t *testing.T) {
	t.Parallel()
	if got, failed := ask(t, "\n\r\n  \n"); got != "" || failed {
		t.Errorf("empty lines: got %q, failed = %v, want no answer", got, failed)
	}
}

func TestLastLineNeedsNoEnd(t *testing.T) {
	t.Parallel()
	got, failed := ask(t, `{"id":1,"robots":"","agent":"A","url":"/"}`)
	if want := `{"id":1,"allowed":true,"rule":"","line":0,"group":""}` + "\n"; got != want || failed {
		t.Errorf("got %q, failed = %v, want an allowed page", got, failed)
	}
}

// repeated yields a byte a number of times.
type repeated struct {
	char byte
	left int
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := min(len(p), r.left)
	for i := range p[:n] {
		p[i] = r.char
	}
	r.left -= n
	return n, nil
}

// TestHugeQuestion checks that no more of a line of 100 MB is kept in memory than the limit, and
// that the stream continues.
func TestHugeQuestion(t *testing.T) {
	t.Parallel()
	in := io.MultiReader(
		strings.NewReader(`{"id":1,"agent":"A","url":"/`), &repeated{char: 'x', left: 100 << 20},
		strings.NewReader("\"}\n"+`{"id":2,"robots":"","agent":"A","url":"/"}`+"\n"),
	)
	var out bytes.Buffer
	failed, err := cli.Answer(context.Background(), in, &out, 1<<20, 1<<20)
	if err != nil || !failed {
		t.Errorf("Answer = %v, %v, want a failure without error", failed, err)
	}
	want := `{"id":null,"error":"the line has more than 1048576 bytes"}` + "\n" +
		`{"id":2,"allowed":true,"rule":"","line":0,"group":""}` + "\n"
	if out.String() != want {
		t.Errorf("got %s, want %s", out.String(), want)
	}
}

// TestHugeQuestionMemory measures the memory for the line of 100 MB.
func TestHugeQuestionMemory(t *testing.T) {
	var before, after runtime.MemStats
	in := io.MultiReader(&repeated{char: 'x', left: 100 << 20}, strings.NewReader("\n"))
	runtime.ReadMemStats(&before)
	if _, err := cli.Answer(context.Background(), in, io.Discard, 1<<20, 1<<20); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got, most := after.TotalAlloc-before.TotalAlloc, uint64(8<<20); got > most {
		t.Errorf("%d bytes allocated, want at most %d", got, most)
	}
}

// TestParsedFilesAreBounded checks that without room in the cache every file is parsed again, with
// the same answers.
func TestParsedFilesAreBounded(t *testing.T) {
	t.Parallel()
	var in strings.Builder
	for i := range 200 {
		fmt.Fprintf(&in, `{"id":%d,"robots":"%s","agent":"A","url":"/%d"}`+"\n",
			i, b64(fmt.Sprintf("User-agent: *\nDisallow: /%d", i%20)), i%20)
	}
	var small, large bytes.Buffer
	for out, room := range map[*bytes.Buffer]int{&small: 1, &large: 1 << 20} {
		if _, err := cli.Answer(context.Background(), strings.NewReader(in.String()), out, 1<<20, room); err != nil {
			t.Fatal(err)
		}
	}
	if small.String() != large.String() || strings.Contains(small.String(), "true") {
		t.Errorf("answers with little and much memory differ: %s %s", small.String(), large.String())
	}
}

// TestFileIsReadAgain checks that a file that is rewritten between two questions is not answered
// from the cache.
func TestFileIsReadAgain(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "robots.txt")
	question := fmt.Sprintf(`{"id":1,"robots_file":%q,"agent":"A","url":"/a"}`+"\n", path)
	in, feed := io.Pipe()
	answers, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, err := cli.Answer(context.Background(), in, out, cli.MaxQuestion, cli.MaxParsed)
		done <- err
	}()
	buf := make([]byte, 200)
	for _, step := range []struct{ rules, verdict string }{
		{"User-agent: *\nDisallow: /a", `"allowed":false`},
		{"User-agent: *\nDisallow: /bcd", `"allowed":true`},
	} {
		if err := os.WriteFile(path, []byte(step.rules), 0o600); err != nil {
			t.Fatal(err)
		}
		// The answer must be flushed before the next question is written.
		if _, err := io.WriteString(feed, question); err != nil {
			t.Fatal(err)
		}
		n, err := answers.Read(buf)
		if err != nil || !bytes.Contains(buf[:n], []byte(step.verdict)) {
			t.Errorf("got %s %v, want %s", buf[:n], err, step.verdict)
		}
	}
	feed.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestAnswerBeforeHalfALine checks that an answer does not wait for the end of a question that has
// begun.
func TestAnswerBeforeHalfALine(t *testing.T) {
	t.Parallel()
	in, feed := io.Pipe()
	answers, out := io.Pipe()
	go func() {
		_, err := cli.Answer(context.Background(), in, out, cli.MaxQuestion, cli.MaxParsed)
		out.CloseWithError(err)
	}()
	if _, err := io.WriteString(feed, `{"id":1,"robots":"","agent":"A","url":"/"}`+"\n"+`{"id":2,`); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 200)
	if n, err := answers.Read(buf); err != nil || !bytes.HasPrefix(buf[:n], []byte(`{"id":1,`)) {
		t.Errorf("first answer = %s, %v", buf[:n], err)
	}
	feed.Close()
	if n, err := answers.Read(buf); err != nil || !bytes.HasPrefix(buf[:n], []byte(`{"id":null,"error"`)) {
		t.Errorf("second answer = %s, %v", buf[:n], err)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error)  { return 0, io.ErrClosedPipe }
func (brokenPipe) Read(p []byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestQuestionErrorsOfTheStreams(t *testing.T) {
	t.Parallel()
	in := strings.NewReader(`{"id":1,"robots":"","agent":"A","url":"/"}`)
	if _, err := cli.Answer(context.Background(), in, brokenPipe{}, cli.MaxQuestion, cli.MaxParsed); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("writing to a broken pipe: got %v, want io.ErrClosedPipe", err)
	}
	if _, err := cli.Answer(context.Background(), brokenPipe{}, io.Discard, cli.MaxQuestion, cli.MaxParsed); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("reading from a broken pipe: got %v, want io.ErrUnexpectedEOF", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := cli.Answer(ctx, in, io.Discard, cli.MaxQuestion, cli.MaxParsed); !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: got %v, want context.Canceled", err)
	}
}
