package egress

import (
	"bytes"
	"crypto/tls"
	"io"
	"math"
	"net"
	"net/http"
	"strings"
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
// answered at once. Strict changes nothing else. TLS, HTTP/2 and WebSocket pass. [Unfollow] must be
// called for a connection that is hijacked.
//
// If c, or a connection within it that NetConn methods return, has a method Unread, this method is
// called with the answer that net/http itself gives to a request that it cannot read.
//
// If c is a TLS connection, or one is within it, the result has the method ConnectionState.
func Strict(c net.Conn) net.Conn {
	s := &strictConn{Conn: c, scan: scanner{step: (*scanner).start}}
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
		s.scan.step, s.hijacked = nil, true
	}
}

// strictConn is a connection whose requests are followed as they are read.
type strictConn struct {
	net.Conn
	scan     scanner
	begun    bool
	hijacked bool   // the server no longer does the writing
	ready    []byte // to be read next: more bytes than one Read could take
	kept     []byte // the beginning of an escape whose end has not come yet
}

func (c *strictConn) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		n, err := c.Conn.Read(p)
		if n > 0 && !c.begun {
			c.begun = true
			if what := c.stranger(p[0]); what != "" {
				_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request"+bareHead+"This is a proxy of plain HTTP; the client speaks "+what+".\n")
				return 0, io.EOF
			}
		}
		in := p[:n]
		if c.kept != nil {
			in = append(c.kept, in...)
		}
		pass, keep := c.scan.follow(in)
		if c.kept = keep; err != nil {
			pass, c.kept = append(pass, keep...), nil
		}
		if len(pass) <= len(p) && (len(pass) > 0 || n == 0) {
			return copy(p, pass), err
		}
		c.ready = pass
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
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

// scanner follows the requests in a stream. It need not notice requests that net/http refuses,
// because nothing is read after them.
type scanner struct {
	// step reads a part of p, which is not empty, and returns the rest. It is nil once the scanner has
	// stopped following.
	step func(s *scanner, p []byte) []byte

	part      int                               // of the request line: method, path, rest
	lone      bool                              // the last percent sign begins no escape
	short     bool                              // more bytes are needed to decide
	last      byte                              // the last byte of the request line so far
	name      [17]byte                          // the beginning of the field's name in lower case
	n         int                               // bytes in the name
	value     func(s *scanner, p []byte) []byte // reads the value of the field
	old       bool                              // HTTP/1.0
	sized     bool                              // Content-Length was there
	chunked   bool                              // Transfer-Encoding was there
	trailer   bool                              // the fields are trailers
	extension bool                              // the size of the chunk has ended
	left      uint64                            // bytes of the body, or of the chunk with its line break
}

// follow reads p. It returns the bytes to pass on, and those to keep until more arrive.
func (s *scanner) follow(p []byte) (pass, keep []byte) {
	var out []byte // the bytes to pass on before p, once they differ from the input
	rest := p
	for len(rest) > 0 && s.step != nil {
		rest = s.step(s, rest)
		switch {
		case s.short:
			s.short, keep = false, bytes.Clone(rest)
			p = p[:len(p)-len(rest)]
			rest = nil
		case s.lone:
			s.lone = false
			out = append(append(out, p[:len(p)-len(rest)]...), "25"...)
			p = rest
		}
	}
	if out == nil {
		return p, keep
	}
	return append(out, p...), keep
}

// start waits for a request line. net/http ignores or refuses line breaks before it.
func (s *scanner) start(p []byte) []byte {
	switch c := p[0]; {
	case c == '\r' || c == '\n':
		return p[1:]
	case c <= ' ' || c >= 0x7f:
		return s.end() // a TLS record in a tunnel, a frame of HTTP/2 or WebSocket
	}
	*s = scanner{step: (*scanner).requestLine}
	return p
}

// end stops following.
func (s *scanner) end() []byte {
	s.step = nil
	return nil
}

func (s *scanner) requestLine(p []byte) []byte {
	for i, c := range p {
		switch {
		case c == '\n':
			s.old, s.step = s.last == '0', (*scanner).fieldLine
			return p[i+1:]
		case c == ' ', c == '?' && s.part == 1:
			s.part++
		case c == '%' && s.part == 1:
			s.step = (*scanner).escape
			return p[i+1:]
		}
		if c != '\r' {
			s.last = c
		}
	}
	return nil
}

// escape reads what follows a percent sign.
func (s *scanner) escape(p []byte) []byte {
	const hex = "0123456789abcdefABCDEF"
	first := strings.IndexByte(hex, p[0]) >= 0
	if s.short = first && len(p) == 1; !s.short {
		s.lone = !first || strings.IndexByte(hex, p[1]) < 0
		s.step = (*scanner).requestLine
	}
	return p
}

var lineFeed = []byte{'\n'}

// fieldLine begins a line of the head, or of the trailers.
func (s *scanner) fieldLine(p []byte) []byte {
	switch p[0] {
	case '\r':
		return p[1:] // its line feed follows
	case '\n':
		s.headEnd()
		return p[1:]
	case ' ', '\t': // the previous value continues (RFC 9112 section 5.2)
		if s.value == nil {
			return s.end()
		}
		s.step = s.value
		return p[1:]
	default:
		s.n, s.step = 0, (*scanner).fieldName
		return p
	}
}

func (s *scanner) fieldName(p []byte) []byte {
	for i, c := range p {
		switch {
		case c == ':':
			return s.field(p, i)
		case c == '\n':
			return s.end() // net/http refuses it
		case s.n < len(s.name):
			s.name[s.n] = c | 0x20 // lower case; other bytes that this changes are refused in a name
		}
		s.n++
	}
	return nil
}

// field notes a field whose name ends with the colon p[colon].
func (s *scanner) field(p []byte, colon int) []byte {
	s.step, s.value = (*scanner).otherValue, (*scanner).otherValue
	if s.trailer || s.n > len(s.name) {
		return p[colon+1:]
	}
	switch string(s.name[:s.n]) {
	case "transfer-encoding":
		s.chunked = true
	case "content-length":
		s.sized, s.left = true, 0
		s.step, s.value = (*scanner).length, (*scanner).length
	}
	if s.chunked && (s.sized || s.old) {
		p[colon] = 0 // the line no longer has a valid name, even if it has another colon
		return s.end()
	}
	return p[colon+1:]
}

func (s *scanner) otherValue(p []byte) []byte {
	_, rest, ended := bytes.Cut(p, lineFeed)
	if ended {
		s.step = (*scanner).fieldLine
	}
	return rest
}

// length reads the value of Content-Length.
func (s *scanner) length(p []byte) []byte {
	for i, c := range p {
		switch {
		case c == '\n':
			s.step = (*scanner).fieldLine
			return p[i+1:]
		case s.left > math.MaxInt64/10-1:
			return s.end() // too large for net/http, or for a body that ever ends
		case '0' <= c && c <= '9':
			s.left = s.left*10 + uint64(c-'0')
		}
	}
	return nil
}

// headEnd handles the empty line after the fields.
func (s *scanner) headEnd() {
	switch {
	case s.trailer:
		s.step = (*scanner).start
	case s.chunked:
		s.step = (*scanner).chunkSize
	case s.left > 0:
		s.step = (*scanner).body
	default:
		s.step = (*scanner).start
	}
}

// body skips a body, or a chunk.
func (s *scanner) body(p []byte) []byte {
	n := min(uint64(len(p)), s.left)
	if s.left -= n; s.left == 0 {
		s.step = (*scanner).start
		if s.chunked {
			s.step, s.extension = (*scanner).chunkSize, false
		}
	}
	return p[n:]
}

func (s *scanner) chunkSize(p []byte) []byte {
	for i, c := range p {
		digit := strings.IndexByte("0123456789abcdef", c|0x20) // net/http refuses the rest
		switch {
		case c == '\n' && s.left == 0:
			s.trailer, s.value, s.step = true, nil, (*scanner).fieldLine
			return p[i+1:]
		case c == '\n':
			s.left, s.step = s.left+uint64(len("\r\n")), (*scanner).body
			return p[i+1:]
		case digit < 0:
			s.extension = true
		case !s.extension && s.left >= 1<<58:
			return s.end() // no chunk of this size ends
		case !s.extension:
			s.left = s.left<<4 | uint64(digit)
		}
	}
	return nil
}
