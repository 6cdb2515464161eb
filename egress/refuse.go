package egress

import (
	"bytes"
	"io"
	"maps"
	"net"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/net/http/httpguts"
)

// lingerTime and lingerSize bound the wait for a refused client to read its refusal before the
// connection is closed under it.
const (
	lingerTime = 500 * time.Millisecond
	lingerSize = 64 << 10
)

// Refusal is the gateway's own answer to a CONNECT.
type Refusal struct {
	Status int
	// Reason is the reason phrase, in printable ASCII; empty means the standard one. Many clients show
	// nothing else of a refused CONNECT, and no more than a hundred bytes. HTTP/2 has no reason
	// phrase.
	Reason string
	// Header may be nil. Content-Length, Date and Connection are added.
	Header http.Header
	Body   []byte
}

// Refuse answers a CONNECT that is not accepted.
//
// Over HTTP/1.1 a custom reason phrase takes the connection out of the server's hands, so the
// connection ends with the answer; clients open another one for their next CONNECT anyway. But
// several clients respond to a 407 on the same connection, so Refuse leaves a 407 to the server,
// which keeps the connection open. It does the same with an answer without a reason, or with one
// that cannot be a phrase.
func Refuse(w http.ResponseWriter, r *http.Request, a Refusal) {
	h := w.Header()
	custom := r.ProtoMajor == 1 && a.Status != http.StatusProxyAuthRequired && a.Reason != "" && httpguts.ValidHeaderFieldValue(a.Reason)
	var conn net.Conn
	if custom {
		conn, _ = hijack(w, r)
	}
	if conn != nil {
		h = make(http.Header, len(a.Header)+3)
		h.Set("Date", time.Now().UTC().Format(http.TimeFormat))
		h.Set("Connection", "close")
	}
	maps.Copy(h, a.Header)
	h.Set("Content-Length", strconv.Itoa(len(a.Body)))
	if conn == nil {
		w.WriteHeader(a.Status)
		_, _ = w.Write(a.Body) // a client that has left needs no answer
		return
	}
	var answer bytes.Buffer // some clients read only the first segment
	_ = writeHead(&answer, strconv.Itoa(a.Status)+" "+a.Reason, h)
	_, _ = answer.Write(a.Body) // a buffer takes everything
	_, err := conn.Write(answer.Bytes())
	w.WriteHeader(a.Status)
	if err != nil {
		_ = conn.Close()
		return
	}
	go linger(conn, notedConn(r, conn)) // a client that stays must not delay the log
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
