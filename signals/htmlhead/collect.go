package htmlhead

import (
	"net/http"
	"strings"
	"sync"
)

// maxPooled is the largest buffer that is kept for the next page.
const maxPooled = 128 << 10

var buffers = sync.Pool{New: func() any {
	b := make([]byte, 0, 8<<10)
	return &b
}}

// Collector keeps the beginning of a body that passes through. It is an [io.Writer] that never
// blocks or fails. The zero value keeps nothing. Only one goroutine may use it at a time.
type Collector struct {
	limit  int
	buffer *[]byte // nil before the first Write and after Release
	cut    bool
}

// NewCollector returns a Collector that keeps at most limit bytes. Call [Collector.Release] when it
// is no longer needed, or its buffer is left to the garbage collector.
func NewCollector(limit int) *Collector { return &Collector{limit: max(limit, 0)} }

// Write keeps the bytes that fit.
func (c *Collector) Write(p []byte) (int, error) {
	if c.buffer == nil && c.limit > 0 && len(p) > 0 {
		c.buffer = buffers.Get().(*[]byte)
	}
	room := c.limit - len(c.Bytes())
	if len(p) > room {
		c.cut = true
	}
	if n := min(room, len(p)); n > 0 {
		*c.buffer = append(*c.buffer, p[:n]...)
	}
	return len(p), nil
}

// Bytes returns the kept bytes. They are valid until Release, and must not be changed.
func (c *Collector) Bytes() []byte {
	if c.buffer == nil {
		return nil
	}
	return *c.buffer
}

// Cut reports whether more has passed through than was kept.
func (c *Collector) Cut() bool { return c.cut }

// Release returns the buffer: the result of Bytes must not be used afterwards. After that, the
// Collector keeps nothing, and another call of Release does nothing.
func (c *Collector) Release() {
	b := c.buffer
	c.buffer, c.limit = nil, 0
	if b != nil && cap(*b) <= maxPooled {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// Wanted reports whether a response is the beginning of an HTML page: to a GET, of text/html or
// application/xhtml+xml, and with 200, 203, or 206 and a Content-Range that begins at 0 (RFC 9110
// section 14.4). Its content coding is for [Decode].
func Wanted(contentType string, status int, method, contentRange string) bool {
	if method != http.MethodGet || !IsPage(contentType) {
		return false
	}
	switch status {
	case http.StatusOK, http.StatusNonAuthoritativeInfo:
		return true
	case http.StatusPartialContent:
		const begin = "bytes 0-"
		contentRange = strings.TrimLeft(contentRange, " \t")
		return len(contentRange) >= len(begin) && strings.EqualFold(contentRange[:len(begin)], begin)
	}
	return false
}

// IsXHTML reports whether the value of a Content-Type field is application/xhtml+xml.
func IsXHTML(contentType string) bool { return isMediaType(contentType, "application/xhtml+xml") }

// IsPage reports whether the value of a Content-Type field names an HTML page.
func IsPage(contentType string) bool {
	return isMediaType(contentType, "text/html") || IsXHTML(contentType)
}
