//go:build slow

package https

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// combination is a version of HTTP inside the tunnel and one to the site.
type combination struct {
	name   string
	client *http.Client
	site   *rig.SecureSite
	method string // the gateway sends GET over HTTP/1.1
}

// combinations returns all pairs of versions, each with its own site that answers by a handler.
func combinations(t *testing.T, h http.Handler) []combination {
	t.Helper()
	authority := rig.NewTestCA(t)
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	var all []combination
	for inner := 1; inner <= 2; inner++ {
		for outer := 1; outer <= 2; outer++ {
			site := rig.StartSecureSite(t, authority, h)
			if outer == 1 {
				site.Tls.Load().NextProtos = []string{"http/1.1"}
			}
			all = append(all, combination{fmt.Sprintf("HTTP/%d inside, HTTP/%d to the site", inner, outer), g.SecureClient("Tester/1.0", inner), site, []string{http.MethodGet, http.MethodPost}[outer-1]})
		}
	}
	return all
}

// checkVersions checks that a combination uses the versions in its name.
func (c combination) checkVersions(t *testing.T, resp *http.Response) {
	t.Helper()
	seen := c.site.Arrived()
	if want := fmt.Sprintf("HTTP/%d inside, %.6s to the site", resp.ProtoMajor, seen[len(seen)-1].Proto); want != c.name {
		t.Errorf("the exchange of %s used %s", c.name, want)
	}
}

// TestHTTPSTrailers sends trailers in both directions, announced and not.
func TestHTTPSTrailers(t *testing.T) {
	t.Parallel()
	for _, c := range combinations(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Trailer", "Announced")
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
		w.Header().Set("Announced", "with "+r.Trailer.Get("Sent"))
		w.Header().Set(http.TrailerPrefix+"Late", "late")
	})) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, c.site.At("/"), io.MultiReader(strings.NewReader("body")))
		if err != nil {
			t.Fatal(err)
		}
		req.Trailer = http.Header{"Sent": {"what the client sent"}}
		resp, err := c.client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		a, err := rig.ReadAnswer(resp)
		if err != nil || a.Body != "body" {
			t.Errorf("%s: error %v, body %q", c.name, err, a.Body)
		}
		c.checkVersions(t, resp)
		if got := resp.Trailer.Get("Announced"); got != "with what the client sent" {
			t.Errorf("%s: the announced trailer is wrong: %v", c.name, resp.Trailer)
		}
		if got := resp.Trailer.Get("Late"); got != "late" {
			t.Errorf("%s: the unannounced trailer is missing: %v", c.name, resp.Trailer)
		}
	}
}

// TestHTTPSAltSvc checks that a site's Alt-Svc does not reach a client behind the gateway, and that
// its policies for later visits do.
func TestHTTPSAltSvc(t *testing.T) {
	t.Parallel()
	for _, c := range combinations(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Alt-Svc", `h3=":443"; ma=86400, h2="elsewhere.example:443"`)
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Strict-Transport-Security", "max-age=86400")
		w.Header().Set("Trailer", "Alt-Svc")
		_, _ = io.WriteString(w, "page")
	})) {
		hints := 0
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(_ int, header textproto.MIMEHeader) error {
				if header.Get("Alt-Svc") != "" {
					t.Errorf("%s: Alt-Svc is in the early hints: %v", c.name, header)
				}
				hints++
				return nil
			},
		})
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.site.At("/"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		a, err := rig.ReadAnswer(resp)
		if err != nil || a.Body != "page" || hints != 1 || a.Header.Get("Strict-Transport-Security") != "max-age=86400" {
			t.Errorf("%s: error %v, body %q, header %v, %d hints", c.name, err, a.Body, a.Header, hints)
		}
		if a.Header.Get("Alt-Svc") != "" || resp.Trailer.Get("Alt-Svc") != "" {
			t.Errorf("%s: Alt-Svc is in the header %v or the trailers %v", c.name, a.Header, resp.Trailer)
		}
	}
}

// TestHTTPSEarlyHints checks that a 103 passes before the answer exists.
func TestHTTPSEarlyHints(t *testing.T) {
	t.Parallel()
	hinted := make(chan struct{}, 1)
	for _, c := range combinations(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		select {
		case <-hinted: // the client has the hints
		case <-r.Context().Done():
		}
		_, _ = io.WriteString(w, "page")
	})) {
		var links []string
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
			Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
				if code == http.StatusEarlyHints {
					links = append(links, header.Get("Link"))
					hinted <- struct{}{}
				}
				return nil
			},
		})
		req, err := http.NewRequestWithContext(ctx, c.method, c.site.At("/"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		c.checkVersions(t, resp)
		if a, err := rig.ReadAnswer(resp); err != nil || a.Body != "page" || len(links) != 1 || links[0] != "</style.css>; rel=preload" {
			t.Errorf("%s: error %v, body %q, hints %q", c.name, err, a.Body, links)
		}
	}
}

// TestHTTPSStreams lets a site wait, after each piece of its answer, until the client has it.
func TestHTTPSStreams(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{})
	for _, c := range combinations(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for range 3 {
			_, _ = io.WriteString(w, "piece\n")
			_ = http.NewResponseController(w).Flush()
			select {
			case <-arrived:
			case <-r.Context().Done():
				return
			}
		}
	})) {
		req, err := http.NewRequestWithContext(t.Context(), c.method, c.site.At("/"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.client.Do(req)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		c.checkVersions(t, resp)
		lines := bufio.NewReader(resp.Body)
		for range 3 {
			if line, err := lines.ReadString('\n'); line != "piece\n" {
				t.Fatalf("%s: read %q, error %v", c.name, line, err)
			}
			arrived <- struct{}{}
		}
		_ = resp.Body.Close()
	}
}

// TestHTTPSCancel lets the client leave before the site's answer and in the middle of it.
func TestHTTPSCancel(t *testing.T) {
	t.Parallel()
	reached, left := make(chan struct{}, 1), make(chan time.Time, 1)
	for _, c := range combinations(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/half" {
			_, _ = io.WriteString(w, "half of it")
			_ = http.NewResponseController(w).Flush()
		}
		reached <- struct{}{}
		<-r.Context().Done()
		left <- time.Now()
	})) {
		for _, path := range []string{"/", "/half"} {
			ctx, cancel := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.site.At(path), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				resp, err := c.client.Do(req)
				if err == nil {
					_, err = rig.ReadAnswer(resp)
				}
				done <- err
			}()
			<-reached
			cancel()
			if err := <-done; err == nil {
				t.Errorf("%s: %s: the request succeeded after the client left", c.name, path)
			}
			select {
			case <-left:
			case <-time.After(10 * time.Second):
				t.Fatalf("%s: %s: the site's request was not canceled", c.name, path)
			}
		}
	}
}

// TestHTTPSExpect sends Expect: 100-continue and waits. A refusal by the gateway or the site comes
// at once, without the body; an accepted body is asked for and arrives.
func TestHTTPSExpect(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refuses" {
			w.Header().Set("Connection", "close")
			w.WriteHeader(http.StatusExpectationFailed)
			return
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	}))
	site.Tls.Load().NextProtos = []string{"http/1.1"}
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	for path, status := range map[string]int{"/private/page": 403, "/refuses": 417, "/takes": 200} {
		inner := rig.Inside(t, g.Tunnel(site.Authority()))
		began := time.Now()
		const body = "0123456789"
		_, err := fmt.Fprintf(inner, "PUT %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Tester/1.0\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", path, site.Authority(), len(body))
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(inner.Reader, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if status == http.StatusOK {
			if resp.StatusCode != http.StatusContinue {
				t.Fatalf("%s: status %s before the body, want 100", path, resp.Status)
			}
			_, _ = io.WriteString(inner, body)
			if resp, err = http.ReadResponse(inner.Reader, nil); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
		}
		a, err := rig.ReadAnswer(resp)
		if err != nil || a.Status != status || status == http.StatusOK && a.Body != "10" {
			t.Errorf("%s: status %d, body %q, error %v", path, a.Status, a.Body, err)
		}
		// Timeouts such as net/http's last for seconds, so a request that waits for one has
		// stalled.
		if took := time.Since(began); took > 900*time.Millisecond && !rig.RaceEnabled {
			t.Errorf("%s: answered after %v", path, took)
		}
	}
}

// TestHTTPSWebSocket upgrades inside a tunnel. A permitted socket works in both directions until
// both have ended; a disallowed one is refused like any request.
func TestHTTPSWebSocket(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	site := rig.StartSecureSite(t, authority, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-Websocket-Accept: x\r\n\r\nhello\n")
		for line := ""; err == nil; line, err = rw.ReadString('\n') {
			_, _ = io.WriteString(conn, strings.ToUpper(line))
		}
	}))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced}.Trusting(authority))
	for path, status := range map[string]int{"/socket": 101, "/private/socket": 403} {
		w := g.Tunnel(site.Authority())
		inner := rig.Inside(t, w)
		_, _ = fmt.Fprintf(inner, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: Tester/1.0\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-Websocket-Key: x\r\nSec-Websocket-Version: 13\r\n\r\n", path, site.Authority())
		resp, err := http.ReadResponse(inner.Reader, nil)
		if err != nil || resp.StatusCode != status {
			t.Fatalf("%s: %v, error %v", path, resp, err)
		}
		if status == http.StatusSwitchingProtocols {
			for i := range 3 {
				want := "HELLO " + fmt.Sprint(i) + "\n"
				if i == 0 {
					if line, err := inner.Reader.ReadString('\n'); line != "hello\n" {
						t.Fatalf("read %q, error %v", line, err)
					}
				}
				_, _ = io.WriteString(inner, strings.ToLower(want))
				if line, err := inner.Reader.ReadString('\n'); line != want {
					t.Fatalf("read %q, error %v, want %q", line, err, want)
				}
			}
		}
		_ = w.Close()
	}
	var line rig.LogLine
	rig.Eventually(t, "a line of the socket", func() bool {
		for _, l := range g.ReadLogs() {
			if l.Request.URI == site.At("/socket") {
				line = l
			}
		}
		return line.Raw != ""
	})
	if line.Status != http.StatusSwitchingProtocols || line.Size == 0 || line.Robots.Decision == "deny" {
		t.Errorf("the log line is %s", line.Raw)
	}
	if targets := site.Targets(); len(targets) != 1 {
		t.Errorf("the site got %q, want one request", targets)
	}
}
