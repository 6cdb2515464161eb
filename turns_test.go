package crawlgate

import (
	"crypto/tls"
	"net"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/crawlgate/crawlgate/intake"
)

// oneConn is a listener that has one connection to give, and an error afterwards.
type oneConn struct {
	net.Listener
	conn net.Conn
}

func (l *oneConn) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	return nil, net.ErrClosed
}

// TestTurnsListener holds that a TCP connection has turns, once, and that others stay what they are: net/http and Caddy
// go by their types.
func TestTurnsListener(t *testing.T) {
	t.Parallel()
	accept := func(c net.Conn) net.Conn {
		t.Helper()
		l := Turns{}.WrapListener(Turns{}.WrapListener(&oneConn{conn: c}))
		got, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if again, err := l.Accept(); err == nil || again != nil {
			t.Fatalf("%v, %v", again, err)
		}
		return got
	}
	tcp := new(net.TCPConn)
	if c, ok := accept(tcp).(*intake.Conn); !ok || c.TCPConn != tcp {
		t.Errorf("%T", c)
	}
	for _, c := range []net.Conn{tls.Client(tcp, &tls.Config{ServerName: "origin.example"}), new(net.UnixConn)} {
		if got := accept(c); got != c {
			t.Errorf("%T became a %T", c, got)
		}
	}
}

// TestTurnsTakesNothing holds that the wrapper has no options.
func TestTurnsTakesNothing(t *testing.T) {
	t.Parallel()
	for text, fine := range map[string]bool{"robots": true, "robots fast": false, "robots {\nfast\n}": false} {
		if err := new(Turns).UnmarshalCaddyfile(caddyfile.NewTestDispenser(text)); (err == nil) != fine {
			t.Errorf("%q: %v", text, err)
		}
	}
}
