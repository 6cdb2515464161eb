package identity

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

// verdict is the output of verify.mjs about a request.
type verdict struct {
	Path, Authority, Version string
	Verified                 bool
	Why                      string
	Lines                    int // the number of fields of a signature
	Key, Nonce, Tag          string
	Age                      float64 // seconds
	Signature                []string
	UserAgent, From          string
}

// verifier is an origin that verifies signatures, with a port for HTTP/1.1 and one for HTTP/2.
type verifier struct {
	ports []string
	ca    *rig.TestCA
	keys  string // the file of the agent's keys
}

func startVerifier(t *testing.T, robots string) *verifier {
	t.Helper()
	node, dir := rig.Need(t, "node"), rig.NodePrograms(t, ".")
	v := &verifier{ca: rig.NewTestCA(t), keys: filepath.Join(t.TempDir(), "acmebot.jwk")}
	cert := v.ca.Issue(t, []string{"localhost", "127.0.0.1"}, nil)
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	rig.WritePEM(t, certFile, "CERTIFICATE", cert.Certificate...)
	rig.WriteKey(t, keyFile, cert.PrivateKey)
	cmd := exec.Command(node, "verify.mjs", certFile, keyFile, v.keys, robots)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close() // which ends it
		_ = cmd.Wait()
	})
	var one, two string
	if _, err := fmt.Fscan(stdout, &one, &two); err != nil {
		t.Fatal(err)
	}
	v.ports = []string{one, two}
	return v
}

// config returns a configuration that signs for acmebot. The address gets the string form, the name
// the dictionary.
func (v *verifier) config(more string) rig.Config {
	return rig.Config{Engine: rig.Unpaced, Site: fmt.Sprintf(`agent acmebot {
		token AcmeBot
		send_user_agent "AcmeBot/2.1 (+https://bot.acme.example)"
		send_from crawl@acme.example
		sign {
			keys %s
			directory https://bot.acme.example
			string 127.0.0.1
		}
	}
	%s`, v.keys, more)}.Trusting(v.ca)
}

// trusting returns the TLS configuration of a client that does not use the gateway.
func (v *verifier) trusting() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(v.ca.Cert)
	return &tls.Config{RootCAs: pool}
}

// keygen types the commands of docs/identity.md for a new key and for a rotation.
func (v *verifier) keygen(t *testing.T, flags string) {
	t.Helper()
	commands := regexp.MustCompile("(?m)^```sh\n(.*\n)```$").FindAllStringSubmatch(testdocs.Text(t, "identity.md"), -1)
	if len(commands) != 2 {
		t.Fatalf("docs/identity.md has %d commands, want 2", len(commands))
	}
	typed := strings.NewReplacer("sudo -u crawlgate ", "", "crawlgate robots", rig.Binary+" robots", "/var/lib/crawlgate/acmebot.jwk", v.keys)
	for i, c := range commands {
		line := strings.TrimSpace(typed.Replace(c[1]))
		if i == 0 {
			line += " " + flags
		}
		out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
		if err != nil || !strings.Contains(string(out), " signs\n") || strings.Contains(string(out), `"d"`) {
			t.Fatalf("%s: error %v, output %s", line, err, out)
		}
	}
}

// crawler sends requests in both ways: in absolute form, and inside intercepted tunnels.
type crawler struct {
	g      *rig.Gateway
	wire   *rig.Wire
	client *http.Client
}

func newCrawler(g *rig.Gateway) *crawler {
	return &crawler{g, g.Dial(), g.SecureClient("AcmeBot/1.0", 1)}
}

// ask sends a request with a signature of the client, which the gateway must remove.
func (c *crawler) ask(ctx context.Context, tunnel bool, authority, path string) (v verdict, err error) {
	var a rig.Answer
	if tunnel {
		var r *http.Request
		if r, err = http.NewRequestWithContext(ctx, http.MethodGet, "https://"+authority+path, http.NoBody); err != nil {
			return v, err
		}
		r.Header["Signature"], r.Header["Signature-Agent"] = []string{"client=:AA==:"}, []string{`"https://client.example"`}
		resp, err := c.client.Do(r)
		if err != nil {
			return v, err
		}
		a, err = rig.ReadAnswer(resp)
		if err != nil {
			return v, err
		}
	} else {
		a, err = c.wire.Ask(http.MethodGet, "GET https://"+authority+path+" HTTP/1.1\r\nHost: "+authority+"\r\nUser-Agent: AcmeBot/1.0\r\n"+
			"Signature: client=:AA==:\r\nSignature-Input: client=();created=1\r\nSignature-Agent: \"https://client.example\"\r\n\r\n")
		if err != nil {
			return v, err
		}
	}
	if err := json.Unmarshal([]byte(a.Body), &v); err != nil {
		return v, fmt.Errorf("status %d, %s: %w", a.Status, a.Body, err)
	}
	return v, nil
}

// young is the greatest age of a signature at the site in tests that are not about ages. The
// machine may be slow.
const young = 30

// right reports whether the only signature is the gateway's, verifies, and is at most age seconds
// old.
func (v verdict) right(age float64) bool {
	form := `sig1="https://bot.acme.example/.well-known/http-message-signatures-directory"`
	if strings.HasPrefix(v.Authority, "127.0.0.1:") {
		form = `"https://bot.acme.example"`
	}
	return v.Verified && v.Lines == 3 && v.Tag == "web-bot-auth" && v.Age <= age && v.Signature[2] == form &&
		v.UserAgent == "AcmeBot/2.1 (+https://bot.acme.example)" && v.From == "crawl@acme.example"
}

// TestSignatures verifies every request with npm's http-message-signatures, over HTTP/1.1 and
// HTTP/2, in absolute form and inside tunnels, in both forms, through three rotations as
// docs/identity.md types them. No nonce is repeated.
func TestSignatures(t *testing.T) {
	t.Parallel()
	requests := 400
	if rig.Long() {
		requests = 10_000
	}
	v := startVerifier(t, "")
	v.keygen(t, "")
	g := rig.New(t, v.config(""))
	const workers = 8
	var mu sync.Mutex
	all := make(map[string]verdict) // by nonce
	sent := 0
	send := func(n int) {
		var wg sync.WaitGroup
		for w := range workers {
			c := newCrawler(g)
			wg.Go(func() {
				for i := w; i < n; i += workers {
					authority := []string{"localhost", "127.0.0.1"}[i/4%2] + ":" + v.ports[i%2]
					one, err := c.ask(t.Context(), i/2%2 == 0, authority, fmt.Sprintf("/page/%d?q=%d", i, i))
					mu.Lock()
					if all[one.Nonce] = one; err != nil || !one.right(young) {
						t.Errorf("%s: %+v, error %v", authority, one, err)
					}
					sent++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
	}
	keys := func() []string {
		used := make(map[string]bool)
		for _, one := range all {
			used[one.Key] = true
		}
		return slices.Sorted(maps.Keys(used))
	}
	for rotation := 1; rotation <= 4; rotation++ {
		rig.Eventually(t, "requests with a new key", func() bool {
			send(workers)
			return len(keys()) == rotation || t.Failed()
		})
		send(requests / 4)
		if rotation < 4 {
			v.keygen(t, "--after 1s")
		}
	}
	versions := make(map[string]int)
	for _, one := range all {
		versions[one.Version]++
	}
	if len(all) != sent || sent < requests || len(keys()) != 4 || versions["1.1"] < requests/3 || versions["2.0"] < requests/3 {
		t.Errorf("%d requests with %d nonces, HTTP versions %v, keys %v", sent, len(all), versions, keys())
	}
	t.Logf("%d requests verified, by HTTP version %v, keys %v", sent, versions, keys())
	wantLogged(t, g, sent, all)
}

// wantLogged checks that the log names the keys, and that the metrics count the signatures.
func wantLogged(t *testing.T, g *rig.Gateway, sent int, all map[string]verdict) {
	t.Helper()
	keys := make(map[string]int)
	for _, one := range all {
		keys[one.Key]++
	}
	for _, l := range g.Logs(sent) {
		if l.Request.Method == http.MethodConnect {
			continue
		}
		form := "dictionary"
		if strings.HasPrefix(l.Request.Host, "127.0.0.1:") {
			form = "string"
		}
		if keys[l.Robots.Signed]--; l.Robots.SignatureForm != form || l.Robots.UserAgentSent != "AcmeBot/2.1 (+https://bot.acme.example)" || l.Robots.UserAgent != "AcmeBot/1.0" || l.Robots.Unsigned != "" {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
	for key, n := range keys {
		if n != 0 {
			t.Errorf("the log lacks %d requests with key %s", n, key)
		}
	}
	if n := g.Metric(`crawlgate_agent_signatures_total{agent="acmebot",owner="",result="signed"}`); n != float64(sent) {
		t.Errorf("the metric counts %v signatures, want %d", n, sent)
	}
}

// TestReplay checks that another authority does not accept the signature that a site got.
func TestReplay(t *testing.T) {
	t.Parallel()
	v := startVerifier(t, "")
	v.keygen(t, "")
	c := newCrawler(rig.New(t, v.config("")))
	direct := &http.Client{Transport: &http.Transport{TLSClientConfig: v.trusting(), DisableKeepAlives: true}}
	for _, tunnel := range []bool{false, true} {
		for _, hosts := range [][2]string{{"localhost", "127.0.0.1"}, {"127.0.0.1", "localhost"}} {
			one, err := c.ask(t.Context(), tunnel, hosts[0]+":"+v.ports[0], "/page")
			if err != nil || !one.right(young) {
				t.Fatalf("the first request: %+v, error %v", one, err)
			}
			for i, host := range hosts {
				again := one.replay(t, direct, host+":"+v.ports[0])
				if again.Verified != (i == 0) || again.Lines != 3 {
					t.Errorf("sent to %s, replayed at %s: %+v", hosts[0], host, again)
				}
			}
		}
	}
}

func (v verdict) replay(t *testing.T, direct *http.Client, authority string) (again verdict) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+authority+v.Path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for i, name := range []string{"Signature", "Signature-Input", "Signature-Agent"} {
		r.Header.Set(name, v.Signature[i])
	}
	resp, err := direct.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// TestSignedAfterTheWait checks that a request that waits for a Crawl-delay is signed after the
// wait, so that no signature at the site is older than 2 s.
func TestSignedAfterTheWait(t *testing.T) {
	t.Parallel()
	delay := 1
	if rig.Long() {
		delay = 5
	}
	const crowd = 4
	v := startVerifier(t, fmt.Sprintf("User-agent: *\nCrawl-delay: %d\n", delay))
	v.keygen(t, "")
	g := rig.New(t, v.config(""))
	var wg sync.WaitGroup
	for i := range crowd {
		c := newCrawler(g)
		wg.Go(func() {
			if one, err := c.ask(t.Context(), i%2 == 0, "localhost:"+v.ports[1], "/page"); err != nil || !one.right(2) {
				t.Errorf("%+v, error %v, want a signature of at most 2s", one, err)
			}
		})
	}
	wg.Wait()
	longest := int64(0)
	for _, l := range g.Logs(crowd) {
		longest = max(longest, l.Robots.WaitMillis)
	}
	if least := time.Duration(crowd-1) * time.Duration(delay) * time.Second; time.Duration(longest)*time.Millisecond < least-time.Second/2 {
		t.Errorf("the longest wait is %d ms, want at least %s", longest, least)
	}
}

// TestKeysAfterAReload checks that a request that waits while its configuration ends is signed with a key that came after that.
func TestKeysAfterAReload(t *testing.T) {
	t.Parallel()
	v := startVerifier(t, "User-agent: *\nCrawl-delay: 6\n")
	v.keygen(t, "")
	config := v.config("")
	g := rig.New(t, config)
	used := make(chan string, 2)
	for i := range cap(used) {
		c := newCrawler(g)
		go func() {
			one, err := c.ask(t.Context(), i == 0, "localhost:"+v.ports[1], "/page")
			if err != nil || !one.right(young) {
				t.Errorf("%+v, %v", one, err)
			}
			used <- one.Key
		}()
	}
	former := <-used
	if err := g.Reload(config); err != nil {
		t.Error(err)
	}
	if err := os.Remove(v.keys); err != nil {
		t.Error(err)
	}
	v.keygen(t, "")
	if key := <-used; key == former {
		t.Errorf("%s signs after its file was replaced", key)
	}
}

// TestSignedRobotsTxt checks the fetch of robots.txt in the agent's name after a site refuses the
// gateway's own. Each hop has the agent's User-Agent and From, and a signature for the host of that
// hop. The gateway's own fetch lacks them.
func TestSignedRobotsTxt(t *testing.T) {
	t.Parallel()
	v := startVerifier(t, "knows crawlers")
	v.keygen(t, "")
	g := rig.New(t, v.config(""))
	for _, port := range v.ports {
		origin := "https://localhost:" + port
		if a := g.MustFetch("AcmeBot/1.0", origin+"/private"); a.Status != http.StatusForbidden || !strings.Contains(a.Header.Get("Crawlgate-Decision"), "disallowed") {
			t.Fatalf("status %d, want 403: %s", a.Status, a.Body)
		}
	}
	transport := &http.Transport{TLSClientConfig: v.trusting()}
	defer transport.CloseIdleConnections()
	var seen []verdict
	if err := json.Unmarshal([]byte(rig.Get(t, &http.Client{Transport: transport}, "https://localhost:"+v.ports[0]+"/seen").Body), &seen); err != nil {
		t.Fatal(err)
	}
	if len(seen) != 6 {
		t.Fatalf("%d fetches, want 6: %+v", len(seen), seen)
	}
	for i, one := range seen {
		own := i%3 == 0
		if own && (one.Lines > 0 || one.From != "" || !strings.HasPrefix(one.UserAgent, "crawlgate/")) || !own && !one.right(young) {
			t.Errorf("fetch %d: %+v", i, one)
		}
	}
	if n := g.Metric(`crawlgate_agent_signatures_total{agent="acmebot",owner="",result="signed"}`); n != 4 {
		t.Errorf("the metric counts %v signed fetches, want 4", n)
	}
}
