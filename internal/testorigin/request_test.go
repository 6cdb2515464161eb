package testorigin

import (
	"bufio"
	"bytes"
	"errors"
	"net/http"
	"strings"
	"testing"
)

func TestReadRequestBoundsItsHead(t *testing.T) {
	t.Parallel()
	for name, head := range map[string]string{
		"one long line": "GET /" + strings.Repeat("a", maxHead) + " HTTP/1.1\r\n\r\n",
		"many fields":   "GET / HTTP/1.1\r\n" + strings.Repeat("A: b\r\n", maxHead/6) + "\r\n",
	} {
		if _, err := readRequest(bufio.NewReader(strings.NewReader(head))); !errors.Is(err, errHeadTooLarge) {
			t.Errorf("%s: %v, want %v", name, err, errHeadTooLarge)
		}
	}
	long := "GET /" + strings.Repeat("a", 64<<10) + " HTTP/1.1\r\n\r\n"
	if req, err := readRequest(bufio.NewReader(strings.NewReader(long))); err != nil || len(req.target) != 64<<10+1 {
		t.Errorf("reading a target of over 64 KiB: %v", err)
	}
}

func TestRequestPath(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"/":                      "/",
		"/a?b":                   "/a",
		"/http://x/y?z":          "/http://x/y",
		"http://example.com":     "/",
		"http://example.com/a?b": "/a",
		"http://example.com?b":   "",
		"*":                      "*",
	} {
		if got := (&request{target: target}).path(); got != want {
			t.Errorf("path of %q is %q, want %q", target, got, want)
		}
	}
}

// FuzzReadRequest checks that whatever both we and net/http can read has the same request line for
// both, and that nothing makes the reader panic. Either refuses some requests that the other
// accepts: net/http versions and methods, and we odd field names.
func FuzzReadRequest(f *testing.F) {
	f.Add([]byte("GET /a?b HTTP/1.1\r\nHost: x\r\n\r\n"))
	f.Add([]byte("POST / HTTP/1.0\nContent-Length: 3\n\nabc"))
	f.Add([]byte("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: v\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r := bufio.NewReader(bytes.NewReader(raw))
		ours, err := readRequest(r)
		if err == nil {
			_ = ours.path()
			_ = ours.keepAlive()
			_ = ours.readBody(r) // an error is a fault of the input
		}
		theirs, theirErr := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil || theirErr != nil {
			return
		}
		if ours.method != theirs.Method || ours.target != theirs.RequestURI || ours.proto != theirs.Proto {
			t.Errorf("%q is %q %q %q to us, %q %q %q to net/http", raw,
				ours.method, ours.target, ours.proto, theirs.Method, theirs.RequestURI, theirs.Proto)
		}
	})
}
