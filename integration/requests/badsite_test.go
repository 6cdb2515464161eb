package requests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestSitesThatCannotWork runs the binary with configurations that would answer some requests with
// Caddy's empty 200, that RFC 9309 does not permit, or that contradict themselves. Neither
// `validate` nor `run` may accept them in any form.
func TestSitesThatCannotWork(t *testing.T) {
	t.Parallel()
	const gateway = `{"handler":"robots"}`
	around := func(handler string) string { return `{"handler":"subroute","routes":[{"handle":[` + handler + `]}]}` }
	site := func(match, handler string) string {
		return `{"match":[` + match + `],"handle":[` + handler + `],"terminal":true}`
	}
	const host, path = `{"host":["example.com"]}`, `{"path":["/foo"]}`
	for _, tt := range []struct{ name, text, err string }{
		{"a host", "http://example.com:PORT {\nrobots\n}", "must not name a host (example.com)"},
		{"a host", site(host, around(gateway)), "must not name a host (example.com)"},
		{"a host, the gateway in a handle", site(host, around(around(gateway))), "must not name a host (example.com)"},
		{"a host, the gateway in a route in a handle", site(host, around(around(around(gateway)))), "must not name a host (example.com)"},
		{"a path", "http://:PORT/foo {\nrobots\n}", "must not name a path (/foo)"},
		{"a path", site(path, around(gateway)), "must not name a path (/foo)"},
		{"a path, the gateway in a handle", site(path, around(around(gateway))), "must not name a path (/foo)"},
		{"a matcher", "http://:PORT {\nrobots /foo\n}", "takes no matcher"},
		{"a named matcher", "http://:PORT {\n@m method GET\nrobots @m\n}", "takes no matcher"},
		{"a handle with a matcher", `{"match":[` + path + `],"handle":[` + around(gateway) + `]}`, "behind a matcher"},
		{
			"a handle with a matcher in a site", `{"handle":[{"handler":"subroute","routes":[{"match":[` + path + `],"handle":[` + around(gateway) + `]}]}],"terminal":true}`,
			"behind a matcher",
		},
		{"two gateways", "http://:PORT {\nrobots\nrobots\n}", "given twice in a site"},
		{"a long fetch", "{\nrobots {\nfetch {\ntimeout 6m\n}\n}\n}\nhttp://:PORT {\nrobots\n}", "timeout 6m0s is above 5m"},
		{"a long fetch", "", "timeout 6m0s is above 5m"},
		{
			"two lines that contradict each other",
			"{\nrobots {\nlimits {\nconnections_per_source 2\ntunnel_age 1h\nconnections 1\n}\n}\n}\nhttp://:PORT {\nrobots\n}",
			"connections_per_source 2 is more than connections 1, at FILE:6",
		},
		{
			"a rule that hides another", "http://:PORT {\nrobots {\nconnect tunnel\nconnect deny a.example\nunidentified allow\n}\n}",
			"connect tunnel: applies to every host, so the rules after it are never reached, at FILE:4",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if strings.Contains(tt.text, "\n") {
				refuses(t, "caddyfile", tt.text, tt.err)
				return
			}
			routes, robots := tt.text, "{}"
			if tt.text == "" {
				routes, robots = `{"handle":[`+gateway+`]}`, `{"fetch":{"timeout":"6m"}}`
			}
			text := fmt.Sprintf(`{"admin":{"disabled":true},"apps":{"http":{"servers":{"srv0":{"listen":["127.0.0.1:PORT"],"routes":[%s]}}},"robots":%s}}`,
				routes, robots)
			var indented bytes.Buffer
			if err := json.Indent(&indented, []byte(text), "", "  "); err != nil {
				t.Fatal(err)
			}
			refuses(t, "json", text, tt.err)
			refuses(t, "json", indented.String(), tt.err)
		})
	}
}

// refuses checks that the binary exits with an error that contains the given text, where FILE
// stands for the configuration. An error in a Caddyfile also has a line.
func refuses(t *testing.T, adapter, text, want string) {
	t.Helper()
	dir := rig.TempDir(t)
	_, port, _ := strings.Cut(rig.FreePort(t), ":")
	file := filepath.Join(dir, "config."+adapter)
	text, want = strings.ReplaceAll(text, "PORT", port), strings.ReplaceAll(want, "FILE", file)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	line := ""
	if adapter == "caddyfile" {
		line = ", at " + file + ":"
	}
	for _, command := range []string{"validate", "run"} {
		args := []string{command, "--config", file}
		if adapter == "caddyfile" {
			args = append(args, "--adapter", adapter)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		cmd := exec.CommandContext(ctx, rig.Binary, args...)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.Env = append(os.Environ(), "XDG_DATA_HOME="+dir, "XDG_CONFIG_HOME="+dir)
		out, err := cmd.CombinedOutput()
		if err == nil || ctx.Err() != nil || !bytes.Contains(out, []byte(want)) || !bytes.Contains(out, []byte(line)) {
			t.Errorf("%s: error %v, want %q\n%s\noutput:\n%s", command, err, want, text, out)
		}
		cancel()
	}
}
