package robotstxt

import "bytes"

const (
	// MaxSize is the number of octets of a file that are read (RFC 9309 section 2.5: at least 500 KiB).
	MaxSize = 500 * 1024

	// maxLine is the number of octets of a line that are read, as in Google's parser: eight times the longest URL
	// of an old browser, less one.
	maxLine = 8*2083 - 1
)

// scanner cuts a file into lines at CR, LF and CRLF (RFC 9309 section 2.2) and counts them.
type scanner struct {
	data           []byte
	pos            int // start of the next line
	lf             int // the first LF at or behind pos; len(data) when there is none
	number         int // of the line that next returned last
	hasCR, hasNUL  bool
	hasBOM, hasCut bool // for lint: a byte order mark was skipped, the size limit applied
}

// newScanner prepares the part of data that is read. With open, data itself is the beginning of something longer.
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
	s.data, s.lf = data, -1
	s.hasCR = bytes.IndexByte(data, '\r') >= 0
	s.hasNUL = bytes.IndexByte(data, 0) >= 0
	return s
}

// next returns the next line without its terminator. What follows the last terminator is a line too.
func (s *scanner) next() ([]byte, bool) {
	if s.pos > len(s.data) {
		return nil, false
	}
	if s.lf < s.pos {
		s.lf = len(s.data)
		if i := bytes.IndexByte(s.data[s.pos:], '\n'); i >= 0 {
			s.lf = s.pos + i
		}
	}
	end, skip := s.lf, 1
	if s.hasCR {
		if i := bytes.IndexByte(s.data[s.pos:end], '\r'); i >= 0 {
			if end = s.pos + i; end+1 == s.lf && s.lf < len(s.data) {
				skip = 2
			}
		}
	}
	line := s.data[s.pos:end]
	s.pos = end + skip
	s.number++
	return line, true
}

// content strips a line of what is beyond its limit, behind a NUL or a comment sign, and of blanks at both ends.
func (s *scanner) content(line []byte) []byte {
	if len(line) > maxLine {
		line = line[:maxLine]
	}
	for len(line) > 0 && isBlank(line[0]) {
		line = line[1:]
	}
	if len(line) == 0 || line[0] == '#' {
		return nil
	}
	if s.hasNUL {
		if i := bytes.IndexByte(line, 0); i >= 0 {
			line = line[:i]
		}
	}
	if i := bytes.IndexByte(line, '#'); i >= 0 {
		line = line[:i]
	}
	return trimRight(line)
}

// split divides the content of a line into key and value: at the first colon or, without any, at the blanks between
// exactly two words, as Google does. The key is empty when the line is no directive.
func split(content []byte) (key, value []byte) {
	if i := bytes.IndexByte(content, ':'); i >= 0 {
		return trimRight(content[:i]), trimLeft(content[i+1:])
	}
	i := bytes.IndexAny(content, " \t")
	if i < 0 {
		return nil, nil
	}
	value = content[i:]
	for len(value) > 0 && (value[0] == ' ' || value[0] == '\t') {
		value = value[1:]
	}
	if bytes.IndexAny(value, " \t") >= 0 {
		return nil, nil
	}
	return trimRight(content[:i]), trimLeft(value)
}

func trimLeft(b []byte) []byte {
	for len(b) > 0 && isBlank(b[0]) {
		b = b[1:]
	}
	return b
}

func trimRight(b []byte) []byte {
	for len(b) > 0 && isBlank(b[len(b)-1]) {
		b = b[:len(b)-1]
	}
	return b
}
