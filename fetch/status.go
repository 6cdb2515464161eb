package fetch

import "net/http"

// answerClass says what the status of a final or intermediate answer means,
// before its body and its Location have been looked at.
type answerClass uint8

const (
	// classInvalid is an answer that HTTP does not allow here: unreachable.
	classInvalid answerClass = iota
	// classRules is a file: its body is read.
	classRules
	// classRedirect is followed if it has a usable Location, else absent.
	classRedirect
	// classDeadEnd is a redirection that never has a usable Location: absent.
	classDeadEnd
	// classAbsent is a site that says it has no file.
	classAbsent
	// classUnreachable is a server that cannot answer now.
	classUnreachable
)

// classify is the status column of the table in DESIGN section 3; whatever it
// does not name is invalid, hence unreachable. Where the table leaves a status
// open:
//
//   - 206: no part was asked for, so the body is a piece of the file. Invalid.
//   - 304: nothing was asked conditionally (seed 000). The server believes that we
//     hold a copy, so there is a file and "absent" would be wrong. Invalid.
//   - 300, 306 and unassigned 3xx: as 300 (RFC 9110 section 15), which a Location
//     may direct.
//   - 305: its Location would be a proxy, which RFC 9110 section 15.4.6 forbids to
//     use. It leads nowhere.
//   - 1xx as final answer, and what lies outside 100 to 599: invalid.
func classify(status int) answerClass {
	switch {
	case status == http.StatusPartialContent, status == http.StatusNotModified:
		return classInvalid
	case status == http.StatusUseProxy:
		return classDeadEnd
	case status == http.StatusTooManyRequests:
		return classUnreachable
	case status >= 200 && status <= 299:
		return classRules
	case status >= 300 && status <= 399:
		return classRedirect
	case status >= 400 && status <= 499:
		return classAbsent
	case status >= 500 && status <= 599:
		return classUnreachable
	default:
		return classInvalid
	}
}
