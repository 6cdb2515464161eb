// Package query answers questions about robots.txt files, one JSON object a line, for scripts and
// test suites.
//
// A question is
//
//	{"id":…,"robots":"<base64>","agent":"A","url":"https://example.com/path"}
//
// with "robots_file":"path" in place of robots, and "agents":["A","B"], most specific first, in
// place of agent. The id is any JSON value or absent. The url is absolute or a path with its
// leading slash. Its answer is
//
//	{"id":…,"allowed":true,"rule":"/path","line":12,"group":"A"}
//
// with the deciding rule's path as written and its line, "" and 0 when no rule decided, and the
// name of the group that was asked, "" when there is none. A line that is no question gets
// {"id":…,"error":"…"}, with the id null when it could not be read.
package query

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/crawlgate/crawlgate/internal/lines"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Options bounds what Run holds in memory, and says how it reads. The zero value means the
// defaults.
type Options struct {
	// MaxLine is the number of bytes of the longest question; 8 MiB by default. Of a longer line the
	// rest is skipped.
	MaxLine int

	// CacheBytes bounds the parsed files that are kept for later questions; 256 MiB by default.
	CacheBytes int

	// IndexHTML is the option of robotstxt.Options.
	IndexHTML bool

	// Match decides about a target, which begins with a slash and has no fragment, and names the form
	// of it that decided: the field "form" that each answer then has. Without it the rules are asked
	// about the target as it stands, and there is no such field.
	Match func(g robotstxt.Group, target string) (m robotstxt.Match, form string)
}

const (
	defaultMaxLine    = 8 << 20
	defaultCacheBytes = 256 << 20
)

// Run answers the questions of in on out, line by line and in order, until in ends. An answer is
// written out before Run waits for the next question. Empty lines are skipped. The result failed
// reports whether any line was answered by an error. Run returns an error when ctx is done, which
// it notices between lines, and when reading or writing fails.
func Run(ctx context.Context, in io.Reader, out io.Writer, opts Options) (failed bool, err error) {
	if opts.MaxLine <= 0 {
		opts.MaxLine = defaultMaxLine
	}
	if opts.CacheBytes <= 0 {
		opts.CacheBytes = defaultCacheBytes
	}
	r := runner{
		in:    lines.NewReader(in, opts.MaxLine),
		most:  opts.MaxLine,
		out:   bufio.NewWriterSize(out, 1<<16),
		files: newCache(opts.CacheBytes, robotstxt.Options{IndexHTML: opts.IndexHTML}),
		judge: opts.Match,
	}
	err = r.run(ctx)
	if flushErr := r.out.Flush(); err == nil && flushErr != nil {
		err = fmt.Errorf("writing answers: %w", flushErr)
	}
	return r.failed, err
}

type runner struct {
	in     *lines.Reader
	most   int // bytes of a line
	out    *bufio.Writer
	files  *cache
	judge  func(robotstxt.Group, string) (robotstxt.Match, string) // nil: as the target stands
	failed bool
}

func (r *runner) run(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("answering questions: %w", err)
		}
		if r.in.Idle() {
			if err := r.out.Flush(); err != nil {
				return fmt.Errorf("writing answers: %w", err)
			}
		}
		line, whole, err := r.in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading questions: %w", err)
		}
		if len(bytes.TrimSpace(line)) == 0 && whole {
			continue
		}
		if err := r.answer(line, whole); err != nil {
			return fmt.Errorf("writing answers: %w", err)
		}
	}
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

func (r *runner) answer(line []byte, whole bool) error {
	q, err := parse(line)
	if !whole {
		err = fmt.Errorf("the line has more than %d bytes", r.most)
	}
	var result any
	if err == nil {
		result, err = r.match(q)
	}
	if err != nil {
		r.failed, result = true, failure{err.Error()}
	}
	// The id is given back as it was written, which an encoder would not do.
	var rest bytes.Buffer
	e := json.NewEncoder(&rest)
	e.SetEscapeHTML(false)
	if err := e.Encode(result); err != nil {
		return err
	}
	id := cmp.Or(string(q.id), "null")
	_, err = fmt.Fprintf(r.out, `{"id":%s,%s`, id, rest.Bytes()[len("{"):])
	return err
}

func (r *runner) match(q question) (v verdict, err error) {
	target, err := targetOf(*q.url)
	if err != nil {
		return v, err
	}
	var rs *robotstxt.Ruleset
	if q.robots != nil {
		rs, err = r.files.inline(*q.robots)
	} else {
		rs, err = r.files.file(*q.robotsFile)
	}
	if err != nil {
		return v, err
	}
	g := rs.Select(robotstxt.Agent{Tokens: q.tokens()})
	var m robotstxt.Match
	if r.judge == nil {
		m = g.Match(target)
	} else {
		target, _, _ = strings.Cut(target, "#")
		if !strings.HasPrefix(target, "/") {
			target = "/" + target
		}
		var form string
		m, form = r.judge(g, target)
		v.Form = &form
	}
	v.Allowed, v.Rule, v.Line, v.Group = m.Allowed, m.Rule, m.Line, m.Group
	return v, nil
}

// targetOf returns what is matched of a URL: the bytes between its authority and its fragment.
// Unlike a URL on its way through the gateway it may hold a % that begins no escape.
func targetOf(url string) (string, error) {
	if strings.HasPrefix(url, "/") {
		return url, nil
	}
	_, rest, ok := strings.Cut(url, "://")
	if !ok {
		return "", fmt.Errorf("url: neither absolute nor a path: %.100q", url)
	}
	path := ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		path = rest[i:]
	}
	if _, err := origin.Parse(url[:len(url)-len(path)]); err != nil {
		return "", fmt.Errorf("url: %w", err)
	}
	return path, nil
}
