package requests

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/textproto"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestConnectionsBoundToTheirClient sends credentials that bind a connection to their sender (RFC
// 4559 section 6). No other request may use that connection, before or after.
func TestConnectionsBoundToTheirClient(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	g := rig.NewTunnelGateway(t, server, "")
	bound := []string{
		"Authorization: NTLM TlRMTVNTUAABAAAA", "authorization: negotiate YIIJvwYG", "Authorization: NTLM", "AUTHORIZATION: Ntlm x",
		"Authorization: Basic dTpw\r\nAuthorization: Negotiate x",
	}
	for _, scheme := range []string{"http", "https"} {
		site := server.Site(t, testorigin.SiteConfig{Scheme: scheme})
		site.SetRobots(testorigin.Status(http.StatusNotFound))
		ask := func(path, field string) {
			t.Helper()
			w := g.Dial()
			a, err := w.Ask(http.MethodGet, "GET "+site.URL(path)+" HTTP/1.1\r\nHost: "+site.Origin().Authority()+"\r\n"+field+"\r\n\r\n")
			if err != nil || a.Status != http.StatusOK {
				t.Errorf("%s with %q: status %d, error %v", path, field, a.Status, err)
			}
			_ = w.Close()
		}
		for i, field := range bound {
			ask(fmt.Sprintf("/before/%d", i), "Authorization: Basic dTpw")
			ask(fmt.Sprintf("/bound/%d", i), field)
			ask(fmt.Sprintf("/bound/%d/again", i), field)
			ask(fmt.Sprintf("/after/%d", i), "X-Ntlm: NTLM")
		}
		conns := make(map[uint64][]string)
		for _, e := range site.PageExchanges() {
			conns[e.Conn] = append(conns[e.Conn], e.Target)
		}
		shared := 0
		for _, targets := range conns {
			if len(targets) > 1 {
				shared++
				if slices.ContainsFunc(targets, func(s string) bool { return strings.HasPrefix(s, "/bound") }) {
					t.Errorf("%s: one connection got %q", scheme, targets)
				}
			}
		}
		if shared == 0 {
			t.Errorf("%s: no two requests shared a connection: %v", scheme, conns)
		}
	}
}

// TestBoundConnectionsAreHTTP1 sends such credentials to a site with HTTP/2, whose connections are
// shared.
func TestBoundConnectionsAreHTTP1(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, nil)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	for _, field := range []string{"X-A: b", "Authorization: Negotiate YIIJvwYG"} {
		w := g.Dial()
		if a, err := w.Ask(http.MethodPost, "POST "+site.At("/news/a.html")+" HTTP/1.1\r\nHost: "+site.Authority()+"\r\nContent-Length: 0\r\n"+field+"\r\n\r\n"); err != nil || a.Status != http.StatusOK {
			t.Fatalf("%q: status %d, error %v", field, a.Status, err)
		}
	}
	var protos []string
	for _, e := range site.Arrived() {
		protos = append(protos, e.Proto)
	}
	if want := []string{"HTTP/2.0", "HTTP/1.1"}; !slices.Equal(protos, want) {
		t.Errorf("the site got requests over %q, want %q", protos, want)
	}
}

// forbiddenTrailers are fields that must not be in a trailer section (RFC 9110 section 6.5.1),
// because they frame, route, modify, authenticate or control, or describe the content. User-Agent
// and From there would show a site another name.
var forbiddenTrailers = []string{
	"Content-Encoding", "Content-Type", "Content-Range", "Host", "Cache-Control", "Expect", "Max-Forwards", "Pragma", "Range", "If-Match",
	"If-None-Match", "If-Modified-Since", "If-Unmodified-Since", "If-Range", "Authorization", "Proxy-Authenticate", "Proxy-Authorization",
	"WWW-Authenticate", "Cookie", "Set-Cookie", "Age", "Date", "Expires", "Location", "Retry-After", "Vary", "Warning", "Connection",
	"Keep-Alive", "TE", "User-Agent", "From",
}

// TestForbiddenTrailers sends these fields in both directions, announced and not, beside one that
// may pass.
func TestForbiddenTrailers(t *testing.T) {
	t.Parallel()
	var section strings.Builder
	for _, name := range forbiddenTrailers {
		section.WriteString(name + ": forged\r\n")
	}
	section.WriteString("X-Checksum: 42\r\n\r\n")
	announced := "Trailer: " + strings.Join(append(slices.Clone(forbiddenTrailers), "X-Checksum"), ", ") + "\r\n"
	arrived := make(chan http.Header, 1)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/robots.txt" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- r.Trailer
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		head := "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
		if r.URL.Path == "/announced" {
			head += announced
		}
		_, _ = io.WriteString(conn, head+"\r\n2\r\nok\r\n0\r\n"+section.String())
	}))
	defer site.Close()
	authority := strings.TrimPrefix(site.URL, "http://")
	g := rig.New(t, rig.Config{Engine: rig.Unpaced})
	for path, field := range map[string]string{"/announced": announced, "/late": ""} {
		w := g.Dial()
		_, err := io.WriteString(w, "POST "+site.URL+path+" HTTP/1.1\r\nHost: "+authority+"\r\nUser-Agent: Tester/1.0\r\nTransfer-Encoding: chunked\r\n"+
			field+"Connection: close\r\n\r\n4\r\nbody\r\n0\r\n"+section.String())
		if err != nil {
			t.Fatal(err)
		}
		answer, err := io.ReadAll(w)
		if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200") || !strings.Contains(string(answer), "ok\r\n0\r\nX-Checksum: 42\r\n\r\n") {
			t.Errorf("%s: answer %q, error %v", path, answer, err)
		}
		if strings.Contains(string(answer), "forged") {
			t.Errorf("%s: the client got a forbidden trailer: %q", path, answer)
		}
		for line := range strings.SplitSeq(string(answer), "\r\n") {
			if names, ok := strings.CutPrefix(line, "Trailer: "); ok && names != "X-Checksum" {
				t.Errorf("%s: the trailers announced to the client are %q", path, names)
			}
		}
		got := <-arrived
		for _, name := range forbiddenTrailers {
			if _, ok := got[textproto.CanonicalMIMEHeaderKey(name)]; ok {
				t.Errorf("%s: the site got the trailer %s", path, name)
			}
		}
		// Caddy's copy of the request lacks trailers that were not announced.
		if got.Get("X-Checksum") != "42" && path == "/announced" {
			t.Errorf("%s: the site got the trailers %v, want X-Checksum", path, got)
		}
	}
}
