package lines

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"

	"github.com/klauspost/compress/zstd"
)

// Reader reads the lines of a stream. It must not be used by several goroutines at once.
type Reader struct{ r *bufio.Reader }

// NewReader returns a Reader of lines of at most the given number of bytes, newline included.
func NewReader(r io.Reader, most int) *Reader { return &Reader{bufio.NewReaderSize(r, most+1)} }

// Idle reports whether Next may have to wait for the stream.
func (l *Reader) Idle() bool {
	waiting, _ := l.r.Peek(l.r.Buffered())
	return bytes.IndexByte(waiting, '\n') < 0
}

// Next returns the next line with its newline. If the line is too long, Next returns its beginning
// and skips the rest. The bytes are valid until the next call. The error is io.EOF after the last
// line. Any other error comes from the stream, together with the bytes before it.
func (l *Reader) Next() (line []byte, whole bool, err error) {
	line, err = l.r.ReadSlice('\n')
	for errors.Is(err, bufio.ErrBufferFull) && len(bytes.Trim(line, "\x00")) == 0 {
		line, err = l.r.ReadSlice('\n') // a file that is truncated while it is written can have a hole
	}
	most := l.r.Size() - 1
	if whole = len(line) <= most; !whole {
		line = bytes.Clone(line[:most])
	}
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = l.r.ReadSlice('\n')
	}
	if errors.Is(err, io.EOF) && len(line) > 0 {
		err = nil
	}
	return line, whole, err
}

// ErrLong means that a line is longer than the reader allows.
var ErrLong = errors.New("the line is too long")

// Of returns the lines of a file, which may be compressed, as [Reader.Next] does. A line that is
// too long yields its beginning with ErrLong. Any other error comes from the file and ends the
// lines.
func Of(open func() (io.ReadCloser, error), most int) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		f, err := open()
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = f.Close() }() // it was only read
		r, err := Unpack(f)
		if err != nil {
			yield(nil, err)
			return
		}
		defer func() { _ = r.Close() }()
		for in := NewReader(r, most); ; {
			line, whole, err := in.Next()
			switch {
			case errors.Is(err, io.EOF):
				return
			case err == nil && !whole:
				err = ErrLong
			}
			if !yield(line, err) || err != nil && !errors.Is(err, ErrLong) {
				return
			}
		}
	}
}

// Unpack decompresses gzip, zstd and bzip2, which it recognizes by their first bytes, and returns
// other data unchanged. It returns an error for compressions that it knows but cannot read.
func Unpack(r io.Reader) (io.ReadCloser, error) {
	b := bufio.NewReaderSize(r, 64<<10)
	magic, _ := b.Peek(6) // a shorter file is not compressed
	switch {
	case strings.HasPrefix(string(magic), "\x1f\x8b"):
		z, err := gzip.NewReader(b)
		if err != nil {
			return nil, fmt.Errorf("unpacking: %w", err)
		}
		return z, nil
	case strings.HasPrefix(string(magic), "\x28\xb5\x2f\xfd"):
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(128<<20))
		if err != nil {
			return nil, fmt.Errorf("unpacking: %w", err)
		}
		return z.IOReadCloser(), nil
	case strings.HasPrefix(string(magic), "BZh"):
		return io.NopCloser(bzip2.NewReader(b)), nil
	}
	for mark, name := range foreign {
		if strings.HasPrefix(string(magic), mark) {
			return nil, fmt.Errorf("it is compressed with %s: decompress it first", name)
		}
	}
	return io.NopCloser(b), nil
}

// foreign are compressions that are not supported, by their first bytes.
var foreign = map[string]string{
	"\xfd7zXZ\x00": "xz", "\x04\x22\x4d\x18": "lz4", "7z\xbc\xaf\x27\x1c": "7z", "PK\x03\x04": "zip", "\x1f\x9d": "compress", "LZIP": "lzip",
	"\x89LZO\x00": "lzop",
}
