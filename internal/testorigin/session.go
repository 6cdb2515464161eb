package testorigin

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// session has what a behaviour needs: one connection and the request on it.
type session struct {
	site    *Site
	raw     net.Conn // the transport
	conn    net.Conn // HTTP: raw, or TLS over it
	reader  *bufio.Reader
	number  uint64 // number of the connection
	request *request
	made    int // version of the robots behaviour at the handshake

	record uint64 // place of the exchange in the record
	sent   int64  // bytes of HTTP sent for this request
	keep   bool   // whether the connection can be used for another request
}

var (
	// errReset ends a connection with a RST.
	errReset = errors.New("reset")
	// errClientLeft is the error of a client that did not wait for the end.
	errClientLeft = errors.New("the client left")
)

func (s *session) write(raw []byte) error {
	n, err := s.conn.Write(raw)
	s.sent += int64(n)
	if err != nil {
		return fmt.Errorf("writing: %w", err)
	}
	return nil
}

// writeHead sends a status line and header fields, and the empty line after them.
func (s *session) writeHead(status int, fields ...string) error {
	s.site.noteStatus(s, status)
	var head strings.Builder
	fmt.Fprintf(&head, "HTTP/1.1 %03d %s\r\n", status, reasonPhrase(status))
	for _, field := range fields {
		head.WriteString(field)
		head.WriteString("\r\n")
	}
	head.WriteString("\r\n")
	return s.write([]byte(head.String()))
}

// respond sends a complete and correct response.
func (s *session) respond(r Response) error {
	s.site.noteStatus(s, r.Status)
	s.keep = s.request.keepAlive()
	header := r.Header.Clone()
	if header == nil {
		header = make(http.Header)
	}
	setDefault(header, "Date", time.Now().UTC().Format(http.TimeFormat))
	if bodyAllowed(r.Status) {
		setDefault(header, "Content-Type", "text/plain; charset=utf-8")
		setDefault(header, "Content-Length", strconv.Itoa(len(r.Body)))
	} else if r.Status < 200 {
		// No final response follows, so the connection cannot be used again.
		s.keep = false
	}
	if !s.keep {
		header.Set("Connection", "close")
	}
	var raw strings.Builder
	fmt.Fprintf(&raw, "HTTP/1.1 %03d %s\r\n", r.Status, reasonPhrase(r.Status))
	if err := header.Write(&raw); err != nil {
		return fmt.Errorf("writing a header: %w", err)
	}
	raw.WriteString("\r\n")
	if bodyAllowed(r.Status) && s.request.method != http.MethodHead {
		raw.Write(r.Body)
	}
	return s.write([]byte(raw.String()))
}

// wait waits for d, and fails as soon as the client leaves or the site closes. A client that
// pipelines a request in that time counts as gone.
func (s *session) wait(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	if err := s.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return fmt.Errorf("waiting: %w", err)
	}
	if _, err := s.reader.Peek(s.reader.Buffered() + 1); !errors.Is(err, os.ErrDeadlineExceeded) {
		return errClientLeft
	}
	return s.conn.SetReadDeadline(time.Time{})
}

// hang sends nothing more and returns when the client has left or the site closed.
func (s *session) hang() error {
	buf := make([]byte, 512)
	for {
		if _, err := s.reader.Read(buf); err != nil {
			return errClientLeft
		}
	}
}

// reset ends the connection with a RST.
func (s *session) reset() error {
	reset(s.raw)
	return errReset
}

// reset closes a transport so that its client gets a reset connection.
func reset(conn net.Conn) {
	switch conn := conn.(type) {
	case *net.TCPConn:
		_ = conn.SetLinger(0)
		_ = conn.Close()
	case *stampedConn:
		reset(conn.TCPConn)
	case *pipeEnd:
		conn.reset()
	default:
		_ = conn.Close()
	}
}

func setDefault(header http.Header, name, value string) {
	if _, ok := header[name]; !ok {
		header.Set(name, value)
	}
}

func bodyAllowed(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

func reasonPhrase(status int) string {
	if text := http.StatusText(status); text != "" {
		return text
	}
	return "Status " + strconv.Itoa(status)
}

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

// handshake starts TLS on the connection, or what the present behaviour does instead, and reports
// whether HTTP can follow. Failures are recorded.
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

// exchange reads one request and makes the present behaviour of its path answer. It reports whether
// the connection can be used for another.
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

// answer reads the request's body and makes b answer.
func (s *session) answer(b Behaviour, version int) error {
	if b.where == atHandshake && s.made != version {
		_ = s.reset()
		return errOtherHandshake
	}
	if s.request.expectsContinue() {
		if err := s.writeHead(http.StatusContinue); err != nil {
			return err
		}
	}
	if err := s.request.readBody(s.reader); err != nil {
		return fmt.Errorf("reading the request body: %w", err)
	}
	return b.serve(s)
}

// reject answers and records a head that cannot be read, unless it is just the end of the
// connection.
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
