// Package query answers questions about robots.txt files, one JSON object a line, for scripts and test suites.
//
// A question is
//
//	{"id":…,"robots":"<base64>","agent":"A","url":"https://example.com/path"}
//
// with "robots_file":"path" in place of robots, and "agents":["A","B"], most specific first, in place of agent. The id
// is any JSON value or absent. The url is absolute or a path with its leading slash. Its answer is
//
//	{"id":…,"allowed":true,"rule":"/path","line":12,"group":"A"}
//
// with the deciding rule's path as written and its line, "" and 0 when no rule decided, and the name of the group that
// was asked, "" when there is none. A line that is no question gets {"id":…,"error":"…"}, with the id null when it
// could not be read.
package query

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// Options bounds what Run holds in memory, and says how it reads. The zero value means the defaults.
type Options struct {
	// MaxLine is the number of octets of the longest question; 8 MiB by default. Of a longer line the rest is skipped.
	MaxLine int

	// CacheBytes bounds the parsed files that are kept for later questions; 256 MiB by default.
	CacheBytes int

	// IndexHTML is that of robotstxt.Options.
	IndexHTML bool

	// Match decides about a target, which begins with a slash and has no fragment, and names the form of it that decided: the
	// field "form" that each answer then has. Without it the rules are asked about the target as it stands, and there is no
	// such field.
	Match func(g robotstxt.Group, target string) (m robotstxt.Match, form string)
}

const (
	defaultMaxLine    = 8 << 20
	defaultCacheBytes = 256 << 20
)

// Run answers the questions of in on out, line by line and in order, until in ends. An answer is written out before Run
// waits for the next question. Empty lines are skipped. The result failed reports whether any line was answered by an
// error. Run returns an error when ctx is done, which it notices between lines, and when reading or writing fails.
func Run(ctx context.Context, in io.Reader, out io.Writer, opts Options) (failed bool, err error) {
	if opts.MaxLine <= 0 {
		opts.MaxLine = defaultMaxLine
	}
	if opts.CacheBytes <= 0 {
		opts.CacheBytes = defaultCacheBytes
	}
	r := runner{
		in:    lineReader{r: bufio.NewReaderSize(in, 1<<16), most: opts.MaxLine},
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
	in     lineReader
	out    *bufio.Writer
	files  *cache
	judge  func(robotstxt.Group, string) (robotstxt.Match, string) // nil: as the target stands
	failed bool
	answer []byte
}

func (r *runner) run(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("answering questions: %w", err)
		}
		if r.in.idle() {
			if err := r.out.Flush(); err != nil {
				return fmt.Errorf("writing answers: %w", err)
			}
		}
		line, whole, err := r.in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading questions: %w", err)
		}
		if len(bytes.TrimSpace(line)) == 0 && whole {
			continue
		}
		r.one(line, whole)
		if _, err := r.out.Write(r.answer); err != nil {
			return fmt.Errorf("writing answers: %w", err)
		}
	}
}

// one makes the answer to a line.
func (r *runner) one(line []byte, whole bool) {
	q, err := parse(line)
	if !whole {
		err = fmt.Errorf("the line has more than %d octets", r.in.most)
	}
	var m robotstxt.Match
	var form string
	if err == nil {
		m, form, err = r.match(q)
	}
	b := append(r.answer[:0], `{"id":`...)
	if q.id == nil {
		b = append(b, "null"...)
	}
	b = append(b, q.id...)
	if err != nil {
		r.failed = true
		b = appendString(append(b, `,"error":`...), err.Error())
	} else {
		b = strconv.AppendBool(append(b, `,"allowed":`...), m.Allowed)
		b = appendString(append(b, `,"rule":`...), m.Rule)
		b = strconv.AppendInt(append(b, `,"line":`...), int64(m.Line), 10)
		b = appendString(append(b, `,"group":`...), m.Group)
		if r.judge != nil {
			b = appendString(append(b, `,"form":`...), form)
		}
	}
	r.answer = append(b, "}\n"...)
}

func (r *runner) match(q question) (m robotstxt.Match, form string, err error) {
	target, err := targetOf(q.url)
	if err != nil {
		return m, "", err
	}
	var rs *robotstxt.Ruleset
	if q.has&(1<<fieldRobots) != 0 {
		rs, err = r.files.inline(q.robots)
	} else {
		rs, err = r.files.file(q.robotsFile)
	}
	if err != nil {
		return m, "", err
	}
	g := rs.Select(robotstxt.Agent{Tokens: q.agents})
	if r.judge == nil {
		return g.Match(target), "", nil
	}
	target, _, _ = strings.Cut(target, "#")
	if !strings.HasPrefix(target, "/") {
		target = "/" + target
	}
	m, form = r.judge(g, target)
	return m, form, nil
}

// targetOf returns what is matched of a URL: the octets between its authority and its fragment. Unlike a URL on its way
// through the gateway it may hold a % that begins no escape.
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
