package rig

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// haproxyRecipe returns the configuration in docs/fleet.md with other addresses and any number of
// gateways.
func haproxyRecipe(t *testing.T, bind string, gateways []*Gateway) string {
	t.Helper()
	_, recipe, _ := strings.Cut(testdocs.Text(t, "fleet.md"), "```haproxy\n")
	recipe, _, found := strings.Cut(recipe, "```")
	replace := []string{"bind :3128", "bind " + bind}
	for i, g := range gateways {
		replace = append(replace, fmt.Sprintf("gw%d.acme.example:3128", i+1), g.Addr)
	}
	for i := 0; i < len(replace); i += 2 {
		if found = found && strings.Contains(recipe, replace[i]); !found {
			t.Fatalf("docs/fleet.md lacks %q", replace[i])
		}
	}
	var lines strings.Builder
	for line := range strings.Lines(strings.NewReplacer(replace...).Replace(recipe)) {
		if !strings.Contains(line, ".acme.example:") {
			lines.WriteString(line)
		}
	}
	return lines.String()
}

// StartHAProxy runs HAProxy with the configuration in docs/fleet.md, and more, in front of
// gateways. Clients use it like a gateway.
func StartHAProxy(t *testing.T, gateways []*Gateway, more string) *Gateway {
	t.Helper()
	balancer := &Gateway{T: t, Dir: TempDir(t), Addr: FreePort(t)}
	file := filepath.Join(balancer.Dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(haproxyRecipe(t, balancer.Addr, gateways)+more), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), Need(t, "haproxy"), "-db", "-f", file)
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(said.String())
		}
	})
	Eventually(t, "haproxy listens", func() bool {
		conn, err := net.DialTimeout("tcp", balancer.Addr, time.Second)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	return balancer
}
