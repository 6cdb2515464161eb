package testorigin

import (
	"fmt"
	"net/http"
)

// CloseAtOnce closes the connection after the request, without an octet.
func CloseAtOnce() Behaviour {
	return Behaviour{Name: "close before the head", serve: func(*session) error { return nil }}
}

// ResetAtOnce resets the connection after the request.
func ResetAtOnce() Behaviour {
	return Behaviour{Name: "reset before the head", serve: (*session).reset}
}

// ResetInHead resets the connection after the status line.
func ResetInHead() Behaviour {
	return Behaviour{Name: "reset in the head", serve: func(s *session) error {
		s.site.noteStatus(s, http.StatusOK)
		if err := s.write([]byte("HTTP/1.1 200 OK\r\nContent-Ty")); err != nil {
			return err
		}
		return s.reset()
	}}
}

// ResetInBody resets the connection after n octets of rules.
func ResetInBody(rules string, n int) Behaviour {
	name := fmt.Sprintf("reset after %d octets of the body", n)
	return Behaviour{Name: name, serve: func(s *session) error {
		if err := s.startBody(rules, n); err != nil {
			return err
		}
		return s.reset()
	}}
}

// ShortBody announces all of rules, sends n octets and closes the connection.
func ShortBody(rules string, n int) Behaviour {
	name := fmt.Sprintf("close after %d octets of the body", n)
	return Behaviour{Name: name, serve: func(s *session) error { return s.startBody(rules, n) }}
}

// MissingLastChunk sends rules as a chunk and closes without the last one.
func MissingLastChunk(rules string) Behaviour {
	return Behaviour{Name: "no last chunk", serve: func(s *session) error { return s.startChunks(rules, "") }}
}

// BrokenChunk sends rules as a chunk, then one whose size is no number.
func BrokenChunk(rules string) Behaviour {
	return Behaviour{Name: "broken chunk", serve: func(s *session) error {
		return s.startChunks(rules, "zz\r\nmore\r\n0\r\n\r\n")
	}}
}

// Chunked sends rules in correct chunks of one octet.
func Chunked(rules string) Behaviour {
	return Behaviour{Name: "chunked", Meaning: MeansRules, Rules: []byte(rules), serve: func(s *session) error {
		if err := s.writeHead(http.StatusOK, "Content-Type: text/plain", "Transfer-Encoding: chunked"); err != nil {
			return err
		}
		for i := range len(rules) {
			if err := s.write([]byte{'1', '\r', '\n', rules[i], '\r', '\n'}); err != nil {
				return err
			}
		}
		s.keep = s.request.keepAlive()
		return s.write([]byte("0\r\n\r\n"))
	}}
}

// startChunks sends the head of a chunked 200, rules as its first chunk, and rest.
func (s *session) startChunks(rules, rest string) error {
	if err := s.writeHead(http.StatusOK, "Content-Type: text/plain", "Transfer-Encoding: chunked"); err != nil {
		return err
	}
	return s.write(fmt.Appendf(nil, "%x\r\n%s\r\n%s", len(rules), rules, rest))
}
