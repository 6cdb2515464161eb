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
	lf             int  // the next LF, or the end; before pos if it is to be looked for
	number         int  // of the line that next returned last
	hasBOM, hasCut bool // for lint: a byte order mark was skipped, the size limit applied
}

// newScanner prepares the part of data that is read. With open, data itself is the beginning of
// something longer.
func newScanner(data []byte, open bool) scanner {
	s := scanner{lf: -1}
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
	if s.lf < s.pos {
		s.lf = s.pos + indexOrEnd(s.data[s.pos:], '\n')
	}
	line := s.data[s.pos:s.lf]
	line = line[:indexOrEnd(line, '\r')]
	s.pos += len(line) + 1
	if s.pos == s.lf && s.lf < len(s.data) { // CRLF
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
	if isDisallow(content) && len(content) > len("disallow") && content[len("disallow")] == ':' { // as most are
		return content[:len("disallow")], trimLeft(content[len("disallow:"):])
	}
	if i := bytes.IndexByte(content, ':'); i >= 0 { //nolint:modernize // bytes.Cut takes 3 % more of a whole parse
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
	if bytes.ContainsAny(value, " \t") {
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
