package query

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
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/crawlgate/crawlgate/internal/lines"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

const (
	// maxLine is the number of bytes of the longest question. Of a longer line the rest is skipped.
	maxLine = 8 << 20
	// cacheBytes bounds the parsed files that are kept for later questions.
	cacheBytes = 256 << 20
	// overhead is an estimate of what a kept file takes besides its rules.
	overhead = 512
)

// Options says how files are read and paths judged.
type Options struct {
	// IndexHTML is the option of robotstxt.Options.
	IndexHTML bool

	// Match decides about a target, which begins with a slash and has no fragment, and names the form
	// of it that decided: the field "form" that each answer then has. Without it the rules are asked
	// about the target as it stands, and there is no such field.
	Match func(g robotstxt.Group, target string) (m robotstxt.Match, form string)
}

// Run answers the questions of in on out, line by line and in order, until in ends. An answer is
// written out before Run waits for the next question. Empty lines are skipped. The result failed
// reports whether any line was answered by an error. Run returns an error when ctx is done, which
// it notices between lines, and when reading or writing fails.
func Run(ctx context.Context, in io.Reader, out io.Writer, opts Options) (failed bool, err error) {
	return run(ctx, in, out, answerer{Options: opts, room: cacheBytes}, maxLine)
}

func run(ctx context.Context, in io.Reader, out io.Writer, a answerer, most int) (failed bool, err error) {
	questions, answers := lines.NewReader(in, most), bufio.NewWriterSize(out, 1<<16)
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
		var result any
		if whole {
			q, result, err = a.answer(line)
		} else {
			err = fmt.Errorf("the line has more than %d bytes", most)
		}
		if err != nil {
			failed, result = true, failure{err.Error()}
		}
		if err := write(answers, q.ID, result); err != nil {
			return failed, fmt.Errorf("writing answers: %w", err)
		}
	}
}

// write writes an answer. An encoder would not give the id back as it was written.
func write(w io.Writer, id json.RawMessage, result any) error {
	var rest bytes.Buffer
	e := json.NewEncoder(&rest)
	e.SetEscapeHTML(false)
	if err := e.Encode(result); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, `{"id":%s,%s`, cmp.Or(string(id), "null"), rest.Bytes()[len("{"):])
	return err
}

// verdict is an answer behind its id.
type verdict struct {
	Allowed bool    `json:"allowed"`
	Rule    string  `json:"rule"`
	Line    int     `json:"line"`
	Group   string  `json:"group"`
	Form    *string `json:"form,omitempty"`
}

// failure is the answer to a line that is no question.
type failure struct {
	Error string `json:"error"`
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

// parse reads a question. With an error the question still has its id, if the line is JSON.
func parse(line []byte) (q question, err error) {
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

// answerer answers questions. It keeps the files that it has parsed by the sums of their texts.
type answerer struct {
	Options

	room, used int
	parsed     map[[sha256.Size]byte]*robotstxt.Ruleset
}

func (a *answerer) answer(line []byte) (q question, v verdict, err error) {
	if q, err = parse(line); err != nil {
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
	g := a.rules(text).Select(robotstxt.Agent{Tokens: tokens})
	var m robotstxt.Match
	if a.Match == nil {
		m = g.Match(target)
	} else {
		var form string
		m, form = a.Match(g, target)
		v.Form = &form
	}
	v.Allowed, v.Rule, v.Line, v.Group = m.Allowed, m.Rule, m.Line, m.Group
	return q, v, nil
}

// text returns the robots.txt that a question is about.
func (q *question) text() (text []byte, err error) {
	if q.Robots != nil {
		if text, err = base64.StdEncoding.DecodeString(*q.Robots); err != nil {
			return nil, fmt.Errorf("robots: not base64: %w", err)
		}
		return text, nil
	}
	if text, err = readFile(*q.RobotsFile); err != nil {
		return nil, fmt.Errorf("robots_file: %w", err)
	}
	return text, nil
}

// readFile reads as much of a file as is parsed, and what shows that there is more.
func readFile(path string) ([]byte, error) {
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

// rules returns the rules of a text. If there is no room for them, all others are dropped.
func (a *answerer) rules(text []byte) *robotstxt.Ruleset {
	sum := sha256.Sum256(text)
	if rs, ok := a.parsed[sum]; ok {
		return rs
	}
	rs := robotstxt.Options{IndexHTML: a.IndexHTML}.Parse(text)
	size := rs.Size() + overhead
	if a.used += size; a.parsed == nil || a.used > a.room {
		a.parsed, a.used = make(map[[sha256.Size]byte]*robotstxt.Ruleset), size
	}
	a.parsed[sum] = rs
	return rs
}

// targetOf returns the part of a URL that is matched: the bytes between its authority and its
// fragment, with a leading slash. Unlike a URL on its way through the gateway it may hold a % that
// begins no escape.
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
