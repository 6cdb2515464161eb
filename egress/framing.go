package egress

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
)

// Strict wraps c for an HTTP/1 server, so that the server refuses a request with both
// Content-Length and Transfer-Encoding, or with Transfer-Encoding in HTTP/1.0: the length of such a
// request is ambiguous (RFC 9112 section 6.1). net/http resolves the ambiguity, and removes
// Content-Length, before any handler runs. So Strict looks for the fields as they arrive, and
// changes one byte of such a head to make it unreadable: net/http answers 400 and closes the
// connection, as for any head that it cannot read.
//
// A percent sign in a path that does not begin an escape is passed on as %25: browsers send it
// unescaped, and net/http refuses it. A client that speaks SOCKS or TLS to a port of plain HTTP is
// answered at once. A line of more than 64 KiB is made unreadable. Strict changes nothing else.
// TLS, HTTP/2 and WebSocket pass. [Unfollow] must be called for a connection that is hijacked.
//
// If c, or a connection within it that NetConn methods return, has a method Unread, this method is
// called with the answer that net/http itself gives to a request that it cannot read.
//
// If c is a TLS connection, or one is within it, the result has the method ConnectionState.
func Strict(c net.Conn) net.Conn {
	s := &strictConn{Conn: c}
	if secure, ok := find[*tls.Conn](c); ok {
		return &strictTLSConn{strictConn: s, secure: secure}
	}
	return s
}

// Unfollow has the signature of [http.Server]'s ConnState. Once a connection from [Strict] is
// hijacked, it makes the connection pass everything unchanged, because the bytes that follow need
// not be HTTP.
func Unfollow(c net.Conn, state http.ConnState) {
	if state != http.StateHijacked {
		return
	}
	if s := strictOf(c); s != nil {
		s.ready, s.hijacked = append(s.ready, s.scan.stop()...), true
	}
}

// strictConn is a connection whose requests are followed as they are read.
type strictConn struct {
	net.Conn
	scan     scanner
	begun    bool
	hijacked bool   // the server no longer does the writing
	ready    []byte // to be read next
}

// wholeRead is the least that is read once a line has begun. net/http looks at the first 14 bytes
// of a connection, which may begin HTTP/2. If the rest of a head were still in the socket when
// net/http answers the first line and closes, the system would reset the connection, and the client
// could lose the answer.
const wholeRead = 4 << 10

func (c *strictConn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		in := p
		if c.scan.kept != nil && len(p) < wholeRead {
			in = make([]byte, wholeRead)
		}
		n, err := c.Conn.Read(in)
		if n > 0 && !c.begun {
			c.begun = true
			if what := c.stranger(in[0]); what != "" {
				_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request"+bareHead+"This proxy speaks plain HTTP; the client speaks "+what+".\n")
				return 0, io.EOF
			}
		}
		c.ready = c.scan.follow(in[:n])
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) { // after a timeout the server may read on
			c.ready = append(c.ready, c.scan.stop()...)
		}
		if len(c.ready) == 0 && (err != nil || n == 0) {
			return 0, err
		}
	}
	n := copy(p, c.ready)
	if c.ready = c.ready[n:]; len(c.ready) == 0 {
		c.ready = nil
	}
	return n, nil
}

// stranger names the protocol of a client without TLS if its first byte shows that it is not HTTP.
func (c *strictConn) stranger(first byte) string {
	if _, secure := find[*tls.Conn](c.Conn); secure {
		return ""
	}
	return map[byte]string{4: "SOCKS", 5: "SOCKS", recordHandshake: "TLS"}[first]
}

// bareHead is the header that net/http writes, between status and text, when it answers a request
// that it cannot read. All other answers of a server have a Date.
const bareHead = "\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n"

func (c *strictConn) Write(p []byte) (int, error) {
	end := bytes.IndexByte(p[:min(len(p), 200)], '\r')
	if end > 0 && !c.hijacked && bytes.HasPrefix(p[end:], []byte(bareHead)) {
		tellUnread(c.Conn, string(bytes.TrimSpace(p[end+len(bareHead):])))
	}
	return c.Conn.Write(p)
}

// tellUnread calls the method Unread of c, or of a connection within c.
func tellUnread(c any, answer string) {
	if witness, ok := find[interface{ Unread(answer string) }](c); ok {
		witness.Unread(answer)
	}
}

// NetConn returns the connection within; crypto/tls has the same method.
func (c *strictConn) NetConn() net.Conn { return c.Conn }

func (c *strictConn) CloseWrite() error { return closeWrite(c.Conn) }

// LocalAddr implements [net.Conn]. Its result leads back to this connection, however Caddy wraps
// it. The inner connection is asked for its address only when it is needed, because with the PROXY
// protocol the call may have to wait.
func (c *strictConn) LocalAddr() net.Addr { return strictAddr{c} }

type strictAddr struct{ conn *strictConn }

func (a strictAddr) Network() string { return a.conn.Conn.LocalAddr().Network() }
func (a strictAddr) String() string  { return a.conn.Conn.LocalAddr().String() }

// strictOf returns the connection from [Strict] that c is or wraps, or nil.
func strictOf(c net.Conn) *strictConn {
	if a, ok := c.LocalAddr().(strictAddr); ok {
		return a.conn
	}
	return nil
}

// strictTLSConn is a strictConn over TLS. net/http and Caddy ask for its state.
type strictTLSConn struct {
	*strictConn
	secure *tls.Conn
}

// ConnectionState is like [tls.Conn.ConnectionState].
func (c *strictTLSConn) ConnectionState() tls.ConnectionState { return c.secure.ConnectionState() }

// maxLine bounds the lines of a request. A longer one is made unreadable.
const maxLine = 64 << 10

// scanner follows the requests in a stream, line by line. It need not notice requests that net/http
// refuses, because nothing is read after them.
type scanner struct {
	next    part
	kept    []byte // the beginning of a line whose end has not come yet
	left    uint64 // bytes of a body, or of a chunk with its line break, that come before the next line
	old     bool   // HTTP/1.0
	sized   bool   // Content-Length was there
	length  uint64 // its value
	goesOn  bool   // and may continue on the next line
	chunked bool   // Transfer-Encoding was there
}

// part is what a scanner takes the next line for.
type part uint8

const (
	requestLine part = iota
	fieldLine
	chunkLine
	trailerLine
	unfollowed // the scanner has stopped following
)

// follow reads p, and returns the bytes to pass on. It may change p.
func (s *scanner) follow(p []byte) []byte {
	if s.kept != nil {
		s.kept = append(s.kept, p...)
		p = s.kept
	}
	for at := 0; at < len(p) && s.next != unfollowed; {
		if s.left > 0 {
			n := min(s.left, uint64(len(p)-at))
			s.left -= n
			at += int(n)
			continue
		}
		if c := p[at]; s.next == requestLine && (c < ' ' && c != '\r' && c != '\n' || c == ' ' || c >= 0x7f) {
			s.next = unfollowed // a TLS record in a tunnel, a frame of HTTP/2 or WebSocket
			break
		}
		end := bytes.IndexByte(p[at:], '\n') + 1
		switch {
		case end > 0:
			line := s.take(p[at : at+end])
			if len(line) > end {
				p = slices.Concat(p[:at], line, p[at+end:])
			}
			at += len(line)
		case len(p)-at > maxLine:
			p[at] = 0
			s.next = unfollowed
		default:
			if s.kept == nil || at > 0 {
				s.kept = bytes.Clone(p[at:])
			}
			return p[:at]
		}
	}
	s.kept = nil
	return p
}

// stop ends the following, and returns the bytes that were kept.
func (s *scanner) stop() []byte {
	kept := s.kept
	s.kept, s.next = nil, unfollowed
	return kept
}

// take reads a line, and returns it as it is to be passed on.
func (s *scanner) take(line []byte) []byte {
	text := bytes.TrimRight(line, "\r\n")
	switch s.next {
	case requestLine:
		if len(text) > 0 { // net/http ignores or refuses an empty one
			*s = scanner{next: fieldLine, kept: s.kept, old: text[len(text)-1] == '0'}
			return escapeLone(line)
		}
	case fieldLine, trailerLine:
		switch {
		case len(text) == 0 && s.next == fieldLine && s.chunked:
			s.next = chunkLine
		case len(text) == 0:
			s.next, s.left = requestLine, s.length
		case s.next == fieldLine:
			s.field(line)
		}
	case chunkLine:
		s.chunk(line)
	case unfollowed: // it takes none
	}
	return line
}

var lonePercent = regexp.MustCompile(`%([0-9A-Fa-f]{2})?`)

// escapeLone writes %25 for each percent sign in the path of a request line that begins no escape.
func escapeLone(line []byte) []byte {
	begin := bytes.IndexByte(line, ' ') + 1
	length := bytes.IndexAny(line[begin:], " ?")
	if begin == 0 || length < 0 || bytes.IndexByte(line[begin:begin+length], '%') < 0 {
		return line
	}
	path := lonePercent.ReplaceAllFunc(line[begin:begin+length], func(found []byte) []byte {
		if len(found) == 1 {
			return []byte("%25")
		}
		return found
	})
	return slices.Concat(line[:begin], path, line[begin+length:])
}

// field notes a field that says how long the body is.
func (s *scanner) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte{':'})
	switch continued := line[0] == ' ' || line[0] == '\t'; {
	case continued && s.goesOn: // RFC 9112 section 5.2
		value = line
	case continued:
		return
	case bytes.EqualFold(name, []byte("Content-Length")):
		s.sized, s.goesOn, s.length = true, true, 0
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		s.chunked, s.goesOn = true, false
	default:
		s.goesOn = false
		return
	}
	if s.chunked && (s.sized || s.old) {
		line[len(name)] = 0 // the line no longer has a valid name, even if it has another colon
		s.next = unfollowed
	}
	for _, c := range value {
		if '0' <= c && c <= '9' && s.goesOn {
			// A greater length than this is too large for net/http, or for a body that ever ends.
			s.length = min(s.length*10+uint64(c-'0'), math.MaxInt64/10)
		}
	}
}

// chunk reads the size of a chunk.
func (s *scanner) chunk(line []byte) {
	text, _, _ := bytes.Cut(line, []byte{';'})
	size, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 16, 63)
	switch {
	case err != nil: // net/http refuses it, or the chunk never ends
		s.next = unfollowed
	case size == 0:
		s.next, s.length = trailerLine, 0
	default:
		s.left = size + uint64(len("\r\n"))
	}
}
