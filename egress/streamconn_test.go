package egress

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// TestStreamConnClosed checks that bytes that were read ahead are dropped when the connection is
// closed.
func TestStreamConnClosed(t *testing.T) {
	t.Parallel()
	s := startServer(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := newStreamConn(w, r)
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Error(err)
		}
		_ = c.Close()
		if n, err := c.Read(make([]byte, 10)); n != 0 || !errors.Is(err, net.ErrClosed) {
			t.Errorf("read %d bytes, error %v, want net.ErrClosed", n, err)
		}
	}), "h2")
	resp := send(t, s.Client(), request(t, t.Context(), "POST", s.URL, strings.NewReader("bytes")))
	readAll(t, resp)
}
