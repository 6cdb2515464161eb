package adminapi

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"os/user"
	"strconv"
	"time"
)

// peer is the connection of a request. Caddy's admin server does not show it to handlers, so an
// order over a unix socket hijacks the connection, and the answer is written there.
type peer struct {
	w    http.ResponseWriter
	conn net.Conn // nil until it is hijacked
}

type peerKey struct{}

// withPeer gives the methods of a request their peer.
func withPeer(w http.ResponseWriter, r *http.Request) (*peer, *http.Request) {
	p := &peer{w: w}
	return p, r.WithContext(context.WithValue(r.Context(), peerKey{}, p))
}

// authorOf returns the author of an order. Over a unix socket of the admin API, the author is the
// user at its other end; only root and the user of the gateway may name another one. The request
// must have been read.
func authorOf(ctx context.Context, claimed string) string {
	_, isUnix := ctx.Value(http.LocalAddrContextKey).(*net.UnixAddr)
	p, ok := ctx.Value(peerKey{}).(*peer)
	if !ok || !isUnix {
		return claimed
	}
	conn, _, err := http.NewResponseController(p.w).Hijack()
	if err != nil {
		return author(claimed, 0, false)
	}
	p.conn = conn
	uid, known := peerUID(conn)
	return author(claimed, uid, known)
}

// unmapped is the id that Linux shows for users that do not exist in the process's namespace.
const unmapped = 65534

// author returns the name of the user with an id or, if the id is unknown, the claimed name with a
// note.
func author(claimed string, uid int, known bool) string {
	switch {
	case !known || uid == unmapped:
		return cmp.Or(claimed, "somebody") + " (not verified)"
	case claimed != "" && (uid == 0 || uid == os.Getuid()):
		return claimed
	}
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}

// peerTimeout is how long a peer may take to read its answer.
const peerTimeout = 10 * time.Second

// send writes the answer on a hijacked connection, and closes it.
func (p *peer) send(answer any, err error) {
	status := http.StatusOK
	if err != nil {
		fault := withStatus(err)
		status, answer = fault.HTTPStatus, map[string]string{"error": fault.Error()}
	}
	head, body := encode(answer)
	resp := http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Header: head, Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)), Close: true,
	}
	_ = p.conn.SetWriteDeadline(time.Now().Add(peerTimeout))
	_ = resp.Write(p.conn) // a client that has left needs no answer
	_ = p.conn.Close()
}
