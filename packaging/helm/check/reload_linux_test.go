package check

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestReload runs the gateway and the container that reloads it, as in the chart, on a folder that
// changes like a volume that the kubelet mounts.
func TestReload(t *testing.T) {
	p := startPod(t, several+"console: {enabled: true, existingSecret: console}\n")

	p.mount(p.with("engine: user_agent Second/1.0"))
	p.await("the second configuration", p.runs("Second/1.0"))

	p.mount(p.with("engine: nonsense"))
	p.await("the refusal of a Caddyfile with a fault", func() bool { return strings.Contains(p.reload.text(t), "nonsense") })
	if !p.runs("Second/1.0")() || p.status(p.proxy, "/health") != http.StatusOK {
		t.Error("a Caddyfile with a fault has changed the gateway")
	}
	late := filepath.Join(p.folder, "late.pem")
	files := p.with("engine: \"user_agent Third/1.0\\negress {\\n  trust_ca " + late + "\\n}\"")
	p.mount(files)
	p.await("the refusal of a configuration that lacks a file", func() bool { return strings.Contains(p.reload.text(t), late) })
	if err := os.WriteFile(late, []byte(files["ca/ca.crt"]), 0o600); err != nil {
		t.Fatal(err)
	}
	p.await("another try", p.runs("Third/1.0"))

	root := addAuthority(t, files)
	p.mount(files)
	p.await("the renewed authority", func() bool { return p.get(p.proxy, "/ca.crt") == root })

	second := startRedis(t)
	files["redis/url"] = second.url + "\n"
	p.mount(files)
	p.await("the other Redis", second.hasGateway)

	p.reload.interrupt(t)
	p.await("the end of the container that reloads", p.reload.ended)
	root = addAuthority(t, files)
	p.mount(files)
	p.startReload()
	p.await("the authority that was renewed while the container was not running", func() bool { return p.get(p.proxy, "/ca.crt") == root })
	p.gateway.interrupt(t)
	p.await("the health check to fail", func() bool { return p.status(p.metrics, "/health") == http.StatusServiceUnavailable })
	if got := p.get(p.proxy, "/ca.crt"); got != root {
		t.Errorf("the gateway that is about to stop serves %q, want the CA certificate", got)
	}
	p.await("the end of the gateway", p.gateway.ended)
}

// TestProbes checks that a gateway whose connections are all in use is healthy for the kubelet, and
// that the operator's page requires a login.
func TestProbes(t *testing.T) {
	p := startPod(t, several+"console: {enabled: true, existingSecret: console}\nengine: \"limits {\\n  connections 1\\n}\"\n")
	p.await("the limit", func() bool {
		crawler, err := net.Dial("tcp", "127.0.0.1:"+p.proxy) // again, because a connection that ends may still have the only place
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { crawler.Close() })
		return p.status(p.proxy, "/health") == http.StatusServiceUnavailable
	})
	if got := p.status(p.metrics, "/health"); got != http.StatusOK {
		t.Errorf("/health of a full gateway: got status %d, want 200", got)
	}
	if got := p.get(p.metrics, "/metrics"); !strings.Contains(got, "crawlgate_build_info") {
		t.Errorf("metrics lack crawlgate_build_info: %.200q", got)
	}
	if got := p.status(p.console, "/"); got != http.StatusUnauthorized {
		t.Errorf("the operator's page without a login: got status %d, want 401", got)
	}
}

// testPod is a gateway and its container "reload".
type testPod struct {
	t               *testing.T
	values, folder  string
	paths           *strings.Replacer
	first           map[string]string // the files of the volume at the start
	mounted         int
	watch           []string // the command of the container "reload"
	gateway, reload *process
	proxy, metrics  string // ports, like the next one
	console         string
	admin           http.Client
}

func startPod(t *testing.T, values string) *testPod {
	t.Helper()
	folder := t.TempDir()
	proxy, metrics, console := freePort(t), freePort(t), freePort(t)
	p := &testPod{
		t: t, values: values, folder: folder,
		paths: strings.NewReplacer(
			"/etc/crawlgate", folder+"/etc", "/run/crawlgate", folder+"/run", ":3128", ":"+proxy, ":9180", ":"+metrics, ":9181", ":"+console,
			"sleep 10", "sleep 0.1", "shutdown_delay 10s", "shutdown_delay 1s",
		),
		proxy: proxy, metrics: metrics, console: console,
		admin: http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", folder+"/run/admin.sock")
		}}},
	}
	p.first = map[string]string{
		"redis/url":     startRedis(t).url,
		"console/users": "dora $2a$14$gM89t0Hf62dKTbFSyQ382OSlE0TtJ1TZMkvw8.LiXCd7JbH4IW2K2\n",
	}
	addAuthority(t, p.first)
	for _, name := range []string{"etc", "run", "data"} {
		if err := os.Mkdir(filepath.Join(folder, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	p.mount(p.with(""))

	set, _ := statefulSet(t, values)
	containers := set.Spec.Template.Spec.Containers
	p.gateway = start(t, exec.Command(gateway(t), p.all(containers[0].Args)...), "XDG_DATA_HOME="+folder+"/data", "XDG_CONFIG_HOME="+folder+"/data/config")
	p.await("the start", func() bool { return p.status(metrics, "/health") == http.StatusOK })
	need(t, "curl")
	if !strings.Contains(containers[1].Image, "@sha256:") {
		t.Errorf("the image %s has no digest", containers[1].Image)
	}
	p.watch = p.all(command(containers[1]))
	p.startReload()
	p.await("the first load of the configuration", func() bool { return strings.Contains(p.gateway.text(t), "load complete") })
	return p
}

// startReload starts or restarts the container that reloads.
func (p *testPod) startReload() {
	p.t.Helper()
	shell := exec.Command(need(p.t, "busybox"), p.watch...)
	shell.SysProcAttr = firstProcess()
	p.reload = start(p.t, shell)
}

// firstProcess makes a process the first one of its container, which only ends on signals that it
// catches.
func firstProcess() *syscall.SysProcAttr {
	same := func(id int) []syscall.SysProcIDMap {
		return []syscall.SysProcIDMap{{ContainerID: id, HostID: id, Size: 1}}
	}
	return &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID, UidMappings: same(os.Getuid()), GidMappings: same(os.Getgid()),
	}
}

func command(c corev1.Container) []string { return append(c.Command, c.Args...) }

func (p *testPod) all(args []string) []string {
	var mapped []string
	for _, arg := range args {
		mapped = append(mapped, p.paths.Replace(arg))
	}
	return mapped
}

// with returns the files of the volume, with additional values for the chart.
func (p *testPod) with(values string) map[string]string {
	_, caddyfile := statefulSet(p.t, p.values+values)
	files := map[string]string{"Caddyfile": p.paths.Replace(caddyfile)}
	maps.Copy(files, p.first)
	return files
}

// mount changes the volume like the kubelet: it writes the files to a new folder, and then replaces
// the link ..data atomically.
func (p *testPod) mount(files map[string]string) {
	p.t.Helper()
	volume := filepath.Join(p.folder, "etc")
	p.mounted++
	name := "..2026_" + strconv.Itoa(p.mounted)
	for file, text := range files {
		path := filepath.Join(volume, name, file)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o400); err != nil {
			p.t.Fatal(err)
		}
		top, _, _ := strings.Cut(file, "/")
		if err := os.Symlink("..data/"+top, filepath.Join(volume, top)); err != nil && !os.IsExist(err) {
			p.t.Fatal(err)
		}
	}
	if err := os.Symlink(name, filepath.Join(volume, "..data_tmp")); err != nil {
		p.t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(volume, "..data_tmp"), filepath.Join(volume, "..data")); err != nil {
		p.t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(volume, "..2026_"+strconv.Itoa(p.mounted-1))); err != nil {
		p.t.Fatal(err)
	}
}

// runs reports whether the gateway's configuration contains a text.
func (p *testPod) runs(text string) func() bool {
	return func() bool {
		answer, err := p.admin.Get("http://localhost/config/")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return strings.Contains(string(body), text)
	}
}

// client does not keep connections open.
var client = http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func (p *testPod) status(port, path string) int {
	answer, err := client.Get("http://127.0.0.1:" + port + path)
	if err != nil {
		return 0
	}
	answer.Body.Close()
	return answer.StatusCode
}

func (p *testPod) get(port, path string) string {
	answer, err := client.Get("http://127.0.0.1:" + port + path)
	if err != nil {
		return err.Error()
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	return string(body)
}

func (p *testPod) await(what string, done func() bool) {
	p.t.Helper()
	if !soon(done) {
		for _, process := range []*process{p.gateway, p.reload} {
			if process != nil {
				p.t.Log(process.text(p.t))
			}
		}
		p.t.Fatalf("%s did not come", what)
	}
}

// soon waits until a condition that processes fulfil is true.
func soon(done func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); <-tick.C {
		if done() {
			return true
		}
	}
	return false
}

// process is a program that ends with its test, with its output file.
type process struct {
	cmd    *exec.Cmd
	output string
	done   chan struct{}
}

func start(t *testing.T, cmd *exec.Cmd, env ...string) *process {
	t.Helper()
	p := &process{cmd: cmd, output: filepath.Join(t.TempDir(), "output"), done: make(chan struct{})}
	file, err := os.Create(p.output)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), env...), file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *process) text(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(p.output)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// interrupt asks the process to end, like the kubelet.
func (p *process) interrupt(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

type redis struct{ url, port string }

func startRedis(t *testing.T) redis {
	t.Helper()
	r := redis{port: freePort(t)}
	r.url = "redis://:secret@127.0.0.1:" + r.port
	start(t, exec.Command(need(t, "redis-server"), "--port", r.port, "--bind", "127.0.0.1", "--requirepass", "secret", "--save", "", "--dir", t.TempDir()))
	if !soon(func() bool { return r.ask("PING") == "PONG" }) {
		t.Fatal("Redis did not start")
	}
	return r
}

func (r redis) ask(args ...string) string {
	out, _ := exec.Command("redis-cli", append([]string{"-p", r.port, "-a", "secret", "--no-auth-warning"}, args...)...).Output()
	return strings.TrimSpace(string(out))
}

func (r redis) hasGateway() bool { return r.ask("ZCARD", "{crawlgate}:fleet:gateways") == "1" }

// freePort returns a port that the kernel gives to no other program before the test ends: it is
// bound here, so only a program that requests its number gets it.
func freePort(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Bind(fd, new(syscall.SockaddrInet4)); err != nil {
		t.Fatal(err)
	}
	address, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(address.(*syscall.SockaddrInet4).Port)
}

// addAuthority adds the files of a certificate authority, and returns its root.
func addAuthority(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	sign := func(name string, parent *x509.Certificate, signer *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, string) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		template := &x509.Certificate{
			SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(240 * time.Hour),
		}
		if parent == nil {
			parent, signer = template, key
		}
		der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			t.Fatal(err)
		}
		return certificate, key, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	parent, signer, root := sign("root", nil, nil)
	_, key, intermediate := sign("intermediate", parent, signer)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	files["ca/ca.crt"], files["ca/tls.crt"] = root, intermediate
	files["ca/tls.key"] = string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
	return root
}
