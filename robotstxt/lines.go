package robotstxt

import "iter"

// Lines yields the lines of a robots.txt by their numbers from 1, as [Match.Line] counts them, each
// without its end: CR, LF or CRLF. Of data, the first 500 KiB are read, as by [Parse]. The lines
// are pieces of data and may hold any byte.
func Lines(data []byte) iter.Seq2[int, []byte] {
	return func(yield func(int, []byte) bool) {
		s := newScanner(data, false)
		for line, ok := s.next(); ok && yield(s.number, line); line, ok = s.next() {
		}
	}
}
