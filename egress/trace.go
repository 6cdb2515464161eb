package egress

import (
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"sync"
)

// maxInterim bounds the interim responses of one exchange; an origin may not send them without end.
const maxInterim = 64

// connection is what the transport tells of the connection that an exchange got. The transport may try more than
// one: the last counts.
type connection struct {
	mu sync.Mutex
	connectionState
	reached bool
}

type connectionState struct {
	dialed Dialed
	reused bool
}

// sought forgets the connection before, which turned out to be of no use.
func (c *connection) sought(string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connectionState, c.reached = connectionState{}, false
}

func (c *connection) got(info httptrace.GotConnInfo) {
	dialed, _ := DialedOf(info.Conn)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connectionState, c.reached = connectionState{dialed: dialed, reused: info.Reused}, true
}

func (c *connection) state() (connectionState, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.connectionState, c.reached
}

// interim guards the writer while interim responses come: the transport reports them on its own goroutine, possibly
// after the round trip has been given up.
type interim struct {
	mu    sync.Mutex
	count int
	over  bool
}

// got1xx passes an interim response on, RFC 9110 section 15.2: 103 Early Hints, 102 and whatever else comes, but to
// clients of HTTP/1.0, which know none.
func (x *forwarding) got1xx(code int, header textproto.MIMEHeader) error {
	x.interim.mu.Lock()
	defer x.interim.mu.Unlock()
	if x.interim.over {
		return nil
	}
	if x.interim.count++; x.interim.count > maxInterim {
		return errManyInterim
	}
	if !x.r.ProtoAtLeast(1, 1) {
		return nil
	}
	if code == http.StatusContinue && x.expecting {
		return nil // the server says it by itself when the transport begins to read the body, which it does now
	}
	h := x.w.Header()
	final := maps.Clone(h) // what is set already is meant for the final response
	clear(h)
	responseFields(h, http.Header(header), x.f.Name, x.f.HeaderPrefix)
	x.w.WriteHeader(code)
	clear(h)
	maps.Copy(h, final)
	return nil
}

// endInterim makes the writer the handler's own again.
func (x *forwarding) endInterim() {
	x.interim.mu.Lock()
	defer x.interim.mu.Unlock()
	x.interim.over = true
}
