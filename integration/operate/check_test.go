//go:build slow

package operate

import (
	"bytes"
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// checked is a machine that check.sh checks. Only the gateway can resolve the name of the site,
// which is one way to close the direct way.
type checked struct {
	*rig.Gateway
	dir         string   // its files
	env         []string // of a machine with the right settings
	allowed     string   // URLs of the site
	refused     string
	http, https string // the site with each scheme
	far         string // a page that only the gateway can connect to
	portal      string // a page that another server answers for other clients
}

// shells are the shells that run check.sh: Debian's sh, Alpine's sh, and the one at most prompts.
var shells = [][]string{{"dash"}, {"busybox", "sh"}, {"bash"}}

// TestCheckFromTheCrawlersSide runs the script that the gateway serves, on a machine with the right
// settings and on others. Each error has its own line, which the right machine does not have.
func TestCheckFromTheCrawlersSide(t *testing.T) {
	t.Parallel()
	m := startChecked(t, "", "")
	plain := m.like(rig.New(t, withSite(m.Config, "")), "") // a gateway without agents
	tests := []struct {
		name   string
		on     *checked // m if nil
		change []string // variables: NAME=value, or NAME for unset
		args   []string // of the script; by default a User-Agent of no agent, and the URLs of the site
		status int
		want   []string // the beginnings of all lines that are not ok, in order
		ok     string   // an ok line that must be there
	}{
		{name: "right", ok: "agent over https: acmebot, known by credential"},
		{name: "right with a bundle", change: []string{"SSL_CERT_FILE=" + m.file("bundle.pem")}, ok: "SSL_CERT_FILE: " + m.file("bundle.pem") + " has the certificate\n"},
		{name: "right with line ends of Windows", change: []string{"SSL_CERT_FILE=" + m.file("crlf.pem")}, ok: "SSL_CERT_FILE: " + m.file("crlf.pem") + " has the certificate and no other"},
		{name: "right with no_proxy", change: []string{"no_proxy=localhost,.svc, 10.0.0.0/8"}, ok: "no_proxy: leaves"},
		{name: "right by User-Agent", on: plain, args: []string{"otherbot/1.0"}, ok: "agent over http: otherbot, known by user_agent"},
		{name: "right, by the gateway's own pages", args: []string{"", m.allowed, ""}, ok: "refused: https://crawlgate.invalid/refused: deny; reason=operator_deny"},
		{name: "an address that is closed", args: []string{"", m.far}, ok: "direct way: closed to " + m.far + " (curl: 7)"},
		{name: "a site that forbids", args: []string{"", m.http + "/own403"}, ok: "allowed: " + m.http + "/own403"},
		{
			name: "no variables", change: []string{"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"}, status: 1,
			want: []string{
				"WRONG  http_proxy: not set, and curl", "WRONG  HTTP_PROXY: not set", "WRONG  https_proxy: not set", "WRONG  HTTPS_PROXY: not set",
				"WRONG  agent over http: not known", "WRONG  agent over https: not known", "??     certificate: not tried",
				"??     allowed: " + m.http, "??     allowed: " + m.https, "??     refused: ", "??     refused: ",
			},
		},
		{
			name: "upper case only", change: []string{"http_proxy", "https_proxy"}, status: 1,
			want: []string{
				"WRONG  http_proxy: not set, and curl", "WRONG  https_proxy: not set", "WRONG  agent over http: not known",
				"??     allowed: " + m.http, "??     refused: " + m.http,
			},
		},
		{name: "lower case only for https", change: []string{"HTTPS_PROXY"}, status: 1, want: []string{"WRONG  HTTPS_PROXY: not set"}},
		{
			name: "variables of nobody", change: []string{"http_proxy=http://bot:right@" + rig.FreePort(t)}, status: 1,
			want: []string{"WRONG  http_proxy: does not lead", "WRONG  agent over http: not known", "??     allowed: ", "??     refused: "},
		},
		{
			name: "variables of another proxy", change: []string{"https_proxy=" + otherProxy(t)}, status: 1,
			want: []string{
				"WRONG  https_proxy: does not lead", "WRONG  agent over https: not known", "??     certificate: not tried", "WRONG  allowed: ", "??     refused: ",
			},
		},
		{
			name: "another gateway", change: []string{"HTTP_PROXY=http://" + rig.New(t, rig.Config{}).Addr}, status: 1,
			want: []string{"WRONG  HTTP_PROXY: does not lead"},
		},
		{name: "no scheme", change: []string{"HTTP_PROXY=" + m.Addr}, status: 1, want: []string{"WRONG  HTTP_PROXY: does not begin"}},
		{
			name: "no_proxy for all", change: []string{"no_proxy=*"}, status: 1,
			want: []string{
				"WRONG  no_proxy: takes", "WRONG  agent over http: not known", "WRONG  agent over https: not known", "??     certificate: not tried",
				"??     allowed: ", "??     allowed: ", "??     refused: ", "??     refused: ",
			},
		},
		{name: "no_proxy for all among others", change: []string{"no_proxy=localhost,*"}, status: 1, want: []string{"WRONG  no_proxy: takes"}}, // curl ignores it there
		{name: "NO_PROXY for .com", change: []string{"NO_PROXY=localhost, *.com"}, status: 1, want: []string{"WRONG  NO_PROXY: takes"}},
		{
			name: "no_proxy for the site", change: []string{"no_proxy=127.0.0.1"}, status: 1,
			args: []string{"", strings.ReplaceAll(m.http, "shop.test", "127.0.0.1") + "/"},
			want: []string{"WRONG  allowed: http://127.0.0.1", "WRONG  direct way: open"},
		},
		{
			name: "certificate not trusted", change: []string{"CURL_CA_BUNDLE", "SSL_CERT_FILE"}, status: 1,
			want: []string{"WRONG  certificate: curl: (60)", "WRONG  SSL_CERT_FILE: not set", "WRONG  CURL_CA_BUNDLE: not set"},
		},
		{
			name: "another certificate", change: []string{"SSL_CERT_FILE=" + m.file("other.pem")}, status: 1,
			want: []string{"WRONG  SSL_CERT_FILE: " + m.file("other.pem") + " does not have"},
		},
		{
			name: "no such file", change: []string{"SSL_CERT_FILE=" + m.file("none.pem")}, status: 1,
			want: []string{"WRONG  SSL_CERT_FILE: " + m.file("none.pem") + " is not a readable file"},
		},
		{
			name: "a bundle without a line end", change: []string{"REQUESTS_CA_BUNDLE=" + m.file("torn.pem")}, status: 1,
			want: []string{"WRONG  REQUESTS_CA_BUNDLE: " + m.file("torn.pem") + " does not have"},
		},
		{
			name: "a path of this folder", change: []string{"CURL_CA_BUNDLE=ca.crt"}, status: 1,
			want: []string{"WRONG  CURL_CA_BUNDLE: ca.crt is not"},
		},
		{name: "nothing for Node", change: []string{"NODE_EXTRA_CA_CERTS"}, status: 1, want: []string{"WRONG  NODE_EXTRA_CA_CERTS: not set"}},
		{
			name: "direct way open", args: []string{"", strings.ReplaceAll(m.http+"/ "+m.https+"/", "shop.test", "localhost")}, status: 1,
			want: []string{"WRONG  direct way: open. http://localhost", "WRONG  direct way: open. https://localhost"},
		},
		{name: "a captive portal", args: []string{"", m.portal}, status: 2, want: []string{"??     direct way: something answers for " + m.portal}},
		{
			name: "unnamed", change: m.proxies(m.Addr), status: 1,
			want: []string{
				"WRONG  agent over http: refused: deny; reason=credentials_missing", "WRONG  agent over https: refused: deny; reason=credentials_missing\n",
				"??     certificate: not tried", "WRONG  allowed: " + m.http, "WRONG  allowed: " + m.https,
			},
		},
		{
			name: "unnamed, and no agents", on: plain, args: []string{"Mozilla/5.0 (X11; Linux x86_64)"}, status: 1,
			want: []string{"WRONG  agent over http: unnamed", "WRONG  agent over https: unnamed"},
		},
		{
			name: "another agent's User-Agent", args: []string{"otherbot/2"}, status: 1,
			want: []string{
				"WRONG  agent over http: refused: deny; reason=user_agent_conflict", "WRONG  agent over https: refused: deny; reason=user_agent_conflict",
				"WRONG  allowed: " + m.http, "WRONG  allowed: " + m.https,
			},
		},
		{
			name: "wrong password", change: m.proxies("bot:wrong@" + m.Addr), status: 1,
			want: []string{
				"WRONG  agent over http: refused: deny; reason=credentials_wrong", "WRONG  agent over https: refused: deny; reason=credentials_wrong",
				"??     certificate: not tried", "WRONG  allowed: ", "WRONG  allowed: ",
			},
		},
		{
			name: "refused is allowed", args: []string{"", m.allowed, m.http + "/"}, status: 1,
			want: []string{"WRONG  refused: " + m.http + "/ is allowed"},
		},
		{name: "allowed is refused", args: []string{"", m.http + "/closed"}, status: 1, want: []string{"WRONG  allowed: " + m.http + "/closed is refused: deny; reason=disallowed"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			on := tt.on
			if on == nil {
				on = m
			}
			on.check(t, tt.change, tt.args, tt.status, tt.want, tt.ok)
		})
	}
}

// TestCheckOfOtherGateways runs the script against gateways that are stopped, that refuse the
// machine, that do not intercept https, or whose certificate is not valid yet.
func TestCheckOfOtherGateways(t *testing.T) {
	t.Parallel()
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		m := startChecked(t, "", "")
		script := m.Own("/check.sh").Body
		m.Stop()
		m.checkWith(t, script, nil, nil, 2, []string{"??     gateway: no answer"}, "")
	})
	t.Run("another server", func(t *testing.T) {
		t.Parallel()
		m := startChecked(t, "", "")
		script := strings.ReplaceAll(m.Own("/check.sh").Body, "http://"+m.Addr, otherProxy(t))
		m.checkWith(t, script, nil, nil, 2, []string{"??     gateway: it is not Crawlgate"}, "")
	})
	t.Run("refuses the client", func(t *testing.T) {
		t.Parallel()
		m := startChecked(t, "", "")
		script := m.Own("/check.sh").Body
		if err := m.Reload(withSite(m.Config, "clients 192.0.2.0/24")); err != nil {
			t.Fatal(err)
		}
		m.checkWith(t, script, nil, nil, 1, []string{"WRONG  gateway: it does not serve this address"}, "")
	})
	t.Run("looks into no https", func(t *testing.T) {
		t.Parallel()
		m := startChecked(t, "", "connect tunnel")
		m.check(t, nil, []string{"", m.http + "/", ""}, 0, nil, "certificate: none is needed")
	})
	t.Run("looks into some https", func(t *testing.T) {
		t.Parallel()
		m := startChecked(t, "", "connect intercept *.test\nconnect tunnel")
		m.check(t, nil, nil, 0, nil, "agent over https: acmebot, known by credential")
	})
	t.Run("only reports", func(t *testing.T) {
		t.Parallel()
		m := startChecked(t, "", "mode report")
		m.check(t, nil, nil, 1, []string{"WRONG  refused: " + m.http, "WRONG  refused: " + m.https}, "")
	})
	t.Run("certificate of tomorrow", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		key, from := rig.NewKey(t), time.Now().Add(time.Hour)
		root := rig.Sign(t, &x509.Certificate{
			Subject: pkix.Name{CommonName: "Acme Root"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
			NotBefore: from, NotAfter: from.Add(1000 * time.Hour),
		}, nil, key, key)
		rig.WritePEM(t, filepath.Join(dir, "root.pem"), "CERTIFICATE", root.Raw)
		rig.WriteKey(t, filepath.Join(dir, "root.key"), key)
		m := startChecked(t, fmt.Sprintf("pki {\nca robots {\nroot {\ncert %[1]s/root.pem\nkey %[1]s/root.key\n}\n}\n}", dir), "")
		m.check(t, nil, nil, 1, []string{"WRONG  certificate: curl: (60) SSL certificate problem: certificate is not yet valid"}, "")
	})
}

// TestCheckIsReadFirst checks that a person can read the script, and that the gateway fills in only
// an address.
func TestCheckIsReadFirst(t *testing.T) {
	t.Parallel()
	shellcheck := rig.Need(t, "shellcheck")
	g := rig.New(t, rig.Config{})
	a := g.Own("/check.sh")
	if a.Status != http.StatusOK || a.Header.Get("Content-Type") != "text/plain; charset=utf-8" || !strings.HasPrefix(a.Body, "#!/bin/sh\n") {
		t.Fatalf("status %d, header %v: %s", a.Status, a.Header, a.Body)
	}
	file := filepath.Join(t.TempDir(), "check.sh")
	if err := os.WriteFile(file, []byte(a.Body), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), shellcheck, file).CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	for line := range strings.Lines(a.Body) {
		if len(line) > 180 {
			t.Errorf("the line is longer than 180 bytes: %s", line)
		}
	}
	for host, want := range map[string]string{"gate.example:3128": "gate.example:3128", "[::1]:3128": "[::1]:3128", "a';id;'": g.Addr, "$(id)": g.Addr, "GATEWAY": "gateway:80"} {
		a, err := g.Dial().Ask(http.MethodGet, "GET /check.sh HTTP/1.1\r\nHost: "+host+"\r\n\r\n")
		if err != nil || a.Status == http.StatusOK && !strings.Contains(a.Body, "\tgateway='http://"+want+"' own=") {
			t.Errorf("Host: %s: %v: %.500s", host, err, a.Body)
		}
	}
}

// TestOwnName requests the gateway's own name through the proxy.
func TestOwnName(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Site: "connect deny"})
	for url, want := range map[string]struct {
		status int
		body   string
	}{
		"http://crawlgate.invalid/agent":     {http.StatusOK, "agent: Tester\nby: user_agent\n"},
		"http://Crawlgate.Invalid:81/agent":  {http.StatusOK, "agent: Tester\nby: user_agent\n"},
		"http://crawlgate.invalid/refused":   {http.StatusForbidden, "operator_deny"},
		"http://crawlgate.invalid/":          {http.StatusNotFound, "There is nothing at this path"},
		"http://crawlgate.invalid/check.sh":  {http.StatusNotFound, "There is nothing at this path"},
		"http://crawlgate.invalid/proxy.pac": {http.StatusNotFound, "There is nothing at this path"},
	} {
		if a := g.MustFetch("Tester/1.0", url); a.Status != want.status || !strings.Contains(a.Body, want.body) {
			t.Errorf("%s: status %d, want %d and %q: %s", url, a.Status, want.status, want.body, a.Body)
		}
	}
	if a := g.Own("/agent"); a.Status != http.StatusNotFound {
		t.Errorf("without the proxy: status %d, want 404: %s", a.Status, a.Body)
	}
	g.Stop()
	for _, l := range g.ReadLogs() {
		if l.Robots.Schema != 0 {
			t.Errorf("a line about the gateway's own page has a decision: %s", l.Raw)
		}
	}
	rig.Audit(t, "--store", g.Store(), g.AccessLog()).Clean(t, "a log of the gateway's own pages")
}

// startChecked starts a site that only the gateway can find, a gateway with two agents, and a
// machine that uses the gateway.
func startChecked(t *testing.T, global, site string) *checked {
	t.Helper()
	authority := rig.NewTestCA(t)
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/robots.txt":
			_, _ = io.WriteString(w, "User-agent: *\nDisallow: /closed\n")
		case "/own403":
			w.WriteHeader(http.StatusForbidden)
		default:
			_, _ = io.WriteString(w, "the site itself\x00\n")
		}
	})
	plain := httptest.NewServer(answer)
	t.Cleanup(plain.Close)
	secure := rig.NewSecureSite(t, authority, answer)
	secure.Config.Handler = answer
	secure.StartTLS()
	secure.Show(authority.Issue(t, []string{"shop.test", "localhost"}, nil))

	dns := rig.StartDNS(t, "127.0.0.9 far.localhost portal.localhost\n", map[string][]string{"shop.test": {"127.0.0.1"}})
	c := rig.Config{
		Engine: rig.Unpaced, Global: global, Wrap: dns.Command,
		Site: site + "\nagent acmebot {\ncredential bot " + rig.Hashed(t, "argon2id") + "\n}\nagent otherbot {\nuser_agent otherbot\nfrom 192.0.2.0/24\n}",
	}.Trusting(authority)
	m := (&checked{
		http:   strings.Replace(plain.URL, "127.0.0.1", "shop.test", 1),
		https:  strings.Replace(secure.URL, "127.0.0.1", "shop.test", 1),
		far:    twoSites(t, false),
		portal: twoSites(t, true),
	}).like(rig.New(t, c), "bot:"+rig.RightPassword+"@")
	m.allowed, m.refused = m.http+"/ "+m.https+"/", m.http+"/closed "+m.https+"/closed"
	return m
}

// like returns a machine that uses another gateway to the same site, with credentials.
func (m *checked) like(g *rig.Gateway, credentials string) *checked {
	n := *m
	n.Gateway, n.dir = g, rig.TempDir(g.T)
	n.env = n.proxies(credentials + g.Addr)
	ca, other := n.Own("/ca.crt"), rig.NewTestCA(g.T)
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"} {
		if ca.Status == http.StatusOK {
			n.env = append(n.env, name+"="+n.file("ca.crt"))
		}
	}
	pem, err := os.ReadFile(other.File)
	if err != nil {
		g.T.Fatal(err)
	}
	for name, text := range map[string]string{
		"ca.crt": ca.Body, "other.pem": string(pem), "bundle.pem": string(pem) + ca.Body + string(pem), "torn.pem": strings.TrimSpace(string(pem)) + ca.Body,
		"crlf.pem": strings.TrimSuffix(strings.ReplaceAll(ca.Body, "\n", "\r\n"), "\r\n"),
	} {
		if err := os.WriteFile(n.file(name), []byte(text), 0o644); err != nil {
			g.T.Fatal(err)
		}
	}
	return &n
}

// withSite returns the configuration with another site block.
func withSite(c rig.Config, site string) rig.Config {
	c.Site = site
	return c
}

func (m *checked) file(name string) string { return filepath.Join(m.dir, name) }

// proxies returns the four variables for a proxy.
func (*checked) proxies(authority string) (env []string) {
	for _, name := range []string{"http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY"} {
		env = append(env, name+"=http://"+authority)
	}
	return env
}

// otherProxy starts a proxy that answers everything itself, like a captive portal.
func otherProxy(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodConnect {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(w, "agent: acmebot, by somebody else\n")
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// twoSites starts a page for the gateway. For other clients, which resolve a name under localhost
// to 127.0.0.1, there is another page or none.
func twoSites(t *testing.T, portal bool) string {
	t.Helper()
	for range 20 {
		far, err := net.Listen("tcp", "127.0.0.9:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(far.Addr().String())
		near, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			_ = far.Close()
			continue
		}
		sites := map[string]net.Listener{"the site itself": far, "log in first": near}
		if !portal {
			delete(sites, "log in first")
			_ = near.Close()
		}
		for text, l := range sites {
			s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/robots.txt" {
					w.WriteHeader(http.StatusNotFound)
					return
				}
				_, _ = io.WriteString(w, text)
			})}}
			s.Start()
			t.Cleanup(s.Close)
		}
		return map[bool]string{true: "http://portal.localhost:", false: "http://far.localhost:"}[portal] + port + "/"
	}
	t.Fatal("no port is free at both addresses")
	return ""
}

func (m *checked) check(t *testing.T, change, args []string, status int, want []string, ok string) {
	t.Helper()
	m.checkWith(t, m.Own("/check.sh").Body, change, args, status, want, ok)
}

// checkWith pipes a script into each shell, and compares its lines and its exit status.
func (m *checked) checkWith(t *testing.T, script string, change, args []string, status int, want []string, ok string) {
	t.Helper()
	curl := rig.Need(t, "curl")
	env := slices.Clone(m.env)
	for _, v := range change {
		name, _, set := strings.Cut(v, "=")
		env = slices.DeleteFunc(env, func(old string) bool { return strings.HasPrefix(old, name+"=") })
		if set {
			env = append(env, v)
		}
	}
	for len(args) < 3 {
		args = append(args, []string{"", m.allowed, m.refused}[len(args)])
	}
	path := rig.TempDir(t) // a PATH with curl only
	if err := os.Symlink(curl, filepath.Join(path, "curl")); err != nil {
		t.Fatal(err)
	}
	for _, shell := range shells {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, rig.Need(t, shell[0]), slices.Concat(shell[1:], []string{"-s", "--"}, args)...)
		cmd.Dir, cmd.Env, cmd.Stdin = m.dir, append(env, "PATH="+path), strings.NewReader(script)
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		err := cmd.Run()
		code := 0
		if exit, is := errors.AsType[*exec.ExitError](err); is {
			code = exit.ExitCode()
		} else if err != nil {
			t.Fatal(err)
		}
		out := stdout.String()
		var got []string
		for line := range strings.Lines(out) {
			if !strings.HasPrefix(line, "ok     ") {
				got = append(got, line)
			}
		}
		if code != status || !slices.EqualFunc(got, want, strings.HasPrefix) || !strings.Contains(out, "ok     "+ok) && ok != "" || stderr.Len() > 0 {
			t.Errorf("%s: status %d, want %d with %q and %q:\n%s%s", shell[0], code, status, want, ok, out, stderr.Bytes())
		}
		for _, secret := range []string{rig.RightPassword + "@", "wrong@", "bot:"} {
			if strings.Contains(out, secret) {
				t.Errorf("%s: the output has a password:\n%s", shell[0], out)
			}
		}
	}
}
