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
	"syscall"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/internal/lines"
)

// replaceFile replaces a file atomically, even if the power fails.
func replaceFile(name string, data []byte) error {
	temporary := name + ".new"
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temporary, name); err != nil {
		return err
	}
	return syncFile(filepath.Dir(name))
}

// syncFile syncs a file, or the names in a folder, to the disk. It does not matter who wrote them.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// appendFile appends to a file and syncs it. It appends all or nothing, unless the process ends in
// the meantime.
func appendFile(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err == nil {
		if _, err = f.Write(data); err != nil {
			err = errors.Join(err, f.Truncate(info.Size()))
		}
	}
	return errors.Join(err, f.Sync(), f.Close())
}

// lock locks a log against other processes, until the file is closed or the process ends.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = errors.New("another process writes this log, or this process seals it under another name or state folder: to change these, restart it")
	}
	if err != nil {
		return fmt.Errorf("locking %s: %w", f.Name(), err)
	}
	return nil
}

// newestGeneration returns the highest generation in a state folder, or 0.
func newestGeneration(dir string) (newest int, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if n, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() && strconv.Itoa(n) == e.Name() {
			newest = max(newest, n)
		}
	}
	return newest, nil
}

// tailOf reads the last bytes of a file, including any that are appended while it reads.
func tailOf(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	_, _ = f.Seek(-most, io.SeekEnd) // a shorter file is read from its beginning
	return io.ReadAll(f)
}

// maxLine bounds a line of the log, in bytes.
const maxLine = 4 << 20

// rotatedFiles finds the files of a log that Caddy or logrotate has rotated, the oldest first by
// their names. If a file exists both compressed and not, because compression was interrupted, the
// uncompressed one counts.
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

// LogFiles returns the rotated files of a log, the oldest first, and then the current one if it
// exists.
func LogFiles(current string) ([]string, error) {
	names, err := rotatedFiles(current)
	if _, missing := os.Stat(current); err == nil && missing == nil {
		names = append(names, current)
	}
	return names, err
}

// linesOf returns the lines of a file with their newlines, or none if the file is gone. The bytes
// are valid until the next line. An error ends the lines.
func linesOf(name string) iter.Seq2[[]byte, error] {
	return lines.Of(func() (io.ReadCloser, error) {
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) { // it was compressed in the meantime
			return io.NopCloser(strings.NewReader("")), nil
		}
		return f, err
	}, maxLine+1)
}

func firstSeal(name string) (id string, seq int64, err error) {
	for line, err := range linesOf(name) {
		if id, seq, sealed := evidence.ReadSeal(line); sealed || err != nil {
			return id, seq, err
		}
	}
	return "", 0, nil
}

// filesFrom returns the newest files of the log, starting with the one that has the given line.
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
		case id != "" && id != l.id: // an earlier generation; ours may begin in the same file
			return names[i:], nil
		}
	}
	return names, nil
}
