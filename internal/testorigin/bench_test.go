package testorigin_test

import (
	"bufio"
	"io"
	"net/http"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// BenchmarkExchange measures the cost of a request over a kept connection, because the origin must
// not dominate the measurements of a gateway.
func BenchmarkExchange(b *testing.B) {
	for _, bm := range []struct {
		name string
		cfg  testorigin.Config
	}{{"sockets", testorigin.Config{}}, {"memory", testorigin.Config{InMemory: true}}} {
		b.Run(bm.name, func(b *testing.B) {
			server := testorigin.Start(b, bm.cfg)
			site := server.Site(b, testorigin.SiteConfig{})
			conn, err := server.DialContext(b.Context(), "tcp", site.Origin().HostPort())
			if err != nil {
				b.Fatal(err)
			}
			reader := bufio.NewReader(conn)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := io.WriteString(conn, "GET /a HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
					b.Fatal(err)
				}
				resp, err := http.ReadResponse(reader, nil)
				if err != nil {
					b.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, resp.Body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
