package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const modules = "github.com/caddyserver/caddy/v2/modules"

// leftOut are the packages of Caddy's standard modules that are not in the binary.
var leftOut = []string{modules + "/caddypki/acmeserver"}

// imports returns the packages that a package imports when it is built for an operating system.
func imports(t *testing.T, goos, pkg string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f", `{{join .Imports "\n"}}`, pkg)
	cmd.Env = append(os.Environ(), "GOOS="+goos)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

// The binary must have all of Caddy's standard modules except leftOut, and the time zones, because
// the system may lack them.
// system may lack them.
func TestModules(t *testing.T) {
	t.Parallel()
	standard := imports(t, "linux", modules+"/standard")
	if len(standard) < 10 {
		t.Fatalf("found only %q as Caddy's standard modules, want at least 10", standard)
	}
	for goos, hasZones := range map[string]bool{"linux": true, "darwin": false} {
		own := imports(t, goos, ".")
		for _, pkg := range standard {
			if has, want := slices.Contains(own, pkg), !slices.Contains(leftOut, pkg); has != want {
				t.Errorf("%s: %s is in the binary: %t, want %t", goos, pkg, has, want)
			}
		}
		if slices.Contains(own, "time/tzdata") != hasZones {
			t.Errorf("%s: time/tzdata is in the binary: %t, want %t", goos, !hasZones, hasZones)
		}
	}
	for _, pkg := range leftOut {
		if !slices.Contains(standard, pkg) {
			t.Errorf("leftOut has %s, which is not one of Caddy's standard modules", pkg)
		}
	}
}
