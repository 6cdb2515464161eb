package testorigin

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/net/nettest"
)

var pipeAddr = netip.MustParseAddrPort("127.0.0.1:80")

// TestPipeIsAConn runs the test suite of net's connections.
func TestPipeIsAConn(t *testing.T) {
	t.Parallel()
	nettest.TestConn(t, func() (client, server net.Conn, stop func(), err error) {
		a, b := newPipe(pipeAddr)
		return a, b, func() { _, _ = a.Close(), b.Close() }, nil
	})
}

// TestPipeEnds checks that data sent before an end arrives, and that the reader gets the kind of
// end.
func TestPipeEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		end             func(*pipeEnd)
		atRead, atWrite error
	}{
		"close": {func(p *pipeEnd) { _ = p.Close() }, nil, syscall.EPIPE},
		"reset": {(*pipeEnd).reset, syscall.ECONNRESET, syscall.ECONNRESET},
	} {
		client, server := newPipe(pipeAddr)
		if _, err := server.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		tt.end(server)
		heard, err := io.ReadAll(client)
		if string(heard) != "last words" || !errors.Is(err, tt.atRead) {
			t.Errorf("%s: read %q, %v, want the last words and %v", name, heard, err, tt.atRead)
		}
		if _, err := client.Write([]byte("x")); !errors.Is(err, tt.atWrite) {
			t.Errorf("%s: write: %v, want %v", name, err, tt.atWrite)
		}
		if _, err := server.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: own read: %v, want %v", name, err, net.ErrClosed)
		}
	}
}
