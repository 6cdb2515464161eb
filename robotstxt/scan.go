package robotstxt

import "bytes"

const (
	// MaxSize is the number of bytes of a file that are read (RFC 9309 section 2.5: at least 500 KiB).
	MaxSize = 500 * 1024

	// maxLine is the number of bytes of a line that are read, as in Google's parser: eight times the
	// longest URL of an old browser, less one.
	maxLine = 8*2083 - 1
)

// scanner cuts a file into lines at CR, LF and CRLF (RFC 9309 section 2.2) and counts them.
type scanner struct {
	data           []byte
	pos            int  // start of the next line
	number         int  // of the line that next returned last
	hasBOM, hasCut bool // for lint: a byte order mark was skipped, the size limit applied
}

// newScanner prepares the part of data that is read. With open, data itself is the beginning of
// something longer.
func newScanner(data []byte, open bool) scanner {
	var s scanner
	if len(data) > MaxSize {
		open, s.hasCut = data[MaxSize] != '\n' && data[MaxSize] != '\r', true
		data = data[:MaxSize]
	}
	if open {
		// Half a path is a wider rule than the site wrote.
		data = data[:1+bytes.LastIndexAny(data, "\r\n")]
	}
	for _, c := range [...]byte{0xEF, 0xBB, 0xBF} { // a partial mark is skipped too, as Google does
		if len(data) == 0 || data[0] != c {
			break
		}
		data, s.hasBOM = data[1:], true
	}
	s.data = data
	return s
}

// next returns the next line without its terminator. The rest after the last terminator is a line
// too.
func (s *scanner) next() ([]byte, bool) {
	if s.pos > len(s.data) {
		return nil, false
	}
	line, rest := s.data[s.pos:], []byte(nil)
	if i := bytes.IndexAny(line, "\r\n"); i >= 0 {
		line, rest = line[:i], line[i:]
	}
	s.pos += len(line) + 1
	if bytes.HasPrefix(rest, []byte("\r\n")) {
		s.pos++
	}
	s.number++
	return line, true
}

// indexOrEnd returns the first place of a byte, or the length.
func indexOrEnd(b []byte, c byte) int {
	if i := bytes.IndexByte(b, c); i >= 0 {
		return i
	}
	return len(b)
}

// contentOf strips a line of what is beyond its limit, behind a NUL or a comment sign, and of
// blanks at both ends.
func contentOf(line []byte) []byte {
	line = trimLeft(line[:min(len(line), maxLine)])
	if len(line) == 0 || line[0] == '#' {
		return nil
	}
	line = line[:indexOrEnd(line, 0)]
	return trimRight(line[:indexOrEnd(line, '#')])
}

// split divides the content of a line into key and value: at the first colon or, without any, at
// the blanks between exactly two words, as Google does. The key is empty when the line is no
// directive.
func split(content []byte) (key, value []byte) {
	if key, value, ok := bytes.Cut(content, []byte{':'}); ok {
		return trimRight(key), trimLeft(value)
	}
	i := bytes.IndexAny(content, " \t")
	if i < 0 {
		return nil, nil
	}
	value = bytes.TrimLeft(content[i:], " \t")
	if bytes.ContainsAny(value, " \t") {
		return nil, nil
	}
	return trimRight(content[:i]), trimLeft(value)
}

// blanks are what stands for white space, as in Google's parser.
const blanks = " \t\v\f"

func trimLeft(b []byte) []byte { return bytes.TrimLeft(b, blanks) }

func trimRight(b []byte) []byte { return bytes.TrimRight(b, blanks) }
