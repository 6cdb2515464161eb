package audit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/internal/lines"
)

// Source is a log that can be read once.
type Source struct {
	// Name is the File of its places.
	Name string
	// Open begins to read it.
	Open func() (io.ReadCloser, error)
}

// Files finds the logs that arguments name. An argument is a file, "-" for in, or a folder or
// pattern (as in [filepath.Match]). Of these, files count if they contain lines of access logs,
// whatever their names. The files of one log are sorted in the order of their lines. left are the
// files that are left out, with the reasons. A file that cannot be read but may contain lines is a
// source that does not open.
func Files(args []string, in io.Reader) (logs [][]Source, left []Fault, err error) {
	var all []*file
	for _, arg := range args {
		if arg == "-" {
			f := &file{Source: Source{"-", func() (io.ReadCloser, error) { return io.NopCloser(in), nil }}, log: arg}
			all = append(all, f)
			continue
		}
		names, given, err := expand(arg)
		if err != nil {
			return nil, nil, err
		}
		names = slices.DeleteFunc(names, func(name string) bool {
			return !given && slices.ContainsFunc(args, func(other string) bool { return filepath.Clean(other) == name })
		})
		some := make([]*file, len(names))
		for i, name := range names {
			some[i] = look(name, false)
		}
		none := len(all)
		for _, f := range some {
			// A file in the same folder may belong to the log, even if its only line was cut off.
			beside := func(other *file) bool { return other.is && other.log == f.log }
			if given || f.is || f.why == "" && slices.ContainsFunc(some, beside) {
				all = append(all, f)
			} else {
				left = append(left, Fault{Place: Place{File: f.Name}, Err: errors.New(cmp.Or(f.why, "it has no line of an access log"))})
			}
		}
		if len(all) == none {
			return nil, left, fmt.Errorf("reading logs: %s has no access log", arg)
		}
	}
	all, copies := withoutCopies(all)
	logs = inLogs(all)
	if len(logs) > mostLogs {
		return nil, nil, fmt.Errorf("reading logs: there are %d: want at most %d", len(logs), mostLogs)
	}
	return logs, append(left, copies...), nil
}

const mostLogs = 256

// file is a file that may belong to a log. Its first lines decide.
type file struct {
	Source
	is         bool   // it contains a line of an access log, or may
	why        string // it certainly contains none, for this reason
	log        string // its path without the marks of rotation and packing
	line       string // its first one
	generation int    // of its first seal
	of         string // the log that the seal names
	seq        int64
	time       time.Time // of its first line that has one
	told       int       // lines read since the first one of an access log
}

// look reads a file until it knows its kind, and a few lines more. If sealed is set, it reads until
// a line has a seal.
func look(name string, sealed bool) *file {
	f := &file{Source: Source{name, func() (io.ReadCloser, error) { return os.Open(name) }}, log: logOfFile(name)}
	info, err := os.Stat(name)
	packing, unfinished := strings.CutSuffix(name, ".tmp")
	_, plain := os.Stat(strings.TrimSuffix(strings.TrimSuffix(packing, ".gz"), ".zst"))
	switch {
	case err == nil && info.IsDir() && holdsLogs(name):
		return f.unreadable("it is a folder with access logs: name it too")
	case err == nil && !info.Mode().IsRegular():
		f.why = "it is a folder, or not a regular file"
		return f
	case unfinished && plain == nil:
		f.why = "Caddy is compressing a file into it"
		return f
	}
	f.is = err == nil && info.Size() == 0 // the log of a gateway that has just begun
	const most = 1000                     // after the first line of an access log
	for l := range read(0, []Source{f.Source}) {
		if f.is = f.is || l.Line == 0; l.Line == 0 || f.of != "" || !sealed && (f.told == most || f.told > 0 && !f.time.IsZero()) {
			break
		}
		if f.line == "" && l.text != nil {
			f.line = string(l.text[:min(len(l.text), maxShownLine)])
			switch {
			case strings.Contains(f.line[:min(len(f.line), 64)], storeMark):
				f.why = "it is a store"
				return f
			case !isText(f.line):
				return f.unreadable("it is not text: it may be compressed or encrypted")
			}
		}
		f.note(&l)
	}
	return f
}

func (f *file) note(l *Line) {
	if id, seq, ok := evidence.ReadSeal(l.text); ok && f.of == "" {
		of, _ := evidence.ParseLogID(id)
		f.is, f.generation, f.of, f.seq = true, of.Generation, of.Gateway+"/"+of.Log, seq
	}
	f.time = cmp.Or(f.time, l.Time())
	if f.is = f.is || isAccess(l.text); f.is {
		f.told++
	}
}

// unreadable marks a file that may contain lines but cannot be read.
func (f *file) unreadable(why string) *file {
	f.is, f.Open = true, func() (io.ReadCloser, error) { return nil, errors.New(why) }
	return f
}

// holdsLogs reports whether a file in a folder has lines of an access log.
func holdsLogs(folder string) bool {
	names, _ := filepath.Glob(filepath.Join(folder, "*"))
	return slices.ContainsFunc(names, func(name string) bool {
		info, err := os.Stat(name)
		return err == nil && info.Mode().IsRegular() && look(name, false).told > 0
	})
}

// isText reports whether the beginning of a file is text. A crash, or a program that truncates a
// file while it is written, can leave zeros in front.
func isText(line string) bool {
	return strings.HasPrefix(http.DetectContentType([]byte(strings.TrimLeft(line, "\x00"))), "text/")
}

// storeMark is in the first bytes of a file of bbolt.
const storeMark = "\xed\xda\x0c\xed"

// maxShownLine is how much of a first line is compared: its time and the client's port tell files
// apart.
const maxShownLine = 4 << 10

func isAccess(line []byte) bool {
	if !bytes.Contains(line, []byte(`"robots`)) && !bytes.Contains(line, []byte(`"bytes_read"`)) {
		return false
	}
	var top map[string]json.RawMessage
	if json.Unmarshal(objectOf(line), &top) != nil {
		return false
	}
	return top["robots"] != nil || top["robots_txt"] != nil || top["request"] != nil && top["bytes_read"] != nil
}

// rotation matches what rotation and compression add to the name of a log: Caddy's
// access-2026-05-01T10-30-00.000-size.log.gz, access.log.1, access.log-20260501.xz.
var rotation = regexp.MustCompile(`(?i)\.(gz|zstd?|bz2|xz|lz4|br|gpg|age|tmp|old|bak|copy)$` +
	`|[-._]\d{4}-?\d\d-?\d\d(T\d\d-\d\d-\d\d\.\d{3}(-[A-Za-z0-9_]+)?|[-._T]?\d{2,10})?|\.\d{1,4}(\.log)?$`)

func logOfFile(name string) string {
	folder, base := filepath.Split(name)
	for {
		shorter := rotation.ReplaceAllString(base, "$4")
		if shorter == base || shorter == "" {
			return folder + base
		}
		base = shorter
	}
}

// inLogs groups files by log. Files with seals of one log belong together even in several folders,
// because older ones may have been moved to an archive.
func inLogs(all []*file) (logs [][]Source) {
	sealed := make(map[string]string) // by paths, the log that the seals name
	for _, f := range all {
		if f.of != "" {
			sealed[f.log] = "seal " + f.of
		}
	}
	// A log takes the place of its first file.
	var order []string
	lists := make(map[string][]*file)
	for _, f := range all {
		if sealed[f.log] != "" && f.of == "" {
			*f = *look(f.Name, true) // lines that are not JSON have no seal: only the writer's own have
		}
		log := cmp.Or(sealed[f.log], f.log)
		if lists[log] == nil {
			order = append(order, log)
		}
		lists[log] = append(lists[log], f)
	}
	for _, name := range order {
		slices.SortStableFunc(lists[name], func(a, b *file) int {
			return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.seq, b.seq), a.time.Compare(b.time), cmp.Compare(a.Name, b.Name))
		})
		var log []Source
		for _, f := range lists[name] {
			log = append(log, f.Source)
		}
		logs = append(logs, log)
	}
	return logs
}

// withoutCopies leaves out files whose lines another file has: while a log is being compressed, or
// copied and truncated, both exist.
func withoutCopies(all []*file) (kept []*file, left []Fault) {
	for _, f := range all {
		i := slices.IndexFunc(kept, func(k *file) bool { return k.covers(f) || f.covers(k) })
		if i < 0 {
			kept = append(kept, f)
			continue
		}
		if !kept[i].covers(f) {
			f, kept[i] = kept[i], f
		}
		left = append(left, Fault{Place: Place{File: f.Name}, Err: fmt.Errorf("%s has all of its lines", kept[i].Name)})
	}
	return kept, left
}

// covers reports whether this file begins with all that can be read of another one.
func (f *file) covers(other *file) bool {
	if other.line == "" || other.line != f.line {
		return false
	}
	next, stop := iter.Pull2(f.lines())
	defer stop()
	for line, err := range other.lines() {
		own, _, more := next()
		line, own = bytes.TrimSuffix(line, []byte("\n")), bytes.TrimSuffix(own, []byte("\n"))
		switch {
		case err != nil && !errors.Is(err, lines.ErrLong):
			return bytes.HasPrefix(own, line)
		case !more || !bytes.Equal(line, own):
			return false
		}
	}
	return true
}

// expand returns the files that an argument stands for, and whether it names a single file.
func expand(arg string) (names []string, given bool, err error) {
	info, err := os.Stat(arg)
	switch {
	case err == nil && !info.IsDir():
		return []string{arg}, true, nil
	case err == nil:
		var entries []os.DirEntry
		entries, err = os.ReadDir(arg)
		for _, e := range entries {
			names = append(names, filepath.Join(arg, e.Name()))
		}
	case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(arg, "*?["):
		names, err = filepath.Glob(arg)
	}
	if err != nil {
		return nil, false, fmt.Errorf("reading logs: %s: %w", arg, err)
	}
	return names, false, nil
}
