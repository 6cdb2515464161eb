package adminapi

import (
	"context"
	"net"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
)

func TestWaitUnused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	if err := waitUnused(t.Context(), path, 0); err != nil {
		t.Errorf("no socket: %v", err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if err := waitUnused(t.Context(), path, 1); err == nil || !strings.Contains(err.Error(), "unix/"+path+": another process listens there already") {
		t.Errorf("a socket in use: %v", err)
	}
	_ = l.Close()
	if err := waitUnused(t.Context(), path, 1); err != nil {
		t.Errorf("a socket that was left behind: %v", err)
	}
}

// TestEndpointOf notices if Caddy renames the fields that endpointOf reads.
func TestEndpointOf(t *testing.T) {
	t.Parallel()
	if got := endpointOf(caddy.Context{Context: context.Background()}); got != "" {
		t.Errorf("a context without a configuration: %q", got)
	}
	ctx, err := caddy.ProvisionContext(&caddy.Config{Admin: &caddy.AdminConfig{Listen: "unix//run/a.sock|0660"}})
	if err != nil {
		t.Fatal(err)
	}
	if got := endpointOf(ctx); got != "unix//run/a.sock|0660" {
		t.Errorf("got %q", got)
	}
}
