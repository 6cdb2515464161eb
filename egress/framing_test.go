package egress

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"
)

// pieces is a connection that returns a stream in reads of the given sizes, and repeats the sizes.
type pieces struct {
	net.Conn // nil, because the tests only read
	rest     []byte
	sizes    []byte
	reads    int
	written  []byte
}

func (p *pieces) Write(b []byte) (int, error) {
	p.written = append(p.written, b...)
	return len(b), nil
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := len(p.rest)
	if len(p.sizes) > 0 {
		n = 1 + int(p.sizes[p.reads%len(p.sizes)])
		p.reads++
	}
	n = copy(b, p.rest[:min(n, len(p.rest))])
	p.rest = p.rest[n:]
	return n, nil
}

func (p *pieces) LocalAddr() net.Addr             { return textAddr("pieces") }
func (p *pieces) SetReadDeadline(time.Time) error { return nil }

// counted counts the bytes that are read from a stream.
type counted struct {
	io.Reader
	n int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += n
	return n, err
}

// heard is one request as a server reads it.
type heard struct {
	method, uri, proto, body string
	header, trailer          http.Header
}

// hear reads requests like net/http's server, up to the first one that it would reject; whole
// reports that there was none. all[doubtful] is the first request with an ambiguous length, if any.
func hear(conn io.Reader, stream []byte) (all []heard, doubtful int, whole bool) {
	source := &counted{Reader: conn}
	br := bufio.NewReader(source)
	doubtful = -1
	for last := ""; ; {
		if last == http.MethodPost { // RFC 9112 section 2.2, and net/http's conn.readRequest
			peek, _ := br.Peek(4)
			_, _ = br.Discard(len(peek) - len(bytes.TrimLeft(peek, "\r\n")))
		}
		begin := source.n - br.Buffered()
		r, err := http.ReadRequest(br)
		if err != nil || r.ProtoMajor != 1 {
			whole = errors.Is(err, io.EOF)
			break
		}
		if doubtful < 0 && isDoubtful(stream[begin:source.n-br.Buffered()], r.ProtoMinor) {
			doubtful = len(all)
		}
		last = r.Method
		body, err := io.ReadAll(r.Body)
		all = append(all, heard{r.Method, r.RequestURI, r.Proto, string(body), r.Header, r.Trailer})
		if err != nil {
			break
		}
	}
	if doubtful < 0 {
		doubtful = len(all)
	}
	return all, doubtful, whole
}

// isDoubtful reports whether a head that net/http has accepted has an ambiguous length. It shares
// no code with [Strict].
func isDoubtful(head []byte, minor int) bool {
	r := textproto.NewReader(bufio.NewReader(bytes.NewReader(head)))
	_, _ = r.ReadLine()
	h, _ := r.ReadMIMEHeader()
	_, sized := h["Content-Length"]
	_, coded := h["Transfer-Encoding"]
	return coded && (sized || minor == 0)
}

var streams = []struct {
	name, bytes string
	want        int // number of requests that are read
	spoilt      bool
}{
	{"one", "GET / HTTP/1.1\r\nHost: h\r\n\r\n", 1, false},
	{"bare line feeds", "GET / HTTP/1.1\nHost: h\n\nGET /2 HTTP/1.1\nHost: h\n\n", 2, false},
	{"two with bodies", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbodyPUT /2 HTTP/1.1\r\nHost: h\r\ncontent-length:0003 \r\n\r\n\r\n\rGET /3 HTTP/1.1\r\nHost: h\r\n\r\n", 3, false},
	{"line breaks behind POST", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nb\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 2, false},
	{"chunks", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n\r\n5;x=\"y\"\r\nhello\r\n00A \r\n0123456789\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 2, false},
	{"trailers", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: A\r\n\r\n1\r\nx\r\n0\r\nA: b\r\nContent-Length: 3\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", 2, false},
	{"a body that looks like a head", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 59\r\n\r\nGET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 2, false},
	{"chunks that look like a head", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3B\r\nGET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 2, false},
	{"a second chunk that looks like a head", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n3D\r\n\r\nGET / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 2, false},
	{"a value that goes on", "POST / HTTP/1.1\r\nHost: h\r\nX: a\r\n Transfer-Encoding: chunked\r\n\t\r\nContent-Length:\r\n 2\r\n\r\nxyGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 2, false},
	{"a length twice", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\nxyGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 2, false},
	{"names that only begin so", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding-X: chunked\r\nContent-Lengt: 9\r\nContent-Length: 1\r\n\r\nxGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 2, false},
	{"a path with both", "GET /Content-Length:1\u00a0Transfer-Encoding: HTTP/1.1\r\nHost: h\r\n\r\n", 1, false},

	{"length, then coding", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 0, true},
	{"coding, then length", "POST / HTTP/1.1\r\nHost: h\r\nTRANSFER-ENCODING: chunked\r\nCONTENT-LENGTH: 4\r\n\r\n0\r\n\r\n", 0, true},
	{"fields between them, with colons", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nX: http://a:b\r\nTransfer-Encoding: x:chunked\r\n\r\n", 0, true},
	{"both, behind a request with a body", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxyPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 1, true},
	{"both, behind chunks with a trailer", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\nPOST /2 HTTP/1.1\nHost: h\nTransfer-Encoding: chunked\nContent-Length: 4\n\n", 1, true},
	{"both, behind a length twice", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 12\r\nContent-Length: 12\r\n\r\ntwelve octetPOST /second HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", 1, true},
	{"both, behind two chunks", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n2\r\nyz\r\n0\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n", 1, true},
	{"coding in HTTP/1.0", "POST / HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n", 0, true},
	{"both in HTTP/1.0", "POST / HTTP/1.0\r\nContent-Length: 5\r\nTransfer-Encoding: identity\r\n\r\nabcde", 0, true},

	{"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\nContent-Length: 1\nTransfer-Encoding: x\n\n", 0, false},
}

// TestStrict checks RFC 9112 section 6.1 in streams read at once and byte by byte.
func TestStrict(t *testing.T) {
	t.Parallel()
	for _, tt := range streams {
		for _, sizes := range []string{"", "\x00", "\x00\x06\x02"} {
			read := checkStrict(t, []byte(tt.bytes), []byte(sizes))
			if len(read) != tt.want {
				t.Errorf("%s: read %d requests, want %d: %+v", tt.name, len(read), tt.want, read)
			}
			through, _ := io.ReadAll(Strict(&pieces{rest: []byte(tt.bytes), sizes: []byte(sizes)}))
			if spoilt := string(through) != tt.bytes; spoilt != tt.spoilt {
				t.Errorf("%s: got %q, want changed %t", tt.name, through, tt.spoilt)
			}
		}
	}
}

// checkStrict checks that Strict does not change the requests up to the first with an ambiguous
// length, and that bytes that are no request pass unchanged.
func checkStrict(t *testing.T, stream, sizes []byte) []heard {
	t.Helper()
	if len(stream) > 0 && strings.IndexByte("\x04\x05\x16", stream[0]) >= 0 {
		conn := &pieces{rest: stream, sizes: sizes}
		if through, err := io.ReadAll(Strict(conn)); len(through) > 0 || err != nil || !bytes.HasPrefix(conn.written, []byte("HTTP/1.1 400 ")) {
			t.Errorf("a client that is not permitted sent %q: read %q, error %v, answer %q", stream, through, err, conn.written)
		}
		return nil
	}
	if bytes.IndexByte(stream, '%') >= 0 {
		return checkPercents(t, stream, sizes)
	}
	plain, doubtful, whole := hear(&pieces{rest: stream, sizes: sizes}, stream)
	read, _, _ := hear(Strict(&pieces{rest: bytes.Clone(stream), sizes: sizes}), stream)
	if want := plain[:doubtful]; len(read) != len(want) || len(want) > 0 && !reflect.DeepEqual(read, want) {
		t.Errorf("stream %q in reads of %v:\nread   %+v\nwithout %+v\ndoubtful from %d", stream, sizes, read, plain, doubtful)
	}
	through, err := io.ReadAll(Strict(&pieces{rest: bytes.Clone(stream), sizes: sizes}))
	changed := changes(through, stream)
	if err != nil || len(through) != len(stream) || changed > 1 || changed > 0 && whole && doubtful == len(plain) {
		t.Errorf("stream %q in reads of %v: got %q, error %v", stream, sizes, through, err)
	}
	return read
}

// checkPercents does the same for a stream with percent signs. It compares the stream with one that
// has tildes in their place, which net/http accepts at least wherever it accepts an escape.
func checkPercents(t *testing.T, stream, sizes []byte) []heard {
	t.Helper()
	tildes := bytes.ReplaceAll(stream, []byte{'%'}, []byte{'~'})
	plain, doubtful, _ := hear(&pieces{rest: tildes, sizes: sizes}, tildes)
	through, err := io.ReadAll(Strict(&pieces{rest: bytes.Clone(stream), sizes: sizes}))
	read, _, _ := hear(bytes.NewReader(through), through)
	if err != nil {
		t.Errorf("stream %q in reads of %v: %v", stream, sizes, err)
	}
	for i, r := range read {
		if i >= doubtful || r.body != "" && strings.ReplaceAll(r.body, "%", "~") != plain[i].body || !samePath(r.uri, plain[i].uri) {
			t.Fatalf("stream %q in reads of %v: request %d is %+v\nwith tildes %+v\ndoubtful from %d", stream, sizes, i, r, plain, doubtful)
		}
	}
	return read
}

// samePath reports whether uri is tildes with escapes in place of its tildes or, in the path, with
// %25 in place of tildes without two hex digits.
func samePath(uri, tildes string) bool {
	path := true
	for ; uri != "" && tildes != ""; uri, tildes = uri[1:], tildes[1:] {
		path = path && tildes[0] != '?'
		if tildes[0] == '~' && uri[0] == '%' {
			_, err := hex.DecodeString(tildes[1:min(3, len(tildes))])
			if whole := err == nil && len(tildes) >= 3; path && !whole {
				if !strings.HasPrefix(uri, "%25") {
					return false
				}
				uri = uri[2:]
			}
		} else if uri[0] != tildes[0] {
			return false
		}
	}
	return uri == tildes
}

func changes(a, b []byte) (n int) {
	for i := range a {
		if a[i] != b[i] {
			n++
		}
	}
	return n
}

// FuzzStrict checks checkStrict for any stream, in reads of any sizes.
func FuzzStrict(f *testing.F) {
	for _, s := range streams {
		f.Add([]byte(s.bytes), []byte{})
		f.Add([]byte(s.bytes), []byte{0, 5, 17})
	}
	f.Add([]byte{0, 3, 8, 9, 12, 2, 3, 8, 5}, []byte{})
	f.Fuzz(func(t *testing.T, stream, sizes []byte) {
		checkStrict(t, stream, sizes)
		checkStrict(t, spell(stream), sizes)
	})
}

// parts are valid and invalid pieces of requests.
var parts = []string{
	"POST / HTTP/1.1\r\n", "GET /?Content-Length:1 HTTP/1.1\n", "PUT / HTTP/1.0\r\n", "Host: h\r\n", "Connection: keep-alive\r\n",
	"Content-Length: 3\r\n", "content-length:0\n", "Content-Length:\r\n\t03 \r\n", "Transfer-Encoding: chunked\r\n", "\r\n", "\n", "abc",
	"3\r\nabc\r\n", "1;a=b\r\nx\r\n", "0\r\n", "Trailer: A\r\n", "A: b\r\n", " Transfer-Encoding: chunked\r\n", "\r", ":", "0", "5",
	"X: \xff\r\n", "Content-Length : 3\r\n", "Transfer-Encodin: chunked\r\n", "TRANSFER-ENCODING:chunked\n", "\x00", "\x16\x03\x01", "A\r\n",
	"GET /50%-off HTTP/1.1\r\n", "POST /%4?%=%zz HTTP/1.1\r\n", "GET /%2f%", " HTTP/1.1\r\n", "%",
}

// spell makes a stream of parts, one for each byte. Random bytes rarely form a request that
// net/http accepts.
func spell(choice []byte) []byte {
	var stream []byte
	for _, c := range choice[:min(len(choice), 100)] {
		stream = append(stream, parts[int(c)%len(parts)]...)
	}
	return stream
}

// TestStrictAtRandom checks checkStrict for streams of parts.
func TestStrictAtRandom(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	read := 0
	for range 20_000 {
		choice, sizes := make([]byte, random.IntN(24)), make([]byte, random.IntN(4))
		for i := range choice {
			choice[i] = byte(random.Uint32())
		}
		for i := range sizes {
			sizes[i] = byte(random.Uint32() >> 26)
		}
		read += len(checkStrict(t, append(spell([]byte{0}), spell(choice)...), sizes))
	}
	t.Logf("read %d requests", read)
}

// TestStrictServer checks that a net/http server rejects the requests that Strict finds: it answers
// 400 and closes, and no handler runs.
func TestStrictServer(t *testing.T) {
	t.Parallel()
	var served []string
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served = append(served, r.RequestURI)
		_, _ = io.Copy(w, r.Body)
	}))
	s.Listener = strictListener{s.Listener}
	s.Config.ConnState = Unfollow
	s.Start()
	defer s.Close()
	c, br := rawConn(t, s)
	io.WriteString(c, "POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nxy"+
		"POST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
		"GET /3 HTTP/1.1\r\nHost: h\r\n\r\n")
	for _, want := range []int{200, 400} {
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != want {
			t.Fatalf("response %+v, error %v, want status %d", resp, err, want)
		}
		readAll(t, resp)
	}
	if n, err := br.Read(make([]byte, 1)); err == nil {
		t.Errorf("read %d bytes after the 400, want the end", n)
	}
	if strings.Join(served, " ") != "/1" {
		t.Errorf("the handler served %q, want only /1", served)
	}
}

type strictListener struct{ net.Listener }

func (l strictListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Strict(c), nil
}

// TestStrictLetsHijackedBe checks that the bytes after a hijack pass unchanged, whatever they look
// like.
func TestStrictLetsHijackedBe(t *testing.T) {
	t.Parallel()
	got := make(chan string, 1)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := hijack(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_ = writeHead(conn, "200 OK", nil)
		all, err := io.ReadAll(conn)
		if err != nil && !errors.Is(err, io.EOF) {
			t.Error(err)
		}
		got <- string(all)
	}))
	s.Listener = strictListener{s.Listener}
	s.Config.ConnState, s.Config.ConnContext = Unfollow, WithConn
	s.Start()
	defer s.Close()
	c, br := rawConn(t, s)
	io.WriteString(c, "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n")
	if err := skipHead(br); err != nil {
		t.Fatal(err)
	}
	const said = "A line\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"
	io.WriteString(c, said)
	_ = c.(*net.TCPConn).CloseWrite()
	if s := <-got; s != said {
		t.Errorf("the hijacker read %q, want %q", s, said)
	}
}

// BenchmarkStrict measures one request.
func BenchmarkStrict(b *testing.B) {
	const request = "GET http://www.example.com/some/path/to/a/page.html?with=a&query=1 HTTP/1.1\r\nHost: www.example.com\r\n" +
		"User-Agent: ExampleBot/1.0 (+https://example.com/bot)\r\nAccept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8\r\n" +
		"Accept-Encoding: gzip, deflate\r\nAccept-Language: en\r\nProxy-Connection: keep-alive\r\nCookie: session=0123456789abcdef\r\n\r\n"
	var s scanner
	p := []byte(request)
	b.SetBytes(int64(len(p)))
	for b.Loop() {
		s.follow(p)
	}
}

// addrless is a connection with an unknown address, as with the PROXY protocol.
type addrless struct{ net.Conn }

func (addrless) LocalAddr() net.Addr { panic("the address was asked for") }

// A server uses Strict in its accept loop, where no connection may delay the next one.
func TestStrictAsksForNoAddress(t *testing.T) {
	t.Parallel()
	c := Strict(addrless{})
	ctx := WithConn(t.Context(), struct{ net.Conn }{c})
	Unfollow(c, http.StateNew)
	if noted := notedConn(httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil), nil); noted != c {
		t.Errorf("the context has a %T, want the connection", noted)
	}
}

// TestLonePercent checks that a percent sign in a path that begins no escape becomes %25, however
// the line arrives, and that nothing else changes.
func TestLonePercent(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]string{
		"/sale-50%-off":               "/sale-50%25-off",
		"http://h/100%":               "http://h/100%25",
		"/%":                          "/%25",
		"/%%41%4%zz%2f%E4":            "/%25%41%254%25zz%2f%E4",
		"/a%2/b%20c":                  "/a%252/b%20c",
		"/a?b=50%&c=%zz":              "/a?b=50%&c=%zz",
		"/a%?b=%":                     "/a%25?b=%",
		"/a%25":                       "/a%25",
		"/" + strings.Repeat("%", 50): "/" + strings.Repeat("%25", 50),
	} {
		const rest = " HTTP/1.1\r\nHost: h\r\nX: 5%-\r\nContent-Length: 3\r\n\r\n5%-"
		stream := "GET " + sent + rest + "GET " + sent + rest
		for _, sizes := range []string{"", "\x00", "\x01", "\x00\x06\x02"} {
			got, err := io.ReadAll(Strict(&pieces{rest: []byte(stream), sizes: []byte(sizes)}))
			if whole := "GET " + want + rest + "GET " + want + rest; err != nil || string(got) != whole {
				t.Errorf("%q in reads of %v: got %q, error %v", sent, []byte(sizes), got, err)
			}
		}
	}
}

// unreadConn records the answers to requests that a server could not read.
type unreadConn struct {
	net.Conn
	told chan string
}

func (c *unreadConn) Unread(answer string) { c.told <- answer }

type unreadListener struct {
	net.Listener
	told chan string
}

func (l unreadListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Strict(&unreadConn{c, l.told}), nil
}

// TestUnread checks that a request that cannot be read is answered and reported at once, and that a
// handler's answer is not reported.
func TestUnread(t *testing.T) {
	t.Parallel()
	told := make(chan string, 10)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hijack" { // an origin's answer in a tunnel
			c, _, _ := http.NewResponseController(w).Hijack()
			io.WriteString(c, "HTTP/1.1 400 Bad Request"+bareHead+"400 Bad Request")
			c.Close()
			return
		}
		http.Error(w, "bad", http.StatusBadRequest)
	}))
	s.Listener = unreadListener{s.Listener, told}
	s.Config.ConnState, s.Config.MaxHeaderBytes = Unfollow, 1<<10
	s.Start()
	defer s.Close()
	for sent, want := range map[string]string{
		"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n": "",
		"GET /hijack HTTP/1.1\r\nHost: h\r\n\r\n":                "",
		"GET / HTTP/1.1\r\n\r\n":                                 "400 Bad Request: missing required Host header",
		"GET / HTTP/1.1\r\nHost: h\r\nA B: c\r\n\r\n":            "400 Bad Request: invalid header name",
		"GET / HTTP/3.1\r\nHost: h\r\n\r\n":                      "505 HTTP Version Not Supported: unsupported protocol version",
		"GET /" + strings.Repeat("a", maxLine):                   "431 Request Header Fields Too Large",
		"\x05\x01\x00":                                           "This proxy speaks plain HTTP; the client speaks SOCKS.",
		"\x04\x01\x00\x50":                                       "This proxy speaks plain HTTP; the client speaks SOCKS.",
		"\x16\x03\x01\x02\x00":                                   "This proxy speaks plain HTTP; the client speaks TLS.",
	} {
		c, br := rawConn(t, s)
		io.WriteString(c, sent)
		if line, err := br.ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 ") {
			t.Errorf("%.40q: the answer is %q, error %v", sent, line, err)
		}
		if want == "" {
			_, _ = io.ReadAll(br)
			if len(told) > 0 {
				t.Errorf("%.40q: reported %q, want nothing", sent, <-told)
			}
			continue
		}
		if got := <-told; got != want {
			t.Errorf("%.40q: reported %q, want %q", sent, got, want)
		}
	}
}

// TestStrictKeepsTheBeginningOfALine checks that no bytes of a partial line are lost when a server
// interrupts its read at the end of a handler, or when a handler hijacks the connection.
func TestStrictKeepsTheBeginningOfALine(t *testing.T) {
	t.Parallel()
	server, client := net.Pipe()
	defer client.Close()
	c := Strict(server)
	interrupted := func(sent string) {
		t.Helper()
		if err := c.SetReadDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = io.WriteString(client, sent)
			_ = c.SetReadDeadline(time.Unix(1, 0))
		}()
		if n, err := c.Read(make([]byte, 100)); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: read %d bytes, error %v, want a timeout", sent, n, err)
		}
		if err := c.SetReadDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("read %q, error %v, want %q", got, err, want)
		}
	}
	interrupted("GET /50")
	interrupted("%")
	go func() { _, _ = io.WriteString(client, "-off HTTP/1.1\r\n\r\n") }()
	expect("GET /50%25-off HTTP/1.1\r\n\r\n")
	interrupted("an early byt")
	Unfollow(c, http.StateHijacked)
	expect("an early byt")
	go func() { _, _ = io.WriteString(client, "e") }()
	expect("e")
}

// TestStrictRefusesALongLine checks that the kept part of a line is bounded. A request line ends
// with its version, so it must be known as a whole.
func TestStrictRefusesALongLine(t *testing.T) {
	t.Parallel()
	for _, stream := range []string{
		"GET /" + strings.Repeat("a", 2*maxLine) + " HTTP/1.1\r\nHost: h\r\n\r\n",
		"GET / HTTP/1.1\r\nX: " + strings.Repeat("a", 2*maxLine) + "\r\nHost: h\r\n\r\n",
	} {
		read, _, _ := hear(Strict(&pieces{rest: []byte(stream), sizes: []byte{255}}), []byte(stream))
		if len(read) > 0 {
			t.Errorf("%.30q: a request was read", stream)
		}
	}
}

// TestStrictLeavesNothingInTheSocket checks that a server that first peeks at a few bytes has read
// the whole head with the first line.
func TestStrictLeavesNothingInTheSocket(t *testing.T) {
	t.Parallel()
	const stream = "GET http://www.example.com/page HTTP/1.1\r\nHost: www.example.com\r\n\r\n"
	conn := &pieces{rest: []byte(stream)}
	c := Strict(conn)
	for _, size := range []int{14, 24, 4096} {
		if _, err := c.Read(make([]byte, size)); err != nil {
			t.Fatal(err)
		}
	}
	if len(conn.rest) > 0 {
		t.Errorf("the socket still has %q", conn.rest)
	}
}
