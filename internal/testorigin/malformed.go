package testorigin

import (
	"bytes"
	"fmt"
	"net/http"
)

// Raw sends octets as they are and closes the connection. It means unreachable
// unless Meaning is changed.
func Raw(name string, octets []byte) Behaviour {
	octets = bytes.Clone(octets)
	return Behaviour{Name: name, serve: func(s *session) error { return s.write(octets) }}
}

// InvalidStatusLine answers with a status line whose parts are swapped.
func InvalidStatusLine(rules string) Behaviour {
	return Raw("invalid status line", fmt.Appendf(nil, "HTTP/1.1 OK 200\r\nContent-Length: %d\r\n\r\n%s", len(rules), rules))
}

// NotHTTP answers as another protocol does.
func NotHTTP() Behaviour {
	return Raw("not HTTP", []byte("220 mail.example ESMTP\r\n"))
}

// ConflictingLengths announces two lengths for one body (RFC 9112 section 6.3:
// an error that cannot be recovered from).
func ConflictingLengths(rules string) Behaviour {
	return Raw("conflicting lengths", fmt.Appendf(nil,
		"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Length: %d\r\n\r\n%s", len(rules), len(rules)/2, rules))
}

// UntilClose sends a body that only the end of the connection delimits, which is
// correct (RFC 9112 section 6.3).
func UntilClose(rules string) Behaviour {
	b := Raw("until close", []byte("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n"+rules))
	b.Meaning, b.Rules = MeansRules, []byte(rules)
	return b
}

// maxEndless bounds what an endless answer sends to a client that takes it all.
const maxEndless = 64 << 20

// EndlessHead sends header fields without end; after 64 MiB it gives up.
func EndlessHead() Behaviour {
	const field = "X-Filler: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n"
	fields := bytes.Repeat([]byte(field), 100)
	return Behaviour{Name: "endless head", serve: func(s *session) error {
		s.site.noteStatus(s, http.StatusOK)
		err := s.write([]byte("HTTP/1.1 200 OK\r\n"))
		for err == nil && s.sent < maxEndless {
			err = s.write(fields)
		}
		return err
	}}
}

// Informational sends interim responses (RFC 9110 section 15.2), then b.
func Informational(b Behaviour, statuses ...int) Behaviour {
	mustBeHTTP(b)
	serve := b.serve
	b.Name = fmt.Sprintf("%d, then %s", statuses, b.Name)
	b.serve = func(s *session) error {
		if err := s.writeInterim(statuses); err != nil {
			return err
		}
		return serve(s)
	}
	return b
}

// OnlyInformational sends interim responses and closes the connection.
func OnlyInformational(statuses ...int) Behaviour {
	return Behaviour{Name: fmt.Sprintf("%d alone", statuses), serve: func(s *session) error {
		return s.writeInterim(statuses)
	}}
}

func (s *session) writeInterim(statuses []int) error {
	for _, status := range statuses {
		if err := s.writeHead(status, "Link: </style.css>; rel=preload"); err != nil {
			return err
		}
	}
	return nil
}
