package cli_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/cli"
)

// packaged has the socket and the Caddyfile of the packages in an empty folder.
func packaged(t *testing.T) (socket string) {
	t.Helper()
	dir := t.TempDir()
	before, config := *cli.PackagedSocket, *cli.PackagedConfig
	t.Cleanup(func() { *cli.PackagedSocket, *cli.PackagedConfig = before, config })
	*cli.PackagedSocket, *cli.PackagedConfig = filepath.Join(dir, "admin.sock"), filepath.Join(dir, "Caddyfile")
	return *cli.PackagedSocket
}

// TestStoreInPlace checks that the store of a gateway with default settings is read if nothing
// listens at the admin endpoint. If a gateway answers with an error or denies permission, the
// command fails, since the store may belong to another gateway.
func TestStoreInPlace(t *testing.T) {
	socket := packaged(t)
	t.Setenv("CRAWLGATE_GATEWAY", "")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	if err := os.WriteFile(*cli.PackagedConfig, []byte("{\n\tadmin unix/"+socket+"\n}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	store, sha := auditStore(t)
	place := filepath.Join(caddy.AppDataDir(), "crawlgate", "robots.db")
	if err := os.MkdirAll(filepath.Dir(place), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(store, place); err != nil {
		t.Fatal(err)
	}
	log := file(t, auditLine(t, auditDecision(t, sha, "https://example.com/"), "https://example.com/", 0))
	audit := func() commandRun { return runCommand(t.Context(), t, "", "audit", log) }

	want := audit()
	if want.status != 0 || want.err != "" {
		t.Errorf("without a socket: got %+v", want)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":"the gateway starts"}`, http.StatusServiceUnavailable)
	})}
	go func() { _ = server.Serve(l) }() // Close ends it
	if r := audit(); r.status != 2 || r.out != "" || !strings.Contains(r.err, "the gateway starts") {
		t.Errorf("with a gateway that answers 503: got %+v", r)
	}
	if os.Geteuid() != 0 { // root may open any file
		if err := os.Chmod(socket, 0); err != nil {
			t.Fatal(err)
		}
		if r := audit(); r.status != 2 || r.out != "" || !strings.Contains(r.err, "permission denied; members of the group") {
			t.Errorf("with a socket of another group: got %+v", r)
		}
		if err := os.Chmod(socket, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if r := audit(); r != want {
		t.Errorf("a socket that nobody listens at: %+v, want %+v", r, want)
	}
}
