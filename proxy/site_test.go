package proxy

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/redact"
)

// TestComplete opens connections to two listeners of a server at once. Whichever is first, no
// request is served before the redaction, and HTTP/2 requests that cannot be read are reported. It
// is also for the race detector.
func TestComplete(t *testing.T) {
	t.Parallel()
	fields, err := redact.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	site := &Site{SitePolicy: &engine.SitePolicy{Engine: &engine.Engine{Config: engine.Config{Redact: fields}}}}
	first, second := atFirst(site.complete), atFirst(site.complete) // two gateways at one port
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.RequestURI+" "+r.Header.Get("X-Api-Key"))
			redact.PutBack(r)
			_, _ = io.WriteString(w, " "+r.Header.Get("X-Api-Key"))
			if server, ok := r.Context().Value(http.ServerContextKey).(*http.Server); !ok || server.HTTP2.CountError == nil {
				t.Error("the server does not report HTTP/2 errors")
			}
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { return second(first(ctx, c), c) },
	}
	var clients, servers sync.WaitGroup
	for range 2 {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		servers.Go(func() { _ = s.Serve(l) })
		for range 20 {
			clients.Go(func() {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				_, _ = io.WriteString(conn, "GET http://u:p@h/ HTTP/1.0\r\nX-Api-Key: k\r\n\r\n")
				if got, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(got), "\nhttp://REDACTED@h/ REDACTED k") {
					t.Errorf("the handler got %q, error %v, want a redacted request", got, err)
				}
			})
		}
	}
	clients.Wait()
	_ = s.Close()
	servers.Wait()
}
