package audit

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/crawlgate/crawlgate/evidence"
)

// Source is a log that can be read once.
type Source struct {
	// Name is the File of its places.
	Name string
	// Open begins to read it.
	Open func() (io.ReadCloser, error)
}

// Files finds the logs that arguments name: files, in the order given; folders and patterns (as in
// [filepath.Match]), for which the logs in them are taken in the order of time; and "-", which is
// in. A folder's logs are its access logs by name: those that end in .log or .json, with the marks
// of rotation and compression that Caddy gives them. Files of one folder follow each other; each
// folder has a list of its own.
func Files(args []string, in io.Reader) (logs [][]Source, err error) {
	if len(args) == 0 {
		return nil, errors.New("no access log is given")
	}
	lists := make(map[string]int)
	add := func(folder string, s Source) {
		if _, ok := lists[folder]; !ok {
			lists[folder] = len(logs)
			logs = append(logs, nil)
		}
		logs[lists[folder]] = append(logs[lists[folder]], s)
	}
	for _, arg := range args {
		if arg == "-" {
			add(arg, Source{"-", func() (io.ReadCloser, error) { return io.NopCloser(in), nil }})
			continue
		}
		names, err := expand(arg)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			add(filepath.Dir(name), Source{name, func() (io.ReadCloser, error) { return os.Open(name) }})
		}
	}
	if len(logs) > mostFolders {
		return nil, fmt.Errorf("reading logs: they are in %d folders: want at most %d", len(logs), mostFolders)
	}
	return joined(logs), nil
}

// joined puts the folders together that hold one sealed log, such as an archive of its older files:
// where one ends and the next begins, times do not tell the order of lines.
func joined(lists [][]Source) (logs [][]Source) {
	type part struct {
		generation int
		seq        int64
		files      []Source
	}
	var whole [][]part
	of := make(map[string]int)
	for _, list := range lists {
		id, seq := firstSeal(list)
		name := id.Gateway + "/" + id.Log
		i, ok := of[name]
		if !ok || id.Generation == 0 {
			i = len(whole)
			of[name], whole = i, append(whole, nil)
		}
		whole[i] = append(whole[i], part{id.Generation, seq, list})
	}
	for _, parts := range whole {
		slices.SortStableFunc(parts, func(a, b part) int {
			return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.seq, b.seq))
		})
		var files []Source
		for _, p := range parts {
			files = append(files, p.files...)
		}
		logs = append(logs, files)
	}
	return logs
}

// firstSeal looks for a seal in the first lines of the first files: torn lines have none. Faults
// are found when the files are read.
func firstSeal(list []Source) (of evidence.Identity, seq int64) {
	const mostFiles, mostLines = 3, 10
	for _, s := range list[:min(len(list), mostFiles)] {
		if s.Name == "-" {
			continue // it can be read once
		}
		n := 0
		for l := range read(0, []Source{s}) {
			if id, seq, ok := evidence.ReadSeal(l.text); ok {
				of, _ = evidence.ParseIdentity(id)
				return of, seq
			}
			if n++; n == mostLines {
				break
			}
		}
	}
	return of, 0
}

// mostFolders bounds how many logs are read at a time.
const mostFolders = 256

// expand gives the files that an argument stands for.
func expand(arg string) ([]string, error) {
	info, err := os.Stat(arg)
	var names []string
	switch {
	case err == nil && !info.IsDir():
		return []string{arg}, nil
	case err == nil:
		entries, err := os.ReadDir(arg)
		if err != nil {
			return nil, fmt.Errorf("reading logs: %w", err)
		}
		for _, e := range entries {
			if !e.IsDir() && isLog(e.Name()) {
				names = append(names, filepath.Join(arg, e.Name()))
			}
		}
	case errors.Is(err, fs.ErrNotExist) && strings.ContainsAny(arg, "*?["):
		if names, err = filepath.Glob(arg); err != nil {
			return nil, fmt.Errorf("reading logs: pattern %q: %w", arg, err)
		}
	default:
		return nil, fmt.Errorf("reading logs: %w", err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("reading logs: there is none in %s", arg)
	}
	slices.SortStableFunc(names, byRotation)
	return names, nil
}

// rotated finds the time at which Caddy put a log aside:
// access-2026-05-01T10-30-00.000-size.log.gz.
var rotated = regexp.MustCompile(`-(\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3})(-[A-Za-z0-9_]+)?`)

func isLog(name string) bool {
	name = strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".zst")
	if loc := rotated.FindStringIndex(name); loc != nil {
		name = name[:loc[0]] + name[loc[1]:]
	}
	return strings.HasSuffix(name, ".log") || strings.HasSuffix(name, ".json")
}

// byRotation orders logs by the time at which they were put aside; those that are still written
// come last.
func byRotation(a, b string) int {
	timeOf := func(name string) string {
		if m := rotated.FindStringSubmatch(filepath.Base(name)); m != nil {
			return m[1]
		}
		return "~" // behind all digits
	}
	return cmp.Or(strings.Compare(timeOf(a), timeOf(b)), strings.Compare(a, b))
}
