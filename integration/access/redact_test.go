//go:build slow

package access

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// secret must be in no log.
const secret = "s3cr3t"

// passwords are targets with a password, as clients write them by mistake. HOST stands for a host
// and port.
var passwords = []string{
	"http://u:s3cr3t@HOST/page", "HTTP://u:s3cr3t@HOST/page", "http://s3cr3t@HOST/", "https://u:s3cr3t@HOST/?q", "http://u:s3cr3t@HOST@HOST/",
	"//u:s3cr3t@HOST/page", "///u:s3cr3t@HOST/page", "http:/u:s3cr3t@HOST/page", "http:///u:s3cr3t@HOST/page", "http:u:s3cr3t@HOST/page",
	"http:u:s3/cr3t@HOST/page", `http:\\u:s3cr3t@HOST/page`, `http:/\u:s3cr3t@HOST/page`, `/\u:s3cr3t@HOST/page`, "u:s3cr3t@HOST/page",
	"ftp://u:s3cr3t@HOST/page", "http://u:s3cr3t@HOST:bad", "http://u:s3cr3t@HOST\t/",
	"http://u:s3cr3t@HOST/?u=http://u:s3cr3t@HOST/",
}

// TestNoPasswordInAnyLog sends targets with passwords to everything that reads requests, and
// searches everything that the gateway writes at level debug.
func TestNoPasswordInAnyLog(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	secure := rig.StartSecureSite(t, authority, nil)
	plain := httptest.NewServer(http.HandlerFunc(rig.ServePages))
	defer plain.Close()
	host := strings.TrimPrefix(plain.URL, "http://")
	c, port := rig.Config{Engine: rig.Unpaced, Global: "debug"}.Trusting(authority).WithTLSPort(t, authority, "")
	g := rig.New(t, c)
	read := 0 // requests that net/http could read; only these are logged
	check := func(where, target string, a rig.Answer, err error) {
		t.Helper()
		if err != nil || a.Status != http.StatusBadRequest || strings.Contains(a.Body+fmt.Sprint(a.Header), secret) {
			t.Errorf("%s, %s: status %d, error %v, want 400 without the password: %v %.100s", where, target, a.Status, err, a.Header, a.Body)
		}
		if strings.Contains(a.Header.Get("Crawlgate-Decision"), "bad_target") {
			read++
		}
	}
	for _, way := range []struct {
		name, host string
		open       func() *rig.Wire
	}{
		{"absolute form", host, g.Dial},
		{"by TLS", host, func() *rig.Wire { return port.Dial(t) }},
		{"plain HTTP in a tunnel", host, func() *rig.Wire { return g.Tunnel(host) }},
		{"inside a tunnel", secure.Authority(), func() *rig.Wire { return rig.Inside(t, g.Tunnel(secure.Authority())) }},
	} {
		for _, password := range passwords {
			target := strings.ReplaceAll(password, "HOST", way.host)
			a, err := way.open().Ask(http.MethodGet, "GET "+target+" HTTP/1.1\r\nHost: "+way.host+"\r\nUser-Agent: Tester/1.0\r\n\r\n")
			check(way.name, target, a, err)
		}
		for _, target := range []string{"u:s3cr3t@" + way.host, "s3cr3t@" + way.host, "U:S3CR3T@" + way.host, "http://u:s3cr3t@" + way.host + "/"} {
			a, err := way.open().Ask(http.MethodConnect, "CONNECT "+target+" HTTP/1.1\r\nHost: "+way.host+"\r\n\r\n")
			check("CONNECT, "+way.name, target, a, err)
		}
	}
	for _, fields := range [][]string{
		{":method", "CONNECT", ":authority", "u:s3cr3t@" + host},
		{":method", "GET", ":scheme", "https", ":authority", "u:s3cr3t@" + host, ":path", "/page"},
		{":method", "GET", ":scheme", "https", ":authority", host, ":path", "http://u:s3cr3t@" + host + "/page"},
		{":method", "GET", ":scheme", "https", ":authority", host, ":path", "//u:s3cr3t@" + host + "/page"},
	} {
		a, err := port.RawH2(t).Ask(fields...)
		if err == nil || !strings.Contains(err.Error(), "PROTOCOL_ERROR") { // net/http refuses some of them
			check("HTTP/2", fmt.Sprint(fields), a, err)
		}
		if fields[1] == http.MethodConnect {
			continue
		}
		conn, err := g.Tunnel(secure.Authority()).Over(t, &tls.Config{InsecureSkipVerify: true, ServerName: "localhost", NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		a, err = rig.NewRawH2(t, conn).Ask(fields...)
		if err == nil || !strings.Contains(err.Error(), "PROTOCOL_ERROR") {
			check("HTTP/2 inside a tunnel", fmt.Sprint(fields), a, err)
		}
	}
	leaveWith(t, g, "GET "+plain.URL+"/page HTTP/1.1\r\nHost: "+host+"\r\nReferer: http://u:s3cr3t@h/\r\nX-Api-Key: s3cr3t\r\n\r\n")
	scrape := g.Admin("/metrics").Body
	g.Stop()
	lines := 0
	for _, l := range g.ReadLogs() {
		if l.Robots.Reason == enforce.ReasonBadTarget {
			lines++
		}
		if strings.Contains(l.Request.URI, "REDACTED") && (l.Robots.Decision != "deny" || l.Status != http.StatusBadRequest || l.Size == 0) {
			t.Errorf("the log line is %s", l.Raw)
		}
	}
	if lines != read || read < 50 {
		t.Errorf("%d log lines for %d requests", lines, read)
	}
	log, err := os.ReadFile(g.AccessLog())
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"access log": string(log), "own log": g.Stderr.String(), "metrics": scrape} {
		for line := range strings.Lines(text) {
			if strings.Contains(strings.ToLower(line), secret) || strings.Contains(line, "cr3t@") {
				t.Errorf("the %s contains the password: %s", name, line)
			}
		}
	}
	if n := secure.Arrived(); len(n) > 0 {
		t.Errorf("requests reached the site: %+v", n)
	}
}

// TestPasswordsInOtherURLs sends URLs with passwords in paths, queries and fields. Sites get them
// unchanged, logs do not.
func TestPasswordsInOtherURLs(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	type arrival struct{ target, origin, link string }
	arrived := make(chan arrival, 1)
	site := rig.StartSecureSite(t, authority, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- arrival{r.RequestURI, r.Header.Get("Origin"), r.Header.Get("Link")}
		w.Header().Set("Link", "<http://u:s3cr3t@h/>; rel=next")
	}))
	g := rig.New(t, rig.Config{Engine: rig.Unpaced, Global: "debug"}.Trusting(authority))
	for _, target := range []string{
		"/http://u:s3cr3t@h/page", "/page?u=http://s3cr3t@h/", "/page?u=http%3A%2F%2Fu%3As3cr3t%40h%2F&v=https://u:s3cr3t@i",
		"/x/../http://u:s3cr3t@h/", // the rules match its resolved path
	} {
		want := arrival{target, "http://u:s3cr3t@h", "<http://h/>, <ftp://u:s3cr3t@h/>"}
		request := " HTTP/1.1\r\nHost: " + site.Authority() + "\r\nUser-Agent: Tester/1.0\r\nOrigin: " + want.origin + "\r\nLink: " + want.link + "\r\n\r\n"
		for _, way := range []func() (rig.Answer, error){
			func() (rig.Answer, error) { return g.Dial().Ask(http.MethodGet, "GET "+site.At(target)+request) },
			func() (rig.Answer, error) {
				return rig.Inside(t, g.Tunnel(site.Authority())).Ask(http.MethodGet, "GET "+target+request)
			},
		} {
			a, err := way()
			if err != nil || a.Status != http.StatusOK || a.Header.Get("Link") != "<http://u:s3cr3t@h/>; rel=next" {
				t.Fatalf("%s: status %d, error %v, header %v", target, a.Status, err, a.Header)
			}
			if got := <-arrived; got != want {
				t.Errorf("the site got %q, want %q", got, want)
			}
		}
	}
	g.Stop()
	log, err := os.ReadFile(g.AccessLog())
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log) + g.Stderr.String()) {
		if strings.Contains(line, secret) {
			t.Errorf("the log contains the password: %s", line)
		}
	}
	if n := strings.Count(string(log), "REDACTED@h"); n < 8 {
		t.Errorf("%d marks in the log, want at least 8", n)
	}
}

// leaveWith sends a request for a page that waits, and closes the connection. Caddy then writes to
// its error log.
func leaveWith(t *testing.T, g *rig.Gateway, request string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	w := g.Dial()
	first := strings.Index(request, "http://")
	rest := request[first+len("http://"):]
	request = request[:first] + "http://" + l.Addr().String() + rest[strings.IndexByte(rest, '/'):]
	if _, err := w.Write([]byte(request)); err != nil {
		t.Fatal(err)
	}
	conn, err := l.Accept() // the fetch of robots.txt, which waits
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = w.Close()
	rig.Eventually(t, "the line of the request that was left", func() bool { return strings.Contains(g.Stderr.String(), "the client left") })
}

// TestRedactedFields checks that the logs hide the values of fields with keys, and that the site
// and the client get these fields unchanged.
func TestRedactedFields(t *testing.T) {
	t.Parallel()
	authority := rig.NewTestCA(t)
	arrived := make(chan http.Header, 1)
	site := rig.StartSecureSite(t, authority, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		arrived <- r.Header
		w.Header().Set("X-Auth-Token", secret)
		w.Header().Set("X-Own", secret)
		w.Header().Set("Trailer", "X-Checksum")
		_, _ = w.Write([]byte("page"))
		w.Header().Set("X-Checksum", "42")
	}))
	for _, tt := range []struct {
		name, engine string
		hidden       []string // of the request's fields
		hiddenBack   []string // of the answer's
	}{
		{"default", "", []string{"Referer", "X-Api-Key", "X_api_key", "Ocp-Apim-Subscription-Key"}, []string{"X-Auth-Token"}},
		{"own list", "redact x-own X-Other", []string{"Referer", "X-Own"}, []string{"X-Own"}},
		{"off", "redact off", []string{"Referer"}, nil},
	} {
		g := rig.New(t, rig.Config{Engine: rig.Unpaced + "\n" + tt.engine}.Trusting(authority))
		fields := map[string]string{
			"Referer": "http://u:s3cr3t@h/page", "X-Api-Key": secret, "X_api_key": secret, "Ocp-Apim-Subscription-Key": secret, "X-Own": secret,
			"X-Plain": "plain", "Authorization": "Bearer " + secret,
		}
		var head strings.Builder
		for name, value := range fields {
			head.WriteString(name + ": " + value + "\r\n")
		}
		request := " HTTP/1.1\r\nHost: " + site.Authority() + "\r\nUser-Agent: Tester/1.0\r\n" + head.String() + "\r\n"
		for _, way := range []func() (rig.Answer, error){
			func() (rig.Answer, error) { return g.Dial().Ask(http.MethodGet, "GET "+site.At("/page")+request) },
			func() (rig.Answer, error) {
				return rig.Inside(t, g.Tunnel(site.Authority())).Ask(http.MethodGet, "GET /page"+request)
			},
		} {
			a, err := way()
			if err != nil || a.Status != http.StatusOK || a.Header.Get("X-Auth-Token") != secret || a.Header.Get("X-Own") != secret {
				t.Errorf("%s: status %d, error %v, header %v", tt.name, a.Status, err, a.Header)
			}
			got := <-arrived
			for name, value := range fields {
				if got.Get(name) != value && name != "X_api_key" { // Caddy drops this name
					t.Errorf("%s: %s arrived as %q, want %q", tt.name, name, got.Get(name), value)
				}
			}
		}
		g.Stop()
		for _, l := range g.ReadLogs() {
			if l.Request.Method == http.MethodGet {
				checkRedacted(t, tt.name, l, tt.hidden, tt.hiddenBack)
			}
		}
	}
}

func checkRedacted(t *testing.T, name string, l rig.LogLine, hidden, hiddenBack []string) {
	t.Helper()
	var line struct {
		Request struct {
			Headers http.Header `json:"headers"`
		} `json:"request"`
		Answer http.Header `json:"resp_headers"`
	}
	if err := json.Unmarshal([]byte(l.Raw), &line); err != nil {
		t.Fatal(err)
	}
	for list, logged := range map[*[]string]http.Header{&hidden: line.Request.Headers, &hiddenBack: line.Answer} {
		want := make(map[string]bool)
		for _, field := range *list {
			want[field] = true
		}
		for field, values := range logged {
			shown := strings.Join(values, ",")
			if isHidden := strings.Contains(shown, "REDACTED") && !strings.Contains(shown, secret); isHidden != want[field] && field != "Authorization" {
				t.Errorf("%s: %s is logged as %q, hidden: want %t", name, field, shown, want[field])
			}
		}
	}
}

// TestLogCredentials uses Caddy's option that logs the four fields with credentials. It applies to
// proxied requests too, but to no other fields. The option redact hides these fields again if it
// names them.
func TestLogCredentials(t *testing.T) {
	t.Parallel()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Set-Cookie", secret)
		w.Header().Set("X-Auth-Token", r.Header.Get("Authorization"))
	}))
	defer site.Close()
	const logs = "servers {\nlog_credentials\n}"
	four := []string{"Authorization", "Proxy-Authorization", "Cookie", "Set-Cookie"}
	keys := []string{"X-Api-Key", "X-Auth-Token"}
	for _, tt := range []struct {
		name, engine, global string
		hidden, shown        []string
	}{
		{"without it", "", "", append(keys, four...), nil},
		{"with it", "", logs, keys, four},
		{"with it and redact", "redact " + strings.Join(four, " "), logs, four, keys},
	} {
		g := rig.New(t, rig.Config{Engine: rig.Unpaced + "\n" + tt.engine, Global: tt.global})
		a, err := g.Dial().Ask(http.MethodGet, "GET "+site.URL+"/page HTTP/1.1\r\nHost: "+strings.TrimPrefix(site.URL, "http://")+
			"\r\nUser-Agent: Tester/1.0\r\nAuthorization: s3cr3t\r\nProxy-Authorization: s3cr3t\r\nCookie: s3cr3t\r\nX-Api-Key: s3cr3t\r\n\r\n")
		if err != nil || a.Status != http.StatusOK || a.Header.Get("Set-Cookie") != secret || a.Header.Get("X-Auth-Token") != secret {
			t.Errorf("%s: status %d, error %v, header %v", tt.name, a.Status, err, a.Header)
		}
		line := g.Logs(1)[0].Raw
		g.Stop()
		for value, names := range map[string][]string{"REDACTED": tt.hidden, secret: tt.shown} {
			for _, name := range names {
				if want := fmt.Sprintf("%q:[%q]", name, value); !strings.Contains(line, want) {
					t.Errorf("%s: the log has no %s: %s", tt.name, want, line)
				}
			}
		}
	}
}
