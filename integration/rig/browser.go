package rig

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// Chromium is a browser with a new profile.
type Chromium struct {
	t    *testing.T
	path string
	args []string
	home string
}

// StartChromium makes a profile that uses a proxy and trusts certificates.
func StartChromium(t *testing.T, proxy, version string, trusted ...string) *Chromium {
	t.Helper()
	b := &Chromium{t: t, path: Need(t, "chromium"), home: t.TempDir()}
	db := filepath.Join(b.home, ".pki", "nssdb")
	if err := os.MkdirAll(db, 0o700); err != nil {
		t.Fatal(err)
	}
	certutil := Need(t, "certutil")
	RunBounded(t, exec.Command(certutil, "-d", "sql:"+db, "-N", "--empty-password"))
	for _, file := range trusted {
		RunBounded(t, exec.Command(certutil, "-d", "sql:"+db, "-A", "-t", "C,,", "-n", file, "-i", file))
	}
	b.args = []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
		"--proxy-server=" + proxy, "--proxy-bypass-list=<-loopback>",
		"--user-data-dir=" + filepath.Join(b.home, "profile"), "--timeout=20000",
	}
	if version == "1.1" {
		b.args = append(b.args, "--disable-http2")
	}
	return b
}

// Visit loads a page and returns the text that the browser shows.
func (b *Chromium) Visit(url string) string {
	b.t.Helper()
	cmd := exec.Command(b.path, append(slices.Clone(b.args), "--dump-dom", url)...)
	cmd.Env = append(os.Environ(), "HOME="+b.home)
	return RunBounded(b.t, cmd)
}
