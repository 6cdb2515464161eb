package writer

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/internal/lines"
)

// maxLine bounds a line of the log, in bytes.
const maxLine = 4 << 20

// rotatedFiles finds the files of a log that Caddy has rotated. One that is there packed and
// unpacked, because packing was broken off, is taken unpacked.
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
	for _, e := range entries {
		plain := strings.TrimSuffix(strings.TrimSuffix(e.Name(), ".gz"), ".zst")
		if e.Type().IsRegular() && strings.HasPrefix(plain, stem) && strings.HasSuffix(plain, ext) &&
			(plain == e.Name() || !there[plain]) {
			names = append(names, filepath.Join(dir, e.Name()))
		}
	}
	return names, nil
}

// LogFiles gives the files of a log that Caddy has rotated, in the order of the times in their
// names, and the one that is written, if it is there.
func LogFiles(current string) ([]string, error) {
	names, err := rotatedFiles(current)
	if err != nil {
		return nil, err
	}
	slices.Sort(names)
	if _, err := os.Stat(current); err == nil {
		names = append(names, current)
	}
	return names, nil
}

// openLog reads a file of the log, unpacked. One that is not packed is an [io.Seeker].
func openLog(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the log: %w", err)
	}
	if ext := filepath.Ext(name); ext != ".gz" && ext != ".zst" {
		return f, nil
	}
	unpacked, err := lines.Unpack(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{unpacked, f}, nil
}

// eachLine gives the lines of r, without their ends, and whether they had one. The bytes are good
// until the next line.
func eachLine(r io.Reader, take func(line []byte, ended bool) error) error {
	in := lines.NewReader(r, maxLine+1)
	for {
		line, whole, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && !whole {
			err = fmt.Errorf("a line of more than %d bytes", maxLine)
		}
		if err != nil {
			return err
		}
		line, ended := bytes.CutSuffix(line, []byte("\n"))
		if err := take(line, ended); err != nil {
			return err
		}
	}
}

// eachLineOf gives the lines of a file, of none where it is gone.
func eachLineOf(name string, take func(line []byte, ended bool) error) error {
	r, err := openLog(name)
	if errors.Is(err, fs.ErrNotExist) { // packed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	return eachLine(r, take)
}

// openBehind opens a file of the log behind the line that ends at offset. It fails where that line
// does not have the hash.
func openBehind(name string, offset int64, leaf tlog.Hash) (io.ReadCloser, error) {
	r, err := openLog(name)
	if err != nil {
		return nil, err
	}
	if err := skipTo(r, offset, leaf); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), r.Close())
	}
	return r, nil
}

var errOtherLine = errors.New("the last sealed line is not where it was")

func skipTo(r io.Reader, offset int64, leaf tlog.Hash) error {
	window := min(offset, maxLine+1)
	var err error
	if seeker, ok := r.(io.Seeker); ok {
		_, err = seeker.Seek(offset-window, io.SeekStart)
	} else {
		_, err = io.CopyN(io.Discard, r, offset-window)
	}
	before := make([]byte, window)
	if err == nil {
		_, err = io.ReadFull(r, before)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errOtherLine
	}
	if err != nil {
		return err
	}
	line, ended := bytes.CutSuffix(before, []byte("\n"))
	line = line[bytes.LastIndexByte(line, '\n')+1:]
	if !ended || tlog.RecordHash(line) != leaf {
		return errOtherLine
	}
	return nil
}
