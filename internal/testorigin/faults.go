package testorigin

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"
)

// CloseAtOnce closes the connection after the request, without a byte.
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

// ResetInBody resets the connection after n bytes of rules.
func ResetInBody(rules string, n int) Behaviour {
	name := fmt.Sprintf("reset after %d bytes of the body", n)
	return Behaviour{Name: name, serve: func(s *session) error {
		if err := s.startBody(rules, n); err != nil {
			return err
		}
		return s.reset()
	}}
}

// ShortBody announces all of rules, sends n bytes and closes the connection.
func ShortBody(rules string, n int) Behaviour {
	name := fmt.Sprintf("close after %d bytes of the body", n)
	return Behaviour{Name: name, serve: func(s *session) error { return s.startBody(rules, n) }}
}

// MissingLastChunk sends rules as a chunk and closes the connection without the last chunk.
func MissingLastChunk(rules string) Behaviour {
	return Behaviour{Name: "no last chunk", serve: func(s *session) error { return s.startChunks(rules, "") }}
}

// BrokenChunk sends rules as a chunk, then a chunk whose size is not a number.
func BrokenChunk(rules string) Behaviour {
	return Behaviour{Name: "broken chunk", serve: func(s *session) error {
		return s.startChunks(rules, "zz\r\nmore\r\n0\r\n\r\n")
	}}
}

// Chunked sends rules in correct chunks of one byte.
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

// Drip sends a correct 200 with rules, one byte of the body per interval. It means unreachable to a
// crawler that times out before the last byte. Change Meaning if the timeout is long enough.
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

// HangInHead sends a status line and a field, then hangs.
func HangInHead() Behaviour {
	return Behaviour{Name: "hang in the head", serve: func(s *session) error {
		s.site.noteStatus(s, http.StatusOK)
		if err := s.write([]byte("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n")); err != nil {
			return err
		}
		return s.hang()
	}}
}

// HangInBody sends the first n bytes of rules, then hangs.
func HangInBody(rules string, n int) Behaviour {
	name := fmt.Sprintf("hang after %d bytes of the body", n)
	return Behaviour{Name: name, serve: func(s *session) error {
		if err := s.startBody(rules, n); err != nil {
			return err
		}
		return s.hang()
	}}
}

// startBody sends the head of a 200 with rules and n bytes of them.
func (s *session) startBody(rules string, n int) error {
	if err := s.writeHead(http.StatusOK, bodyFields(rules)...); err != nil {
		return err
	}
	return s.write([]byte(rules[:min(n, len(rules))]))
}

func bodyFields(rules string) []string {
	return []string{"Content-Type: text/plain", "Content-Length: " + strconv.Itoa(len(rules))}
}

// Raw sends bytes unchanged and closes the connection. It means unreachable unless Meaning is
// changed.
func Raw(name string, raw []byte) Behaviour {
	raw = bytes.Clone(raw)
	return Behaviour{Name: name, serve: func(s *session) error { return s.write(raw) }}
}

// InvalidStatusLine answers with a status line whose parts are in the wrong order.
func InvalidStatusLine(rules string) Behaviour {
	return Raw("invalid status line", fmt.Appendf(nil, "HTTP/1.1 OK 200\r\nContent-Length: %d\r\n\r\n%s", len(rules), rules))
}

// NotHTTP answers in another protocol.
func NotHTTP() Behaviour {
	return Raw("not HTTP", []byte("220 mail.example ESMTP\r\n"))
}

// ConflictingLengths announces two lengths for one body (RFC 9112 section 6.3: an unrecoverable
// error).
func ConflictingLengths(rules string) Behaviour {
	return Raw("conflicting lengths", fmt.Appendf(nil,
		"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nContent-Length: %d\r\n\r\n%s", len(rules), len(rules)/2, rules))
}

// UntilClose sends a body that ends with the connection, which is correct (RFC 9112 section 6.3).
func UntilClose(rules string) Behaviour {
	b := Raw("until close", []byte("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n"+rules))
	b.Meaning, b.Rules = MeansRules, []byte(rules)
	return b
}

// maxEndless is the most that an endless answer sends.
const maxEndless = 64 << 20

// EndlessHead sends header fields without end; it stops after 64 MiB.
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

// BadCertificate shows a certificate that no client may accept. A client that accepts it gets a
// correct 200 with rules.
func BadCertificate(kind Certificate, rules string) Behaviour {
	b := OK(rules)
	b.Name, b.Meaning, b.Rules = kind.String()+" certificate", MeansUnreachable, nil
	b.where, b.cert = atHandshake, kind
	return b
}

// HandshakeAlert answers the TLS ClientHello with a fatal handshake_failure.
func HandshakeAlert() Behaviour {
	alert := []byte{21, 3, 3, 0, 2, 2, 40} // record: alert, TLS 1.2, 2 bytes: fatal, handshake_failure (RFC 8446 section 6)
	return spoiltHandshake("TLS alert", func(s *session) error {
		// The alert must not overtake the client's hello, nor the close its reading.
		if _, err := s.reader.Peek(1); err != nil {
			return errClientLeft
		}
		if _, err := s.raw.Write(alert); err != nil {
			return err
		}
		return s.hang()
	})
}

// HandshakePlain answers the TLS ClientHello in plain HTTP, like a plain server at the TLS port.
func HandshakePlain() Behaviour {
	return spoiltHandshake("plain HTTP for TLS", func(s *session) error {
		if _, err := s.reader.Peek(1); err != nil {
			return errClientLeft
		}
		if _, err := s.raw.Write([]byte("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")); err != nil {
			return err
		}
		return s.hang()
	})
}

// HandshakeHang never answers the TLS ClientHello.
func HandshakeHang() Behaviour { return spoiltHandshake("hang in the TLS handshake", (*session).hang) }

// HandshakeReset resets the connection after the TLS ClientHello.
func HandshakeReset() Behaviour {
	return spoiltHandshake("reset in the TLS handshake", func(s *session) error {
		if _, err := s.reader.Peek(1); err != nil {
			return errClientLeft
		}
		return s.reset()
	})
}

func spoiltHandshake(name string, handshake func(*session) error) Behaviour {
	return Behaviour{Name: name, where: atHandshake, handshake: handshake, serve: (*session).reset}
}
