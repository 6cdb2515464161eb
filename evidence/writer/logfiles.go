package writer

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/crawlgate/crawlgate/evidence"
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

// logFiles gives the files of a log, the oldest first; the last one is written, if it is there.
func logFiles(current string) ([]string, error) {
	names, err := rotatedFiles(current)
	if err != nil {
		return nil, err
	}
	files := make([]logFile, len(names), len(names)+1)
	for i, name := range names {
		files[i].name = name
		if err := files[i].readFirst(); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(files, func(a, b logFile) int {
		return cmp.Or(cmp.Compare(a.generation, b.generation), cmp.Compare(a.seq, b.seq), cmp.Compare(a.name, b.name))
	})
	for i, f := range files {
		names[i] = f.name
	}
	if _, err := os.Stat(current); err == nil {
		names = append(names, current)
	}
	return names, nil
}

// logFile is a rotated file, with the first seal in it: names tell the order only where nobody has
// given them another form.
type logFile struct {
	name       string
	generation int
	seq        int64
}

// readFirst looks for a seal in the first lines: torn lines and checkpoints of others have none.
func (f *logFile) readFirst() error {
	r, err := openLog(f.name)
	if errors.Is(err, fs.ErrNotExist) { // packed meanwhile
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }() // it was only read
	lines := newLineReader(r)
	for range 10 {
		line, _, err := lines.next()
		if err != nil {
			return nil //nolint:nilerror // reading it to its end will tell
		}
		if id, seq, ok := evidence.ReadSeal(line); ok {
			identity, err := evidence.ParseIdentity(id)
			f.generation, f.seq = identity.Generation, seq
			return err
		}
	}
	return nil
}

// openLog reads a file of the log, unpacked.
func openLog(name string) (io.ReadCloser, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("reading the log: %w", err)
	}
	var unpacked io.Reader
	switch filepath.Ext(name) {
	case ".gz":
		unpacked, err = gzip.NewReader(f)
	case ".zst":
		var z *zstd.Decoder
		z, err = zstd.NewReader(f, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(128<<20))
		unpacked = z
	default:
		return f, nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("unpacking %s: %w", name, err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{unpacked, f}, nil
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

// lineReader reads lines of at most maxLine bytes.
type lineReader struct{ r *bufio.Reader }

func newLineReader(r io.Reader) *lineReader { return &lineReader{bufio.NewReaderSize(r, 64<<10)} }

// next gives a line without its end, and whether it had one. After the last line the error is
// io.EOF. The line is the caller's.
func (l *lineReader) next() (line []byte, ended bool, err error) {
	for {
		part, err := l.r.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > maxLine+1:
			return nil, false, fmt.Errorf("a line of more than %d bytes", maxLine)
		case err == nil:
			return line[:len(line)-1], true, nil
		case errors.Is(err, io.EOF) && len(line) > 0:
			return line, false, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, false, err
		}
	}
}
