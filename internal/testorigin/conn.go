package testorigin

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// serve serves one connection to its end.
func (s *Site) serve(raw net.Conn) {
	x := &session{site: s, raw: raw, conn: raw, number: s.server.lastConn.Add(1)}
	defer func() { _ = x.conn.Close() }()
	if s.origin.Scheme == "https" && !s.handshake(x) {
		return
	}
	x.reader = bufio.NewReader(x.conn)
	for s.exchange(x) {
	}
}

// handshake puts TLS on the connection, or what the behaviour in force has in
// its place, and reports whether HTTP can follow. Failures are recorded.
func (s *Site) handshake(x *session) bool {
	behaviour := s.robots.Load()
	x.made = behaviour.version
	start := s.server.cfg.Now()
	err := s.startTLS(x, behaviour.Behaviour)
	if err == nil {
		return true
	}
	x.record = s.begin(Exchange{
		Conn: x.number, Start: start, Behaviour: behaviour.Name, Version: behaviour.version,
	})
	s.end(x, fmt.Errorf("TLS handshake: %w", err))
	return false
}

func (s *Site) startTLS(x *session, b Behaviour) error {
	if b.handshake != nil {
		x.reader = bufio.NewReader(x.raw)
		if err := b.handshake(x); err != nil {
			return err
		}
		return errors.New("not spoken")
	}
	cert, err := s.certificate(b.cert)
	if err != nil {
		return err
	}
	conn := tls.Server(x.raw, &tls.Config{
		Certificates: []tls.Certificate{*cert},
		NextProtos:   []string{"http/1.1"},
		MinVersion:   tls.VersionTLS12,
	})
	if err := conn.Handshake(); err != nil { //nolint:noctx // Site.close ends it by closing the transport
		return err
	}
	x.conn = conn
	return nil
}

// exchange reads one request and lets the behaviour in force for its path answer.
// It reports whether the connection can take another.
func (s *Site) exchange(x *session) bool {
	x.request, x.sent, x.keep = nil, 0, false
	req, err := readRequest(x.reader)
	if err != nil {
		s.reject(x, err)
		return false
	}
	x.request = req
	behaviour, version := s.behaviourFor(req.path())
	x.record = s.begin(Exchange{
		Conn: x.number, Start: s.server.cfg.Now(), Arrived: arrival(x.raw, time.Now()), Behaviour: behaviour.Name, Version: version,
		Method: req.method, Target: req.target, Path: req.path(), Proto: req.proto,
		Host: req.header.Get("Host"), Header: req.header,
	})
	err = x.answer(behaviour, version)
	s.end(x, err)
	return err == nil && x.keep
}

// answer takes the request's body and lets b answer.
func (x *session) answer(b Behaviour, version int) error {
	if b.where == atHandshake && x.made != version {
		_ = x.reset()
		return errOtherHandshake
	}
	if x.request.expectsContinue() {
		if err := x.writeHead(http.StatusContinue); err != nil {
			return err
		}
	}
	if err := x.request.readBody(x.reader); err != nil {
		return fmt.Errorf("reading the request body: %w", err)
	}
	return b.serve(x)
}

// reject answers and records a head that cannot be read, unless it is merely the
// end of the connection.
func (s *Site) reject(x *session, err error) {
	if !errors.Is(err, errMalformed) && !errors.Is(err, errHeadTooLarge) {
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			return
		}
	}
	robots := s.robots.Load()
	x.record = s.begin(Exchange{Conn: x.number, Start: s.server.cfg.Now(), Behaviour: "bad request", Version: robots.version})
	x.request = &request{proto: "HTTP/1.0"}
	_ = x.respond(Response{Status: http.StatusBadRequest, Body: []byte(err.Error() + "\n")})
	s.end(x, err)
}
