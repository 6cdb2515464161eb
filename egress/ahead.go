package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// AheadTime bounds how long the header of an answer waits for the beginning of its body.
const AheadTime = 100 * time.Millisecond

// readAhead reads up to n bytes of the answer's body before its header goes out. It stops early at
// the end of the body, after [AheadTime], or when ctx ends. Later reads of the body still return
// all its bytes. whole reports that head is the whole body.
func readAhead(ctx context.Context, resp *http.Response, n int) (head []byte, whole bool) {
	a := &ahead{ReadCloser: resp.Body, pending: make(chan pieceRead, 1)}
	resp.Body = a
	timer := time.NewTimer(AheadTime)
	defer timer.Stop()
	piece := make([]byte, n)
	for len(a.head) < n && a.err == nil {
		a.waiting = true
		go func() {
			got, err := a.ReadCloser.Read(piece[:n-len(a.head)])
			a.pending <- pieceRead{piece[:got], err}
		}()
		select {
		case p := <-a.pending:
			a.take(p)
		case <-timer.C:
			return a.head, false
		case <-ctx.Done():
			return a.head, false
		}
	}
	return a.head, errors.Is(a.err, io.EOF)
}

// ahead is a body whose beginning was read ahead. One read may still be in progress: it ends with
// the body's next bytes, or when the body is closed.
type ahead struct {
	io.ReadCloser
	head    []byte // read ahead; taken of these bytes were read again
	taken   int
	err     error // follows head
	waiting bool  // a read will send to pending
	pending chan pieceRead
}

type pieceRead struct {
	b   []byte
	err error
}

func (a *ahead) take(p pieceRead) {
	a.head, a.err, a.waiting = append(a.head, p.b...), p.err, false
}

func (a *ahead) Read(b []byte) (int, error) {
	if a.taken == len(a.head) && a.waiting {
		a.take(<-a.pending)
	}
	if n := copy(b, a.head[a.taken:]); n > 0 {
		a.taken += n
		return n, nil
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.ReadCloser.Read(b)
}
