package identity

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
)

// TestWhatLeaves checks what the site learns about the sender of each kind of request, and what the
// log has about it.
func TestWhatLeaves(t *testing.T) {
	t.Parallel()
	v := startVerifier(t, "")
	v.keygen(t, "")
	ended := filepath.Join(t.TempDir(), "ended.jwk")
	if err := os.WriteFile(ended, []byte(`{"kty":"OKP","crv":"Ed25519","d":"`+strings.Repeat("A", 43)+`","exp":5}`), 0o600); err != nil {
		t.Fatal(err)
	}
	g := rig.New(t, v.config(`agent ended {
		send_user_agent "ended/2.0"
		sign {
			keys `+ended+`
			directory https://bot.acme.example
		}
	}
	agent passing {
		pass signature
	}
	agent plain
	unidentified allow`))
	var mu sync.Mutex
	var arrived http.Header
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == "/page" {
			arrived = r.Header.Clone()
		}
		_, _ = io.WriteString(w, "")
	})
	plain := httptest.NewServer(handler)
	defer plain.Close()
	secure := rig.StartSecureSite(t, v.ca, handler)
	ours := "AcmeBot/2.1 (+https://bot.acme.example)"
	for i, c := range []struct {
		client, url        string
		agent, from, signs string // at the site
		unsigned           string
	}{
		{"AcmeBot/1.0", plain.URL, ours, "crawl@acme.example", "", "scheme"},
		{"AcmeBot/1.0", secure.At(""), ours, "crawl@acme.example", "ours", ""},
		{"ended", secure.At(""), "ended/2.0", "client@client.example", "", "no_key"},
		{"ended", plain.URL, "ended/2.0", "client@client.example", "", "scheme"},
		{"plain/1.0", secure.At(""), "plain/1.0", "client@client.example", "", ""},
		{"passing/1.0", secure.At(""), "passing/1.0", "client@client.example", "client", ""},
		{"Stranger/1.0", secure.At(""), "Stranger/1.0", "client@client.example", "", ""},
	} {
		w := g.Dial()
		a, err := w.Ask(http.MethodGet, "GET "+c.url+"/page HTTP/1.1\r\nHost: x\r\nUser-Agent: "+c.client+"\r\nFrom: client@client.example\r\n"+
			"Signature: client=:AA==:\r\nSignature-Input: client=();created=1\r\nSignature-Agent: \"https://client.example\"\r\n\r\n")
		_ = w.Close()
		mu.Lock()
		h := arrived
		mu.Unlock()
		signs := ""
		switch input := h.Get("Signature-Input"); {
		case strings.HasPrefix(input, "sig1=("):
			signs = "ours"
		case input != "" && h.Get("Signature") == "client=:AA==:":
			signs = "client"
		case input+h.Get("Signature")+h.Get("Signature-Agent") != "":
			signs = "in part"
		}
		if err != nil || a.Status != http.StatusOK || h.Get("User-Agent") != c.agent || h.Get("From") != c.from || signs != c.signs {
			t.Errorf("%s to %s: status %d, header %v, signed %q, error %v", c.client, c.url, a.Status, h, signs, err)
		}
		l := g.Logs(i + 1)[i].Robots
		sent := ""
		if c.agent != c.client {
			sent = c.agent
		}
		if l.Unsigned != c.unsigned || (l.Signed != "") != (c.signs == "ours") || l.UserAgentSent != sent || l.UserAgent != c.client {
			t.Errorf("%s to %s: the log line is %+v", c.client, c.url, l)
		}
	}
	for result, want := range map[string]float64{`acmebot",owner="",result="scheme`: 1, `ended",owner="",result="no_key`: 1, `ended",owner="",result="scheme`: 1, `acmebot",owner="",result="signed`: 1} {
		if n := g.Metric(`crawlgate_agent_signatures_total{agent="` + result + `"}`); n != want {
			t.Errorf("%s: the metric is %v, want %v", result, n, want)
		}
	}
	g.Stop()
	if out, err := rig.RunBinary(t, "robots", "why", "--store", g.Store(), "--url", secure.At("/page"), "--agent", "acmebot", g.AccessLog()); !regexp.MustCompile(`(?m)^sent as +AcmeBot/2\.1 .*\nsigned by +\S{43} \(dictionary\)$`).MatchString(out) {
		t.Errorf("why: error %v, output %s", err, out)
	}
	if run := rig.Audit(t, "--store", g.Store(), g.AccessLog()); run.Status != 0 {
		t.Errorf("the audit returned %+v, want status 0", run)
	}
}

// TestUnseenTunnel checks that the line of a blind tunnel says that nothing in it is signed, and
// that a request that a site refuses is counted after it was signed.
func TestUnseenTunnel(t *testing.T) {
	t.Parallel()
	v := startVerifier(t, "")
	v.keygen(t, "")
	g := rig.New(t, v.config("connect tunnel localhost:"+v.ports[0]+"\nconnect intercept"))
	w := g.Dial()
	if resp := w.Connect(t, "localhost:"+v.ports[0], "AcmeBot/1.0"); resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	inner, err := w.Over(t, &tls.Config{RootCAs: v.trusting().RootCAs, ServerName: "localhost"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := inner.Ask(http.MethodGet, "GET /page HTTP/1.1\r\nHost: localhost:"+v.ports[0]+"\r\nUser-Agent: AcmeBot/1.0\r\n\r\n")
	_ = inner.Close()
	if err != nil || !strings.Contains(a.Body, `"lines":0,`) || !strings.Contains(a.Body, `"userAgent":"AcmeBot/1.0"`) {
		t.Errorf("status %d, body %s, error %v", a.Status, a.Body, err)
	}
	if l := g.Logs(1)[0]; l.Request.Method != http.MethodConnect || l.Robots.Unsigned != "tunnel" || l.Robots.Signed != "" || l.Robots.UserAgentSent != "" {
		t.Errorf("the log line is %s", l.Raw)
	}
	if one, err := newCrawler(g).ask(t.Context(), false, "localhost:"+v.ports[1], "/forbidden"); err != nil || !one.right(young) {
		t.Errorf("%+v, error %v", one, err)
	}
	g.Logs(2)
	for name, labels := range map[string]string{"signatures": `result="tunnel"`, "signed_rejected": `status="403"`} {
		if n := g.Metric(`crawlgate_agent_` + name + `_total{agent="acmebot",owner="",` + labels + `}`); n != 1 {
			t.Errorf("%s %s: the metric is %v, want 1", name, labels, n)
		}
	}
}

// TestRetrySignedAnew checks that a request that is repeated after its kept connection breaks gets
// a new signature.
func TestRetrySignedAnew(t *testing.T) {
	t.Parallel()
	v := startVerifier(t, "")
	v.keygen(t, "")
	g := rig.New(t, v.config(""))
	cert := v.ca.Issue(t, []string{"localhost"}, nil)
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*cert}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var mu sync.Mutex
	var inputs []string
	serve := func(conn net.Conn) {
		defer conn.Close()
		r := bufio.NewReader(conn)
		for {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			mu.Lock()
			if strings.HasPrefix(req.URL.Path, "/page") {
				inputs = append(inputs, req.Header.Get("Signature-Input"))
			}
			breaks := len(inputs) == 2
			mu.Unlock()
			if breaks {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for i := range 2 {
		if a := g.MustFetch("AcmeBot/1.0", fmt.Sprintf("https://localhost:%s/page/%d", port, i)); a.Status != http.StatusOK {
			t.Fatalf("status %d, want 200: %s", a.Status, a.Body)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if len(inputs) != 3 || inputs[1] == "" || inputs[1] == inputs[2] {
		t.Errorf("%d requests with the signatures %q, want 3 with different ones", len(inputs), inputs)
	}
}

// TestKeysAtLoad checks that a configuration is refused if its keys cannot be read or are another
// agent's too. The message names the file or the key, and contains no secret.
func TestKeysAtLoad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	secret := strings.Repeat("A", 42)
	key := `{"kty":"OKP","crv":"Ed25519","d":"` + secret + `A"}`
	one, two, broken := write("one.jwk", key), write("two.jwk", `{"keys":[`+key+`]}`), write("broken.jwk", key[:len(key)-2])
	agent := func(name, file string) string {
		return "agent " + name + " {\nsign {\nkeys " + file + "\ndirectory https://bot.acme.example\n}\n}\n"
	}
	for agents, want := range map[string]string{
		agent("a", one): "",
		agent("a", filepath.Join(dir, "none.jwk")):   "none.jwk: no such file",
		agent("a", broken):                           broken + ": reading keys: no JSON Web Key at byte",
		agent("a", one) + agent("b", two):            "sign: keys: " + two + ": key ",
		agent("a", one) + "agent b {\ntoken bb\n}\n": "",
	} {
		config := write("Caddyfile", "{\nadmin off\nstorage file_system "+dir+"\n}\n:3128 {\nrobots {\n"+agents+"}\n}\n")
		out, err := rig.RunBinary(t, "validate", "--config", config)
		if (err == nil) != (want == "") || !strings.Contains(out, want) || strings.Contains(out, secret) {
			t.Errorf("%s: error %v, want %q in the output %s", agents, err, want, out)
		}
	}
}
