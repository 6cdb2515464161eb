package htmlhead

import (
	"bytes"
	"net/http"
	"testing"
)

func TestCollector(t *testing.T) {
	t.Parallel()
	c := NewCollector(10)
	for i, step := range []struct {
		write, kept string
		cut         bool
	}{
		{"", "", false},
		{"abcdef", "abcdef", false},
		{"ghij", "abcdefghij", false},
		{"", "abcdefghij", false},
		{"k", "abcdefghij", true},
		{"lmn", "abcdefghij", true},
	} {
		if n, err := c.Write([]byte(step.write)); n != len(step.write) || err != nil {
			t.Errorf("step %d: Write = %d, %v", i, n, err)
		}
		if string(c.Bytes()) != step.kept || c.Cut() != step.cut {
			t.Errorf("step %d: Bytes = %q, Cut = %t", i, c.Bytes(), c.Cut())
		}
	}
	c.Release()
	c.Release()
	if n, err := c.Write([]byte("x")); n != 1 || err != nil || len(c.Bytes()) != 0 {
		t.Errorf("after Release: Write = %d, %v, kept %q", n, err, c.Bytes())
	}
	var zero Collector
	if n, err := zero.Write([]byte("x")); n != 1 || err != nil || len(zero.Bytes()) != 0 || !zero.Cut() {
		t.Errorf("zero value: Write = %d, %v, kept %q", n, err, zero.Bytes())
	}
}

// TestCollectorsDoNotShare checks that a buffer is not used by two collectors.
func TestCollectorsDoNotShare(t *testing.T) {
	t.Parallel()
	gone := NewCollector(100)
	gone.Write([]byte("gone"))
	gone.Release()
	a, b := NewCollector(100), NewCollector(100)
	a.Write([]byte("aaaa"))
	gone.Release()
	b.Write([]byte("bbbb"))
	gone.Write([]byte("xxxx"))
	if string(a.Bytes()) != "aaaa" || string(b.Bytes()) != "bbbb" {
		t.Errorf("two collectors keep %q and %q, want their own bytes", a.Bytes(), b.Bytes())
	}
	a.Release()
	b.Release()
}

// TestCollectorMemory checks that only the limit is kept of an endless page.
func TestCollectorMemory(t *testing.T) {
	t.Parallel()
	c := NewCollector(64 << 10)
	defer c.Release()
	chunk := bytes.Repeat([]byte("x"), 10000)
	for range 10000 {
		c.Write(chunk)
	}
	if len(c.Bytes()) != 64<<10 || cap(c.Bytes()) > maxPooled || !c.Cut() {
		t.Errorf("kept %d bytes in a buffer of %d", len(c.Bytes()), cap(c.Bytes()))
	}
}

func TestWanted(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		contentType  string
		status       int
		method, span string
		want         bool
	}{
		{"text/html", 200, "GET", "", true},
		{"Text/HTML; charset=utf-8", 200, "GET", "", true},
		{" text/html ;charset=utf-8", 200, "GET", "", true},
		{"application/xhtml+xml", 200, "GET", "", true},
		{"text/html", 206, "GET", "bytes 0-499/1234", true},
		{"text/html", 206, "GET", "Bytes 0-499/*", true},
		{"text/html", 206, "GET", "bytes 500-999/1234", false},
		{"text/html", 206, "GET", "bytes 01-999/1234", false},
		{"text/html", 206, "GET", "lines 0-9/10", false},
		{"text/html", 206, "GET", "", false},
		{"multipart/byteranges; boundary=x", 206, "GET", "", false},
		{"text/html", 200, "HEAD", "", false},
		{"text/html", 200, "POST", "", false},
		{"text/html", 404, "GET", "", false},
		{"text/html", 304, "GET", "", false},
		{"text/htmlx", 200, "GET", "", false},
		{"application/xml", 200, "GET", "", false},
		{"", 200, "GET", "", false},
		{"text/html", 0, "", "", false},
	} {
		if got := Wanted(c.contentType, c.status, c.method, c.span); got != c.want {
			t.Errorf("Wanted of %s %d %q %q = %t, want the opposite", c.method, c.status, c.contentType, c.span, got)
		}
	}
	if !IsXHTML("application/XHTML+xml; charset=utf-8") || IsXHTML("text/html") {
		t.Error("IsXHTML gives a wrong answer")
	}
	if !Wanted("text/html", http.StatusOK, http.MethodGet, "bytes 500-999/1234") {
		t.Error("Wanted = false, but a Content-Range without 206 has no meaning (RFC 9110 section 14.4)")
	}
}
