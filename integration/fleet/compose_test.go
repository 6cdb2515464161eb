//go:build slow

package fleet

import (
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// script is a running script of an example.
type script struct {
	t     *testing.T
	cmd   *exec.Cmd
	out   *rig.Tail
	ended chan error
}

// startScript runs an example's script with variables until it reports its demo site.
func startScript(t *testing.T, example string, variables ...string) *script {
	t.Helper()
	s := &script{t: t, cmd: exec.Command("bash", testdocs.Path("examples", example, "run.sh")), out: new(rig.Tail), ended: make(chan error, 1)}
	s.cmd.Env = append(append(os.Environ(), "CRAWLGATE="+rig.Binary, "TMPDIR="+rig.TempDir(t)), variables...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(s.stop)
	for !strings.Contains(s.out.String(), "demo site http") { // the script bounds its waits
		select {
		case err := <-s.ended:
			s.cmd = nil
			t.Fatalf("run.sh: %v\n%s", err, s.out)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return s
}

// stop makes the script stop the processes that it started.
func (s *script) stop() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-s.ended:
		if err != nil {
			s.t.Errorf("run.sh: %v\n%s", err, s.out)
		}
	case <-time.After(rig.Patience):
		_ = s.cmd.Process.Kill()
		s.t.Errorf("run.sh does not exit\n%s", s.out)
	}
	s.cmd = nil
}

// proxied returns a client of the proxy at an address.
func proxied(addr string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: addr}), DisableKeepAlives: true,
	}, Timeout: rig.Patience}
}

// gone checks that nothing listens at the addresses.
func gone(t *testing.T, addresses ...string) {
	t.Helper()
	for _, addr := range addresses {
		if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
			_ = conn.Close()
			t.Errorf("%s still accepts connections", addr)
		}
	}
}

// port returns the port of an address.
func port(addr string) string { return addr[strings.LastIndexByte(addr, ':')+1:] }

// TestComposeScript runs examples/compose without containers, and types the commands of
// docs/compose.md. One page is refused and another passes, a stop works, Prometheus scrapes the
// gateway, and no process is left at the end.
func TestComposeScript(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"bash", "curl", "redis-server", "prometheus"} {
		rig.Need(t, program)
	}
	dir := rig.TempDir(t)
	ports, variables := map[string]string{}, []string{"TMPDIR=" + dir}
	for _, name := range []string{"GATEWAY_PORT", "METRICS_PORT", "DEMO_PORT", "REDIS_PORT", "PROMETHEUS_PORT"} {
		ports[name] = rig.FreePort(t)
		variables = append(variables, name+"="+port(ports[name]))
	}
	s, client := startScript(t, "compose", variables...), proxied(ports["GATEWAY_PORT"])
	for page, want := range map[string]int{"/hello": http.StatusOK, "/private/page": http.StatusForbidden} {
		if a, err := rig.TryGet(t.Context(), client, "http://"+ports["DEMO_PORT"]+page); err != nil || a.Status != want {
			t.Errorf("%s: %+v, error %v, want status %d\n%s", page, a, err, want, s.out)
		}
	}
	sockets, err := filepath.Glob(filepath.Join(dir, "*", "admin.sock"))
	if err != nil || len(sockets) != 1 {
		t.Fatalf("sockets %q, error %v, want one socket", sockets, err)
	}
	typeCompose(t, "CRAWLGATE_GATEWAY=unix/"+sockets[0], strings.NewReplacer(":3128", ports["GATEWAY_PORT"][len("127.0.0.1"):],
		":8080", ports["DEMO_PORT"][len("127.0.0.1"):], "docker compose exec gateway crawlgate", rig.Binary, "\ncrawlgate ", "\n"+rig.Binary+" "))
	rig.Eventually(t, "Prometheus to see the gateway", func() bool {
		a, err := rig.TryGet(t.Context(), http.DefaultClient, "http://"+ports["PROMETHEUS_PORT"]+"/api/v1/query?query=up==1")
		return err == nil && strings.Contains(a.Body, `"job":"crawlgate"`)
	})
	s.stop()
	gone(t, slices.Collect(maps.Values(ports))...)
}

// typeCompose types the commands of docs/compose.md, except those that start everything, and checks
// their output.
func typeCompose(t *testing.T, gateway string, here *strings.Replacer) {
	t.Helper()
	prints := []string{"200\n403\n", "1 of 1 gateways", "LAST HEARTBEAT"}
	for _, block := range strings.Split(testdocs.Text(t, "compose.md"), "```sh\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.HasPrefix(block, "docker compose up") || block == "./run.sh\n" {
			continue
		}
		if len(prints) == 0 {
			t.Fatalf("the page has the unexpected block %s", block)
		}
		command := strings.ReplaceAll(here.Replace("\n"+block), "curl ", `curl -s -o /dev/null -w '%{http_code}\n' `)
		cmd := exec.CommandContext(t.Context(), "bash", "-ec", command)
		cmd.Env = append(os.Environ(), gateway)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), prints[0]) {
			t.Errorf("%s: error %v\n%s\nwant %q", command, err, out, prints[0])
		}
		prints = prints[1:]
	}
	if len(prints) > 0 {
		t.Errorf("the page has no commands that print %q", prints)
	}
}

// TestComposeFile checks compose.yaml against run.sh, because there is no container engine here.
// The mounted files exist, and the ports and commands are the script's.
func TestComposeFile(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		text, err := os.ReadFile(testdocs.Path("examples", "compose", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var compose struct {
		Services map[string]struct {
			Command, Ports, Volumes []string
			Environment             map[string]string
			Healthcheck             struct{ Test []string }
		}
		Volumes map[string]any
	}
	if err := yaml.Unmarshal([]byte(read("compose.yaml")), &compose); err != nil {
		t.Fatal(err)
	}
	script := read("run.sh")
	health := compose.Services["gateway"].Healthcheck.Test
	if len(health) < 3 || health[0] != "CMD" || health[1] != "crawlgate" || !strings.Contains(script, "\n\"$bin\" "+strings.Join(health[2:], " ")) {
		t.Errorf("run.sh lacks the health check %q", health)
	}
	if len(compose.Services) != 4 {
		t.Errorf("%d services, want 4", len(compose.Services))
	}
	for name, s := range compose.Services {
		for key, value := range s.Environment {
			if want := key + "=${" + key + ":-" + value + "}"; strings.HasSuffix(key, "_PORT") && !strings.Contains(script, want) {
				t.Errorf("%s: run.sh lacks %s", name, want)
			}
			if !strings.HasSuffix(key, "_PORT") && !strings.Contains(script, key+"=") {
				t.Errorf("%s: run.sh does not set %s", name, key)
			}
		}
		for _, p := range s.Ports {
			if inside := p[strings.LastIndexByte(p, ':')+1:]; !strings.Contains(script, ":-"+inside+"}") {
				t.Errorf("%s: run.sh lacks the port %s", name, inside)
			}
		}
		for _, word := range s.Command {
			option, _, _ := strings.Cut(word[strings.LastIndexByte(word, '/')+1:], "=")
			if flag, _, found := strings.Cut(word, "="); found {
				option = flag
			}
			if !strings.Contains(script, option) {
				t.Errorf("%s: run.sh lacks %s", name, option)
			}
		}
		for _, v := range s.Volumes {
			source, _, _ := strings.Cut(v, ":")
			if _, named := compose.Volumes[source]; named {
				continue
			}
			if _, err := os.Stat(testdocs.Path("examples", "compose", source)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if targets := read("prometheus.yml"); !strings.Contains(targets, "gateway:"+compose.Services["gateway"].Environment["METRICS_PORT"]) {
		t.Errorf("prometheus.yml does not have the gateway: %s", targets)
	}
}

// TestComposeWayOut checks that in examples/egress/compose.yaml only the gateway has a network with
// a way out, that the gateway does not forward packets, and that crawlers.nft can name it.
func TestComposeWayOut(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(testdocs.Path("examples", "egress", "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Networks    any
			Environment map[string]string
			Sysctls     map[string]int
			CapDrop     []string       `yaml:"cap_drop"`
			Further     map[string]any `yaml:",inline"`
		}
		Networks map[string]struct {
			Internal   bool
			DriverOpts map[string]string `yaml:"driver_opts"`
		}
	}
	if err := yaml.Unmarshal(text, &compose); err != nil {
		t.Fatal(err)
	}
	inside := compose.Networks["crawlers"]
	if !inside.Internal || inside.DriverOpts["com.docker.network.bridge.name"] != "br-crawlers" {
		t.Errorf("the crawlers' network is %+v", inside)
	}
	gateway := compose.Services["gateway"]
	networks, _ := gateway.Networks.(map[string]any)
	address, _ := networks["crawlers"].(map[string]any)
	if _, outside := networks["outside"]; !outside || len(networks) != 2 || address["ipv4_address"] != "172.30.0.2" {
		t.Errorf("the gateway's networks are %v", networks)
	}
	if forwards, said := gateway.Sysctls["net.ipv4.ip_forward"]; forwards != 0 || !said {
		t.Error("the gateway may forward packets")
	}
	for name, s := range compose.Services {
		for _, key := range []string{"network_mode", "privileged", "cap_add", "extra_hosts", "ports", "pid"} {
			if s.Further[key] != nil {
				t.Errorf("%s has the forbidden key %s", name, key)
			}
		}
		if name == "gateway" {
			continue
		}
		if networks, _ := s.Networks.([]any); len(networks) != 1 || networks[0] != "crawlers" || s.Environment["http_proxy"] != "http://gateway:3128" {
			t.Errorf("%s has the networks %v and the proxy %q", name, networks, s.Environment["http_proxy"])
		}
		if len(s.CapDrop) != 1 || s.CapDrop[0] != "NET_RAW" {
			t.Errorf("%s keeps NET_RAW", name)
		}
	}
}
