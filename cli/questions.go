package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/lines"
	"github.com/crawlgate/crawlgate/internal/repeated"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

const (
	// maxQuestion is the length of the longest question, in bytes. The rest of a longer line is
	// skipped.
	maxQuestion = 8 << 20
	// maxParsed bounds the parsed files that are kept for later questions, in bytes.
	maxParsed = 256 << 20
)

// answer is --jsonl.
func (c *checkOptions) answer(ctx context.Context, s streams, args []string, paths enforce.Paths) (int, error) {
	if c.robots != "" || c.agent != "" || c.gateway != "" || c.site != "" || c.json || len(c.allowPrivate) > 0 || c.hasUse() {
		return exitError, misused("--jsonl takes no other flags but --index-html and --paths: each line has its own options")
	}
	if len(args) > 1 {
		return exitError, misused("--jsonl takes one file")
	}
	in, err := open(append(args, "-")[0], s.in)
	if err != nil {
		return exitError, fmt.Errorf("reading questions: %w", err)
	}
	defer func() { _ = in.Close() }() // it was only read
	a := answerer{indexHTML: c.indexHTML, paths: paths, maxQuestion: maxQuestion, maxParsed: maxParsed}
	failed, err := a.run(ctx, in, s.out)
	if err != nil || failed {
		return exitError, err
	}
	return exitOK, nil
}

// answerer answers questions. It keeps parsed files by the hashes of their texts.
type answerer struct {
	indexHTML              bool
	paths                  enforce.Paths
	maxQuestion, maxParsed int

	parsed map[[sha256.Size]byte]*robotstxt.Ruleset
	size   int // of parsed
}

// run answers the questions from in on out, line by line and in order, until in ends. An answer is
// written out before run waits for the next question. Empty lines are skipped. failed reports
// whether any answer is an error. run returns an error when ctx is done, which it notices between
// lines, and when reading or writing fails.
func (a *answerer) run(ctx context.Context, in io.Reader, out io.Writer) (failed bool, err error) {
	questions, answers := lines.NewReader(in, a.maxQuestion), bufio.NewWriterSize(out, 1<<16)
	for {
		if questions.Idle() || ctx.Err() != nil {
			if err := answers.Flush(); err != nil {
				return failed, fmt.Errorf("writing answers: %w", err)
			}
		}
		if err := ctx.Err(); err != nil {
			return failed, fmt.Errorf("answering questions: %w", err)
		}
		line, whole, err := questions.Next()
		switch {
		case errors.Is(err, io.EOF):
			return failed, nil
		case err != nil:
			return failed, fmt.Errorf("reading questions: %w", err)
		case whole && len(bytes.TrimSpace(line)) == 0:
			continue
		}
		var q question
		var v verdict
		if whole {
			q, v, err = a.decide(line)
		} else {
			err = fmt.Errorf("the line has more than %d bytes", a.maxQuestion)
		}
		writeAnswer(answers, q.ID, v, err)
		failed = failed || err != nil
	}
}

// writeAnswer writes an answer, or the error in its place; answers keeps an error of writing. An
// encoder would not preserve the spelling of the id.
func writeAnswer(answers *bufio.Writer, id json.RawMessage, v verdict, err error) {
	var result any = v
	if err != nil {
		result = map[string]string{"error": err.Error()}
	}
	var rest bytes.Buffer
	e := json.NewEncoder(&rest)
	e.SetEscapeHTML(false)
	_ = e.Encode(result) // into memory
	_, _ = fmt.Fprintf(answers, `{"id":%s,%s`, cmp.Or(string(id), "null"), rest.Bytes()[len("{"):])
}

// verdict is an answer without its id.
type verdict struct {
	Allowed bool    `json:"allowed"`
	Rule    string  `json:"rule"`
	Line    int     `json:"line"`
	Group   string  `json:"group"`
	Form    *string `json:"form,omitempty"` // with --paths strict
}

// question is one line of the input. Fields that are absent or null are nil.
type question struct {
	ID         json.RawMessage `json:"id"` // as written
	Robots     *string         `json:"robots"`
	RobotsFile *string         `json:"robots_file"`
	Agent      *string         `json:"agent"`
	Agents     []*string       `json:"agents"`
	URL        *string         `json:"url"`
}

// parseQuestion reads a question. Even with an error, the question has its id if the line is JSON.
func parseQuestion(line []byte) (q question, err error) {
	line = bytes.TrimSpace(line)
	switch {
	case !bytes.HasPrefix(line, []byte("{")):
		return q, errors.New("not a JSON object")
	case !utf8.Valid(line):
		return q, errors.New("bad JSON: not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	err = d.Decode(&q)
	wrong, isWrong := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case isWrong && wrong.Field != "agents":
		return q, fmt.Errorf("%s: not a string", wrong.Field)
	case isWrong || slices.Contains(q.Agents, nil):
		return q, errors.New("agents: not a list of strings")
	case err != nil:
		return q, fmt.Errorf("bad JSON: %w", err)
	case d.InputOffset() < int64(len(line)):
		return q, errors.New("bad JSON: more than one value")
	}
	if err := repeated.Field(line); err != nil {
		return q, err
	}
	switch {
	case q.Robots != nil && q.RobotsFile != nil:
		return q, errors.New("both robots and robots_file")
	case q.Robots == nil && q.RobotsFile == nil:
		return q, errors.New("neither robots nor robots_file")
	case q.Agent != nil && q.Agents != nil:
		return q, errors.New("both agent and agents")
	case q.Agent == nil && q.Agents == nil:
		return q, errors.New("neither agent nor agents")
	case q.URL == nil:
		return q, errors.New("no url")
	}
	return q, nil
}

func (a *answerer) decide(line []byte) (q question, v verdict, err error) {
	if q, err = parseQuestion(line); err != nil {
		return q, v, err
	}
	target, err := targetOf(*q.URL)
	if err != nil {
		return q, v, err
	}
	text, err := q.text()
	if err != nil {
		return q, v, err
	}
	var tokens []string
	for _, token := range append(q.Agents, q.Agent) {
		if token != nil {
			tokens = append(tokens, *token)
		}
	}
	m, form, _ := enforce.MatchPath(a.rules(text).Select(robotstxt.Agent{Tokens: tokens}), http.MethodGet, target, a.paths)
	if a.paths == enforce.PathsStrict {
		v.Form = (*string)(&form)
	}
	v.Allowed, v.Rule, v.Line, v.Group = m.Allowed, m.Rule, m.Line, m.Group
	return q, v, nil
}

// text returns the robots.txt of a question.
func (q *question) text() (text []byte, err error) {
	if q.Robots != nil {
		if text, err = base64.StdEncoding.DecodeString(*q.Robots); err != nil {
			return nil, fmt.Errorf("robots: not base64: %w", err)
		}
		return text, nil
	}
	if text, err = readParsed(*q.RobotsFile); err != nil {
		return nil, fmt.Errorf("robots_file: %w", err)
	}
	return text, nil
}

// readParsed reads the part of a file that is parsed, and one byte more if there is more.
func readParsed(path string) ([]byte, error) {
	if info, err := os.Stat(path); err != nil {
		return nil, err
	} else if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return io.ReadAll(io.LimitReader(f, robotstxt.MaxSize+1))
}

// rules returns the rules of a text. Without room for them, it drops all others.
func (a *answerer) rules(text []byte) *robotstxt.Ruleset {
	sum := sha256.Sum256(text)
	if rs, ok := a.parsed[sum]; ok {
		return rs
	}
	rs := robotstxt.Options{IndexHTML: a.indexHTML}.Parse(text)
	if a.size += rs.Size(); a.parsed == nil || a.size > a.maxParsed {
		a.parsed, a.size = make(map[[sha256.Size]byte]*robotstxt.Ruleset), rs.Size()
	}
	a.parsed[sum] = rs
	return rs
}

// targetOf returns the part of a URL that is matched: the bytes between its authority and its
// fragment, with a leading slash. Unlike a URL that passes through the gateway, it may contain a %
// without an escape.
func targetOf(rawURL string) (string, error) {
	target := rawURL
	if !strings.HasPrefix(rawURL, "/") {
		_, rest, ok := strings.Cut(rawURL, "://")
		if !ok {
			return "", fmt.Errorf("url: neither absolute nor a path: %.100q", rawURL)
		}
		target = strings.TrimLeftFunc(rest, func(r rune) bool { return !strings.ContainsRune("/?#", r) })
		if _, err := origin.Parse(rawURL[:len(rawURL)-len(target)]); err != nil {
			return "", fmt.Errorf("url: %w", err)
		}
	}
	target, _, _ = strings.Cut(target, "#")
	return "/" + strings.TrimPrefix(target, "/"), nil
}
