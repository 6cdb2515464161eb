package h1

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// pieces is a connection that returns a stream in reads of the given sizes, in turn.
type pieces struct {
	net.Conn // nil, because the tests only read
	rest     []byte
	sizes    []byte
	reads    int
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

// heads are responses, and how Mend changes them; "" for not at all.
var heads = []struct{ name, sent, want string }{
	{"a valid head", "HTTP/1.1 200 OK\r\nA: b : c\r\nContent-Length: 5\r\n\r\nD : e", ""},
	{"bare line feeds", "HTTP/1.1 200 OK\nA: b\n\nC : d", ""},
	{"RFC 9112 5.1: a blank before the colon", "HTTP/1.1 302 Found\r\nLocation : /r\r\nSet-Cookie \t : a=1\r\nA\t:b\r\n\r\nC : d", "HTTP/1.1 302 Found\r\nLocation: /r\r\nSet-Cookie: a=1\r\nA:b\r\n\r\nC : d"},
	{"the fields of the length", "HTTP/1.1 200 OK\r\nContent-Length : 1\r\n\r\nx", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"},
	{"a blank within a name", "HTTP/1.1 200 OK\r\nX A: b\r\n\r\n", "HTTP/1.1 200 OK\r\nX A: b\r\n\r\n"},
	{"a blank within a name and before the colon", "HTTP/1.1 200 OK\r\nX\tA : b\r\n\r\n", "HTTP/1.1 200 OK\r\nX A: b\r\n\r\n"},
	{"blanks within a decisive name", "HTTP/1.1 302 Found\r\nLoc a\ttion : /r\r\n\r\n", "HTTP/1.1 302 Found\r\nLoc\ta\ttion: /r\r\n\r\n"},
	{"RFC 9112 5.2: a field that goes on", "HTTP/1.1 200 OK\r\nA: b\r\n c: d\r\n\te\r\nF: g\r\n\r\n", "HTTP/1.1 200 OK\r\nA: b c: d e\r\nF: g\r\n\r\n"},
	{"behind a status line nothing goes on", "HTTP/1.1 200 OK\r\n A: b\r\n\r\n", "HTTP/1.1 200 OK\r\n A: b\r\n\r\n"},
	{"RFC 9112 6.3: identity", "HTTP/1.1 200 OK\r\nTransfer-Encoding: Identity \r\nA: b\r\n\r\nx", "HTTP/1.1 200 OK\r\nA: b\r\n\r\nx"},
	{"identity overrides a length", "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding : identity\r\nContent-Length: 2\r\n\r\nxyz", "HTTP/1.1 200 OK\r\n\r\nxyz"},
	{"identity on its own line", "HTTP/1.1 200 OK\r\nTransfer-Encoding:\r\n identity\r\n\r\nx", "HTTP/1.1 200 OK\r\n\r\nx"},
	{"with another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
	{"chunked and a length", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n", ""},
	{"interim responses", "HTTP/1.1 103 Early Hints\r\nLink : </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA : b\r\n\r\nC : d", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\n\r\nC : d"},
	{"101 is final", "HTTP/1.1 101 Switching Protocols\r\nA : b\r\n\r\nHTTP/1.1 200 OK\r\nC : d\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\nA: b\r\n\r\nHTTP/1.1 200 OK\r\nC : d\r\n\r\n"},
	{"a head that breaks off", "HTTP/1.1 200 OK\r\nA : b\r\nC", ""},
	{"a status line alone", "HTTP/1.1 200 OK", ""},
	{"an interim response alone", "HTTP/1.1 103 Early Hints\r\nA : b\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"},
	{"no HTTP", "SSH-2.0-x\r\nA : b\r\n\r\n", ""},
	{"nothing", "", ""},
	{"a head without end", "HTTP/1.1 200 OK\r\n" + strings.Repeat("A : b\r\n", maxHead/7+1), ""},
}

func TestMendedHeads(t *testing.T) {
	t.Parallel()
	for _, tt := range heads {
		want := tt.want
		if want == "" {
			want = tt.sent
		}
		for _, sizes := range []string{"", "\xff\x7f", "\x00", "\x00\x06\x02"} {
			if len(tt.sent) > maxHead && sizes != "" {
				continue
			}
			got, err := io.ReadAll(Mend(&pieces{rest: []byte(tt.sent), sizes: []byte(sizes)}))
			if err != nil || string(got) != want {
				t.Errorf("%s, in reads of %v: got %.200q, error %v", tt.name, []byte(sizes), got, err)
			}
		}
	}
}

// TestDecisiveNames checks that a blank within a name makes an answer unreadable if the field
// decides how the message is framed or read, or has a preference.
func TestDecisiveNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"Content-Encoding", "Content-Length", "Content-Range", "Content-Signal", "Content-Type", "Content-Usage", "Location", "Retry-After",
		"Set-Cookie", "TDM-Policy", "TDM-Reservation", "Transfer-Encoding", "X-Robots-Tag",
	} {
		head := "HTTP/1.1 200 OK\r\n" + name[:2] + " " + name[2:] + ": x\r\n\r\n"
		if got, want := string(mendHead([]byte(head))), strings.Replace(head, name[:2]+" ", name[:2]+"\t", 1); got != want {
			t.Errorf("mendHead returned %q, want %q", got, want)
		}
	}
}

// TestMendedWaitsForNothing checks that a complete head, and bytes that can never be HTTP, are
// returned at once.
func TestMendedWaitsForNothing(t *testing.T) {
	t.Parallel()
	for _, said := range []string{
		"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 2", "HTTP/1.1 200 OK\r\n\r\nbo", "SSH-2.0-x\r\n", "\x15\x03\x01",
	} {
		near, far := net.Pipe()
		go io.WriteString(far, said)
		first := make([]byte, 3)
		if _, err := io.ReadFull(Mend(near), first); err != nil || string(first) != said[:3] {
			t.Errorf("read %q, error %v", first, err)
		}
		near.Close()
		far.Close()
	}
}

// TestMendedNextResponse checks that a body stays unchanged, whatever it looks like, until the next
// request is sent.
func TestMendedNextResponse(t *testing.T) {
	t.Parallel()
	const first, second = "HTTP/1.1 200 OK\r\nA : b\r\n\r\n", "HTTP/1.1 200 OK\r\nC : d\r\n\r\n"
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	m := Mend(near)
	read := func(said string) string {
		go io.WriteString(far, said)
		p := make([]byte, 100)
		n, err := m.Read(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(p[:n])
	}
	got := []string{read(first), read(second)}
	m.Await()
	got = append(got, read(second))
	want := []string{strings.ReplaceAll(first, " :", ":"), second, strings.ReplaceAll(second, " :", ":")}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// FuzzMended checks that a response that net/http can read, and that needs no mending, is read as
// without Mend, that reads of any size have the same result, and that no byte is added.
func FuzzMended(f *testing.F) {
	for _, tt := range heads[:len(heads)-1] {
		f.Add([]byte(tt.sent), []byte{})
		f.Add([]byte(tt.sent), []byte{0, 5, 17})
	}
	f.Fuzz(func(t *testing.T, sent, sizes []byte) {
		whole, _ := io.ReadAll(Mend(&pieces{rest: bytes.Clone(sent)}))
		parts, _ := io.ReadAll(Mend(&pieces{rest: bytes.Clone(sent), sizes: sizes}))
		if !bytes.Equal(whole, parts) || len(whole) > len(sent) {
			t.Errorf("%q: got %q at once, %q in parts", sent, whole, parts)
		}
		plain, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(sent)), nil)
		if err != nil || bytes.Contains(sent, []byte("\n ")) || bytes.Contains(sent, []byte("\n\t")) {
			return
		}
		for name := range plain.Header {
			if strings.ContainsAny(name, " \t") {
				return
			}
		}
		mended, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(whole)), nil)
		if err != nil || !reflect.DeepEqual(plain.Header, mended.Header) || plain.ContentLength != mended.ContentLength {
			t.Errorf("%q: net/http read %+v, with Mend %+v, error %v", sent, plain, mended, err)
		}
	})
}
