package sealer

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/internal/lines"
)

// maxLine bounds a line of the log, in bytes.
const maxLine = 4 << 20

// rotatedFiles finds the files of a log that Caddy or logrotate has put aside, the oldest first by
// their names. One that is there packed and unpacked, because packing was broken off, is taken
// unpacked.
func rotatedFiles(current string) (names []string, err error) {
	dir, name := filepath.Split(current)
	ext := filepath.Ext(name)
	stem := strings.TrimSuffix(name, ext) + "-"
	entries, err := os.ReadDir(cmp.Or(dir, "."))
	if err != nil {
		return nil, fmt.Errorf("looking for the files of the log: %w", err)
	}
	there := make(map[string]bool)
	for _, e := range entries {
		there[e.Name()] = true
	}
	age := make(map[string]int) // by logrotate's count
	for _, e := range entries {
		plain := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".gz"), ".zst")
		suffix, counted := strings.CutPrefix(plain, name+".")
		count, err := strconv.Atoi(suffix)
		ours := strings.HasPrefix(plain, stem) && strings.HasSuffix(plain, ext) || strings.HasPrefix(plain, name+"-") || counted && err == nil
		if e.Type().IsRegular() && ours && (plain == e.Name() || !there[plain]) {
			names = append(names, filepath.Join(dir, e.Name()))
			age[names[len(names)-1]] = count
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(age[b]-age[a], cmp.Compare(a, b)) })
	return names, nil
}

// LogFiles gives the files of a log that were put aside, the oldest first, and the one that is
// written, if it is there.
func LogFiles(current string) ([]string, error) {
	names, err := rotatedFiles(current)
	if _, missing := os.Stat(current); err == nil && missing == nil {
		names = append(names, current)
	}
	return names, err
}

// linesOf gives the lines of a file, with their ends; none if it is gone. The bytes are good until
// the next line. An error is the last that counts.
func linesOf(name string) iter.Seq2[[]byte, error] {
	return lines.Of(func() (io.ReadCloser, error) {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) { // packed meanwhile
			return io.NopCloser(strings.NewReader("")), nil
		}
		return f, err
	}, maxLine+1)
}

// firstSeal reads the seal of the first line of a file that has one.
func firstSeal(name string) (id string, seq int64, err error) {
	for line, err := range linesOf(name) {
		if id, seq, sealed := evidence.ReadSeal(line); sealed || err != nil {
			return id, seq, err
		}
	}
	return "", 0, nil
}

// filesFrom gives the newest files of the log, from the one on that has the line of a number.
func (l *Log) filesFrom(number int64) ([]string, error) {
	names, err := LogFiles(l.config.File)
	if err != nil {
		return nil, err
	}
	for i, name := range slices.Backward(names) {
		switch id, first, err := firstSeal(name); {
		case err != nil:
			return nil, fmt.Errorf("reading the log: %s: %w", name, err)
		case id == l.id && first <= number:
			return names[i:], nil
		case id != "" && id != l.id: // of an earlier generation; this one may begin within
			return names[i:], nil
		}
	}
	return names, nil
}
