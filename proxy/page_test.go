package proxy

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// TestPageWaitsForAPlace checks that a page waits for a place to be decoded until its time is over.
// Then it passes, and the log says that it was not read. A free place is used, however late it is.
func TestPageWaitsForAPlace(t *testing.T) {
	places := decoding
	defer func() { decoding = places }()
	synctest.Test(t, func(t *testing.T) {
		decoding = make(chan struct{}, 1)
		read := func(wait time.Duration) (took time.Duration, cut bool) {
			began := time.Now()
			x := exchange{page: &enforce.Page{Whole: true}, pageUntil: began.Add(wait)}
			x.readPage()
			return time.Since(began), x.decision.SignalsCut
		}
		if took, cut := read(-time.Second); took != 0 || cut {
			t.Errorf("with a free place: %s, cut %t, want no wait", took, cut)
		}
		decoding <- struct{}{}
		if took, cut := read(70 * time.Millisecond); took != 70*time.Millisecond || !cut {
			t.Errorf("without a place: %s, cut %t, want 70ms, cut", took, cut)
		}
		time.AfterFunc(30*time.Millisecond, func() { <-decoding })
		if took, cut := read(70 * time.Millisecond); took != 30*time.Millisecond || cut {
			t.Errorf("with a place after 30ms: %s, cut %t", took, cut)
		}
	})
}

// TestDocsURL checks that a link has only an address that a client can use.
func TestDocsURL(t *testing.T) {
	t.Parallel()
	const named = "http://crawlgate.invalid/docs/"
	for local, want := range map[net.Addr]string{
		nil: named,
		&net.UnixAddr{Net: "unix", Name: "/run/proxy.sock"}:                named,
		&net.TCPAddr{IP: net.IPv4(10, 0, 0, 5), Port: 3128}:                "http://10.0.0.5:3128/docs/",
		&net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.5"), Port: 80}:         "http://10.0.0.5:80/docs/",
		&net.TCPAddr{IP: net.ParseIP("2001:db8::1"), Port: 3128}:           "http://[2001:db8::1]:3128/docs/",
		&net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 3128, Zone: "eth0"}: named,
	} {
		r := httptest.NewRequest(http.MethodGet, "http://evil.example/", http.NoBody)
		r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, local))
		if got := docsURL(r); got != want {
			t.Errorf("docsURL at %v = %s, want %s", local, got, want)
		}
	}
}
