package query

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineReader reads lines of bounded length.
type lineReader struct {
	r    *bufio.Reader
	most int
	long []byte // a line that is longer than the reader's buffer
}

// idle reports whether the next line may have to be waited for.
func (l *lineReader) idle() bool {
	waiting, _ := l.r.Peek(l.r.Buffered())
	return bytes.IndexByte(waiting, '\n') < 0
}

// next returns the next line, or its beginning when it is too long; the rest of it is then skipped.
// The bytes are good until the next call. The error is io.EOF when there is no further line.
func (l *lineReader) next() (line []byte, whole bool, err error) {
	line, err = l.r.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		if errors.Is(err, io.EOF) && len(line) > 0 {
			err = nil
		}
		return line, len(line) <= l.most, err
	}
	l.long = append(l.long[:0], line...)
	whole = true
	for errors.Is(err, bufio.ErrBufferFull) {
		line, err = l.r.ReadSlice('\n')
		if room := l.most - len(l.long); len(line) > room {
			line, whole = line[:max(room, 0)], false
		}
		l.long = append(l.long, line...)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return l.long, whole, err
}
