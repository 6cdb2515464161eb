//go:build slow

package access

import (
	"os"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestCredentialsStayOutOfLogs sends passwords in all the places where clients put them by mistake.
func TestCredentialsStayOutOfLogs(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{})
	requests := []string{
		"GET http://user:password@127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"CONNECT user:password@127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443\r\n\r\n",
		"GET http://127.0.0.1:0/ HTTP/1.1\r\nHost: 127.0.0.1\r\nProxy-Authorization: Basic dXNlcjpwYXNzd29yZA==\r\n\r\n",
	}
	for _, r := range requests {
		if _, err := g.Dial().Ask("GET", r); err != nil {
			t.Fatal(err)
		}
	}
	g.Logs(len(requests)) // a refused CONNECT is logged when its connection has closed
	g.Stop()
	access, err := os.ReadFile(g.AccessLog())
	if err != nil {
		t.Fatal(err)
	}
	for _, out := range []string{string(access), g.Stderr.String()} {
		for _, secret := range []string{"password", "dXNlcjpwYXNzd29yZA"} {
			if strings.Contains(out, secret) {
				t.Errorf("a log contains %q: %s", secret, out)
			}
		}
	}
	if n := len(g.ReadLogs()); n != len(requests) {
		t.Errorf("%d log lines, want %d", n, len(requests))
	}
}
