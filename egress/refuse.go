package egress

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// maxReason keeps reason phrases below the hundred bytes that clients show without cutting.
const maxReason = 99

// lingerTime and lingerSize bound the wait for a refused client to read its refusal before the
// connection is closed under it.
const (
	lingerTime = 500 * time.Millisecond
	lingerSize = 64 << 10
)

// Refusal is the gateway's own answer to a CONNECT.
type Refusal struct {
	Status int
	// Reason is the reason phrase, to which [ReasonPhrase] is applied; empty means the standard one.
	// Many clients show nothing else of a refused CONNECT. HTTP/2 has no reason phrase.
	Reason string
	// Header may be nil. Content-Length, Connection and, unless set, Cache-Control: no-store are
	// added.
	Header http.Header
	Body   []byte
}

// ReasonPhrase reduces a text to the characters of a reason phrase: printable ASCII, fewer than 100
// bytes. Each run of white space and controls becomes one space, and every byte outside ASCII
// becomes a question mark.
func ReasonPhrase(s string) string {
	text := []byte(s)
	for i, c := range text {
		switch {
		case c >= 0x80:
			text[i] = '?'
		case c < ' ' || c == 0x7f:
			text[i] = ' '
		}
	}
	text = bytes.Join(bytes.Fields(text), []byte{' '})
	return strings.TrimRight(string(text[:min(len(text), maxReason)]), " ")
}

// Refuse answers a CONNECT that is not accepted.
//
// Over HTTP/1.1 a custom reason phrase takes the connection out of the server's hands, so the
// connection ends with the answer; clients open another one for their next CONNECT anyway. But
// several clients respond to a 407 on the same connection, so Refuse leaves a 407 to the server,
// which keeps the connection open. It does the same with an answer without a reason.
func Refuse(w http.ResponseWriter, r *http.Request, a Refusal) {
	reason := ReasonPhrase(a.Reason)
	if r.ProtoMajor != 1 || a.Status == http.StatusProxyAuthRequired || reason == "" {
		refusePlain(w, a)
		return
	}
	conn, err := hijack(w, r)
	if err != nil {
		refusePlain(w, a)
		return
	}
	h := a.Header.Clone()
	if h == nil {
		h = make(http.Header, 4)
	}
	a.complete(h)
	h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	h["Connection"] = []string{"close"}
	var answer bytes.Buffer // some clients read only the first segment
	_ = writeHead(&answer, strconv.Itoa(a.Status)+" "+reason, h)
	_, _ = answer.Write(a.Body) // a buffer takes everything
	_, err = conn.Write(answer.Bytes())
	w.WriteHeader(a.Status)
	if err != nil {
		_ = conn.Close()
		return
	}
	go linger(conn, notedConn(r, conn)) // a client that stays must not delay the log
}

func refusePlain(w http.ResponseWriter, a Refusal) {
	h := w.Header()
	maps.Copy(h, a.Header)
	a.complete(h)
	w.WriteHeader(a.Status)
	_, _ = w.Write(a.Body) // a client that has left needs no answer
}

func (a Refusal) complete(h http.Header) {
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	if h.Get("Content-Type") == "" && len(a.Body) > 0 {
		h.Set("Content-Type", "text/plain; charset=utf-8")
	}
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
}

// linger waits up to lingerTime for the client to read and close, and then closes. If bytes from
// the client stayed unread, the system would reset the connection and the client could lose the
// answer. linger reads them below the server's wrapper: for the server the request is over, and its
// bytes are counted.
func linger(conn, below net.Conn) {
	defer func() { _ = conn.Close() }()
	if closeWrite(conn) != nil || conn.SetReadDeadline(time.Now().Add(lingerTime)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, below, lingerSize)
}

// PrepareRefusal must be called before answering a request whose body was not and will not be read.
// A client that waits for 100 Continue must get its answer at once, and the connection must end
// with it; otherwise the server would first wait for the body if a middleware has wrapped it.
func PrepareRefusal(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor != 1 || !httpguts.HeaderValuesContainsToken(r.Header["Expect"], "100-continue") {
		return
	}
	_ = http.NewResponseController(w).EnableFullDuplex() // a writer that cannot does not need it
	w.Header()["Connection"] = []string{"close"}
}
