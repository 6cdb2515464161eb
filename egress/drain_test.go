package egress

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// drainingOrigin speaks raw HTTP/2, and HTTP/1.1. It answers with the protocol and the body, but
// refuses the first request over HTTP/2 after receiving all of it.
type drainingOrigin struct {
	*httptest.Server // for its certificate
	net.Listener
	refuse func(f *http2.Framer, stream uint32) error
	heard  atomic.Int32
}

func startDraining(t *testing.T, refuse func(*http2.Framer, uint32) error) *drainingOrigin {
	t.Helper()
	o := &drainingOrigin{refuse: refuse, Server: startServer(t, http.NotFoundHandler(), "h2")}
	var err error
	o.Listener, err = tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: o.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Listener.Close() })
	go func() {
		for {
			c, err := o.Accept()
			if err != nil {
				return
			}
			go o.serve(c.(*tls.Conn))
		}
	}()
	return o
}

func (o *drainingOrigin) serve(c *tls.Conn) {
	defer c.Close()
	if c.Handshake() != nil {
		return
	}
	if c.ConnectionState().NegotiatedProtocol == "http/1.1" {
		if r, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			o.heard.Add(1)
			body, _ := io.ReadAll(r.Body)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nh1:"+string(body))
		}
		return
	}
	if _, err := io.CopyN(io.Discard, c, int64(len(http2.ClientPreface))); err != nil {
		return
	}
	f := http2.NewFramer(c, c)
	f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	f.WriteWindowUpdate(0, 1<<20)
	var body []byte
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return
		}
		if data, ok := frame.(*http2.DataFrame); ok {
			body = append(body, data.Data()...)
		}
		id := frame.Header().StreamID
		if kind := frame.Header().Type; kind != http2.FrameHeaders && kind != http2.FrameData || !frame.Header().Flags.Has(http2.FlagDataEndStream) {
			continue
		}
		if o.heard.Add(1) == 1 {
			if o.refuse(f, id) != nil {
				return
			}
		} else {
			var block strings.Builder
			hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte(block.String()), EndHeaders: true})
			f.WriteData(id, true, append([]byte("h2:"), body[:min(len(body), 1<<10)]...))
		}
		body = nil
	}
}

func goAway(last uint32, code http2.ErrCode) func(*http2.Framer, uint32) error {
	return func(f *http2.Framer, stream uint32) error {
		_ = f.WriteGoAway(last, code, []byte("REFUSED_STREAM"))
		if last >= stream {
			return io.EOF // the origin closes the connection
		}
		return nil
	}
}

func reset(code http2.ErrCode) func(*http2.Framer, uint32) error {
	return func(f *http2.Framer, stream uint32) error { return f.WriteRSTStream(stream, code) }
}

// TestDrainingOrigins checks RFC 9113 section 8.7: a request that was not processed is repeated
// once, with its body, and no other request is.
func TestDrainingOrigins(t *testing.T) {
	t.Parallel()
	const long = maxKept + 1
	for name, tt := range map[string]struct {
		refuse func(*http2.Framer, uint32) error
		body   int    // its length in bytes
		want   string // the beginning of the answer
		kind   Kind   // of the error, if any
	}{
		"GOAWAY":                                {goAway(0, http2.ErrCodeNo), 0, "h2:", ""},
		"GOAWAY, with a body":                   {goAway(0, http2.ErrCodeNo), 100, "h2:x", ""},
		"GOAWAY, with a body that is kept":      {goAway(0, http2.ErrCodeNo), maxKept, "h2:x", ""},
		"GOAWAY, with a long body":              {goAway(0, http2.ErrCodeNo), long, "", KindReset},
		"GOAWAY for an error":                   {goAway(0, http2.ErrCodeInternal), 100, "h2:x", ""},
		"GOAWAY that had the request":           {goAway(1, http2.ErrCodeNo), 100, "", KindReset},
		"REFUSED_STREAM":                        {reset(http2.ErrCodeRefusedStream), 0, "h2:", ""},
		"REFUSED_STREAM, with a body":           {reset(http2.ErrCodeRefusedStream), 100, "h2:x", ""},
		"REFUSED_STREAM, with a long body":      {reset(http2.ErrCodeRefusedStream), long, "", KindReset},
		"HTTP_1_1_REQUIRED":                     {reset(http2.ErrCodeHTTP11Required), 0, "h1:", ""},
		"HTTP_1_1_REQUIRED, with a body":        {reset(http2.ErrCodeHTTP11Required), 100, "h1:x", ""},
		"HTTP_1_1_REQUIRED, with a long body":   {reset(http2.ErrCodeHTTP11Required), long, "", KindReset},
		"HTTP_1_1_REQUIRED for the connection":  {goAway(0, http2.ErrCodeHTTP11Required), 100, "h1:x", ""},
		"PROTOCOL_ERROR proves nothing":         {reset(http2.ErrCodeProtocol), 100, "", KindProtocol},
		"INTERNAL_ERROR proves nothing, either": {reset(http2.ErrCodeInternal), 100, "", KindReset},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			origin := startDraining(t, tt.refuse)
			g := startGateway(t, "h1", origin.Server)
			forwarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				target := *r.URL
				target.Scheme, target.Host = "https", origin.Addr().String()
				g.serve(w, r, &target)
			}))
			defer forwarded.Close()
			body := strings.Repeat("x", tt.body)
			resp, err := forwarded.Client().Post(forwarded.URL, "text/plain", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			got, res := readAll(t, resp), g.result(t)
			want := min(tt.body, 1<<10) + len("h2:")
			if tt.kind != "" {
				if res.Err == nil || res.Err.Kind != tt.kind || origin.heard.Load() != 1 {
					t.Errorf("error %+v, %d requests; want the kind %s and one request", res.Err, origin.heard.Load(), tt.kind)
				}
			} else if res.Err != nil || !strings.HasPrefix(got, tt.want) || strings.HasPrefix(got, "h2") && len(got) != want || origin.heard.Load() != 2 {
				t.Errorf("got %.50q (%d bytes), error %+v, %d requests", got, len(got), res.Err, origin.heard.Load())
			}
		})
	}
}

// TestDrainingFresh checks the same for the transport that fetches robots.txt. Its requests have no
// body and a new connection each. It uses HTTP/2 only for GET, and only if an origin has nothing
// else.
func TestDrainingFresh(t *testing.T) {
	t.Parallel()
	for want, refuse := range map[string]func(*http2.Framer, uint32) error{
		"h2: after GOAWAY":              goAway(0, http2.ErrCodeNo),
		"h2: after GOAWAY for an error": goAway(0, http2.ErrCodeInternal),
		"h2: after REFUSED_STREAM":      reset(http2.ErrCodeRefusedStream),
		"h1: after HTTP_1_1_REQUIRED":   reset(http2.ErrCodeHTTP11Required),
	} {
		origin := startDraining(t, refuse)
		c := TransportConfig{RootCAs: certPool(origin.Server)}
		c.FreshFor = newTestTransport(t, c)
		resp, err := newTestTransport(t, c).RoundTrip(request(t, t.Context(), "POST", "https://"+origin.Addr().String()+"/robots.txt", nil))
		if err != nil {
			t.Errorf("%s: %v", want, err)
			continue
		}
		if got := readAll(t, resp); !strings.HasPrefix(want, got) || origin.heard.Load() != 2 {
			t.Errorf("%s: got %q, %d requests", want, got, origin.heard.Load())
		}
	}
}
