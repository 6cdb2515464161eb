//go:build slow

package operate

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// TestLogrotate rotates an unsealed log in each way that logrotate supports, and checks which file
// gets the next line (docs/operate.md, "Rotate the log").
func TestLogrotate(t *testing.T) {
	t.Parallel()
	rename := func(t *testing.T, g *rig.Gateway, log string) {
		t.Helper()
		if err := os.Rename(log, log+".1"); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(log, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	copytruncate := func(t *testing.T, _ *rig.Gateway, log string) {
		t.Helper()
		text, err := os.ReadFile(log)
		if err == nil {
			err = os.WriteFile(log+".1", text, 0o600)
		}
		if err == nil {
			err = os.Truncate(log, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		name, options string
		rotate        func(*testing.T, *rig.Gateway, string)
		into          string // the end of the name of the file that gets the next line
		zeros, warns  bool
	}{
		{"rename and reload", "roll_disabled", func(t *testing.T, g *rig.Gateway, log string) {
			t.Helper()
			rename(t, g, log)
			if err := g.Reload(g.Config); err != nil {
				t.Fatal(err)
			}
		}, ".1", false, true},
		{"rename and reload, Caddy rotates too", "roll_size 1MiB", func(t *testing.T, g *rig.Gateway, log string) {
			t.Helper()
			rename(t, g, log)
			if err := g.Reload(g.Config); err != nil {
				t.Fatal(err)
			}
		}, ".1", false, true},
		{"rename and SIGUSR1", "roll_disabled", func(t *testing.T, g *rig.Gateway, log string) {
			t.Helper()
			rename(t, g, log)
			if err := g.Cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				t.Fatal(err)
			}
			rig.Eventually(t, "the reload", func() bool { return strings.Contains(g.Stderr.String(), "successfully reloaded config") })
		}, ".1", false, true},
		{"copytruncate", "roll_disabled", copytruncate, "", false, false},
		{"copytruncate, Caddy has rotated too", "roll_size 1MiB", copytruncate, "", true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			log := filepath.Join(rig.TempDir(t), "plain.log")
			g := rig.New(t, rig.Config{
				Engine: rig.PaceOff,
				Global: fmt.Sprintf("log plain {\noutput file %s {\n%s\n}\nformat json\ninclude http.log.access\n}", log, tt.options),
			})
			site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
			for i := range 80 { // more than 1 MiB
				g.MustFetch("Tester/1.0", site.URL(fmt.Sprintf("%s?%d-%s", rig.OpenPage, i, strings.Repeat("x", 14000))))
			}
			tt.rotate(t, g, log)
			g.MustFetch("Tester/1.0", site.URL(rig.OpenPage+"?after"))
			var got string
			rig.Eventually(t, "the next line", func() bool {
				for _, name := range []string{log, log + ".1"} {
					text, err := os.ReadFile(name)
					if err == nil && bytes.Contains(text, []byte("?after")) {
						got = strings.TrimPrefix(name, log)
						if zeros := bytes.HasPrefix(text, []byte{0}); zeros != tt.zeros {
							t.Errorf("%s begins with zeros: %t, want %t", name, zeros, tt.zeros)
						}
						return true
					}
				}
				return false
			})
			if got != tt.into {
				t.Errorf("the next line is in plain.log%s, want plain.log%s", got, tt.into)
			}
			if tt.warns && runtime.GOOS == "linux" {
				rig.Eventually(t, "the warning", func() bool { return strings.Contains(g.Stderr.String(), "a log was renamed") })
			} else if strings.Contains(g.Stderr.String(), "a log was renamed") {
				t.Errorf("the gateway warns without a cause: %s", g.Stderr.String())
			}
		})
	}
}
