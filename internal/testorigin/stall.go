package testorigin

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// Drip sends a correct 200 with rules, one octet of the body per interval. It
// means unreachable to a crawler whose time is up before the last octet; change
// Meaning where the time suffices.
func Drip(rules string, interval time.Duration) Behaviour {
	return Behaviour{Name: "drip-feed", Rules: []byte(rules), serve: func(s *session) error {
		if err := s.writeHead(http.StatusOK, bodyFields(rules)...); err != nil {
			return err
		}
		for i := range len(rules) {
			if err := s.wait(interval); err != nil {
				return err
			}
			if err := s.write([]byte{rules[i]}); err != nil {
				return err
			}
		}
		s.keep = s.request.keepAlive()
		return nil
	}}
}

// HangBeforeHead reads the request and sends nothing.
func HangBeforeHead() Behaviour {
	return Behaviour{Name: "hang before the head", serve: (*session).hang}
}

// HangInHead sends a status line and a field, then nothing.
func HangInHead() Behaviour {
	return Behaviour{Name: "hang in the head", serve: func(s *session) error {
		s.site.noteStatus(s, http.StatusOK)
		if err := s.write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")); err != nil {
			return err
		}
		return s.hang()
	}}
}

// HangInBody sends the first n octets of rules, then nothing.
func HangInBody(rules string, n int) Behaviour {
	name := fmt.Sprintf("hang after %d octets of the body", n)
	return Behaviour{Name: name, serve: func(s *session) error {
		if err := s.startBody(rules, n); err != nil {
			return err
		}
		return s.hang()
	}}
}

// startBody sends the head of a 200 with rules and n octets of them.
func (s *session) startBody(rules string, n int) error {
	if err := s.writeHead(http.StatusOK, bodyFields(rules)...); err != nil {
		return err
	}
	return s.write([]byte(rules[:min(n, len(rules))]))
}

func bodyFields(rules string) []string {
	return []string{"Content-Type: text/plain", "Content-Length: " + strconv.Itoa(len(rules))}
}
