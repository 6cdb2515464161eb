//go:build slow

package fleet

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestFleetScript runs examples/fleet without containers. Through HAProxy one page is refused and
// another passes, one gateway fetches a host's robots.txt, and no process is left at the end.
func TestFleetScript(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "redis-cli", "haproxy"} {
		rig.Need(t, program)
	}
	addresses := func(n int) (all, ports []string) {
		for range n {
			all = append(all, rig.FreePort(t))
			ports = append(ports, port(all[len(all)-1]))
		}
		return all, ports
	}
	gateways, gatewayPorts := addresses(3)
	redis, redisPorts := addresses(6)
	bus, busPorts := addresses(6)
	balancer, demo := rig.FreePort(t), rig.FreePort(t)
	s := startScript(t, "fleet",
		"REDIS_SERVER="+redistest.Program(t), "BALANCER_PORT="+port(balancer), "DEMO_PORT="+port(demo),
		"GATEWAY_PORTS="+strings.Join(gatewayPorts, " "), "REDIS_PORTS="+strings.Join(redisPorts, " "), "BUS_PORTS="+strings.Join(busPorts, " "))
	client := proxied(balancer)
	rig.Eventually(t, "the gateways answer by HAProxy", func() bool {
		a, err := rig.TryGet(t.Context(), client, "http://"+demo+"/hello")
		return err == nil && a.Status == http.StatusOK
	})
	if a := rig.Get(t, client, "http://"+demo+"/private/page"); a.Status != http.StatusForbidden {
		t.Errorf("status %d, want 403: %s\n%s", a.Status, a.Body, s.out)
	}
	s.stop()
	gone(t, append(append(append(gateways, redis...), bus...), balancer, demo)...)
}

// TestFleetExample checks the files of examples/fleet against each other and against docs/fleet.md.
func TestFleetExample(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(testdocs.Path("examples", "fleet", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var compose struct {
		Services map[string]struct {
			Command, Volumes []string
			Environment      map[string]string
		}
	}
	if err := yaml.Unmarshal([]byte(read("compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	if len(compose.Services) != 12 {
		t.Errorf("%d services, want 12", len(compose.Services))
	}
	script := read("run.sh")
	for name, s := range compose.Services {
		for key := range s.Environment {
			if !strings.Contains(script, key+"=") && key != "REDIS_CLI" {
				t.Errorf("%s: run.sh does not set %s", name, key)
			}
		}
		for _, word := range s.Command {
			if strings.HasPrefix(word, "--") && !strings.Contains(script, word) {
				t.Errorf("%s: run.sh lacks %s", name, word)
			}
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if _, err := os.Stat(testdocs.Path("examples", "fleet", source)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	_, recipe, _ := strings.Cut(testdocs.Text(t, "fleet.md"), "```haproxy\n")
	recipe, _, _ = strings.Cut(recipe, "```")
	example := strings.NewReplacer(
		`"${BALANCER}"`, ":3128", `"${GATEWAY_1}"`, "gw1.acme.example:3128",
		`"${GATEWAY_2}"`, "gw2.acme.example:3128", `"${GATEWAY_3}"`, "gw3.acme.example:3128",
	).Replace(read("haproxy.cfg"))
	if _, example, _ = strings.Cut(example, "\n"); example != recipe {
		t.Errorf("haproxy.cfg differs from docs/fleet.md: %s", example)
	}
}
