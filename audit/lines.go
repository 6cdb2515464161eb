package audit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
)

const (
	// MaxLine is the longest line that is read, in bytes: a header has 1 MiB at most where Caddy is
	// not told otherwise, and escaping doubles it.
	MaxLine = 4 << 20
	// batchSize is how many bytes are handed on at once.
	batchSize = 256 << 10
)

// batch is a stretch of lines of one file.
type batch struct {
	file  string
	lines []rawLine
	data  []byte
	looks []looked // of lines, once done is closed
	done  chan struct{}
	// last says that the file ends here.
	last bool
}

// rawLine is a line: where its bytes are, or why it could not be read.
type rawLine struct {
	number     int64
	start, end int
	err        error
}

func (b *batch) bytes(l rawLine) []byte { return b.data[l.start:l.end] }

// errTooLong is a line of which no more is read.
var errTooLong = fmt.Errorf("it is longer than %d bytes", MaxLine)

// readLines cuts what r has into batches of some size bytes (at least 1). Lines without bytes are
// skipped. An error of r belongs to the line that it cut; the lines before are whole. emit reports
// whether to go on.
func readLines(file string, r io.Reader, size int, emit func(*batch) bool) {
	in := bufio.NewReaderSize(r, size)
	number := int64(0)
	for {
		b := &batch{file: file, data: make([]byte, 0, size+size/4), done: make(chan struct{})}
		for !b.last && len(b.data) < size {
			number++
			b.last = b.readLine(in, number)
		}
		if !emit(b) || b.last {
			return
		}
	}
}

// readLine takes the next line, and reports whether it was the last.
func (b *batch) readLine(in *bufio.Reader, number int64) (last bool) {
	l := rawLine{number: number, start: len(b.data)}
	for {
		part, err := in.ReadSlice('\n')
		if len(b.data)+len(part)-l.start <= MaxLine {
			b.data = append(b.data, part...)
		} else {
			l.err = errTooLong
			b.data = b.data[:l.start]
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			l.err = fmt.Errorf("reading on: %w", err)
		}
		if l.end = len(b.data); l.end > l.start || l.err != nil {
			b.lines = append(b.lines, l)
		}
		return err != nil
	}
}
