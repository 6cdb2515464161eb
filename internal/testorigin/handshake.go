package testorigin

// BadCertificate shows a certificate that no client may accept. Behind it waits
// a correct 200 with rules, for one that does.
func BadCertificate(kind Certificate, rules string) Behaviour {
	b := OK(rules)
	b.Name, b.Meaning, b.Rules = kind.String()+" certificate", MeansUnreachable, nil
	b.where, b.cert = atHandshake, kind
	return b
}

// HandshakeAlert answers the TLS ClientHello with a fatal handshake_failure.
func HandshakeAlert() Behaviour {
	alert := []byte{21, 3, 3, 0, 2, 2, 40} // record: alert, TLS 1.2, 2 octets: fatal, handshake_failure (RFC 8446 section 6)
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

// HandshakePlain answers the TLS ClientHello with plain HTTP, as a plain server
// on the TLS port does.
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
