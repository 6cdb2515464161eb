package crawlgate

import (
	"fmt"
	"os"
	"testing"

	"github.com/caddyserver/caddy/v2"
	_ "github.com/caddyserver/caddy/v2/modules/standard" // what the binary has
	"github.com/caddyserver/certmagic"

	"github.com/crawlgate/crawlgate/internal/sockets"
)

// TestMain keeps the tests' certificates and records out of the folders of the user who runs them.
func TestMain(m *testing.M) {
	os.Exit(runIsolated(m))
}

func runIsolated(m *testing.M) int {
	dir, err := os.MkdirTemp("", "crawlgate-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		if err := os.Setenv(name, dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	caddy.DefaultStorage = &certmagic.FileStorage{Path: dir}
	// The origins of these tests listen in this process too.
	sockets.Process.Own = func() ([]sockets.Socket, error) { return nil, nil }
	return m.Run()
}
