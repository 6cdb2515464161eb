package egress

import (
	"io"
	"net/http"
	"sync"
)

// requestBody is the client's body on its way to the origin. It counts, remembers why reading failed, hands the
// trailers over at the end and can be shut: the transport may go on reading after the handler has returned.
type requestBody struct {
	src     io.Reader
	trailer func() // called once, at the end of the body, before the reader learns of it

	mu     sync.Mutex
	n      int64
	failed error
	shut   bool
}

func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	shut := b.shut
	b.mu.Unlock()
	if shut {
		return 0, http.ErrBodyReadAfterClose
	}
	n, err := b.src.Read(p)
	if err == io.EOF && b.trailer != nil {
		b.trailer()
		b.trailer = nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.n += int64(n)
	if err != nil && err != io.EOF && !b.shut {
		b.failed = err
	}
	return n, err
}

// Close ends the reading. It leaves the client's body alone: closing that reads what is left of it, which would
// stall here while a client that waits for 100 Continue holds it back. The server closes it in the end.
func (b *requestBody) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shut = true
	return nil
}

// state gives the octets read and the error that ended the reading, if one did.
func (b *requestBody) state() (int64, error) {
	if b == nil {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.n, b.failed
}
