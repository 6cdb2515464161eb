package integration

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// roots is what a client has to trust: the gateway's own certificate, as it serves it.
func (g *gateway) roots() *x509.CertPool {
	g.t.Helper()
	pool := x509.NewCertPool()
	if a := g.own("/ca.crt"); a.status != http.StatusOK || !pool.AppendCertsFromPEM([]byte(a.body)) {
		g.t.Fatalf("no certificate at /ca.crt: %d %q", a.status, a.body)
	}
	return pool
}

// rootFile is the same as a file.
func (g *gateway) rootFile() string {
	g.t.Helper()
	file := filepath.Join(g.dir, "ca.crt")
	if err := os.WriteFile(file, []byte(g.own("/ca.crt").body), 0o644); err != nil {
		g.t.Fatal(err)
	}
	return file
}

// own asks the gateway for one of its own pages.
func (g *gateway) own(path string) answer {
	g.t.Helper()
	return get(g.t, &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, "http://"+g.addr+path)
}

// secureClient sends everything through the gateway and trusts its certificate. HTTP/2 is spoken inside if version is 2.
func (g *gateway) secureClient(userAgent string, version int) *http.Client {
	return g.clientOf(userAgent, version, &url.URL{Scheme: "http", Host: g.addr}, &tls.Config{RootCAs: g.roots()})
}

func (g *gateway) clientOf(userAgent string, version int, proxy *url.URL, config *tls.Config) *http.Client {
	base := &http.Transport{
		Proxy: http.ProxyURL(proxy), MaxIdleConnsPerHost: 256, DisableCompression: true,
		TLSClientConfig: config, ForceAttemptHTTP2: version == 2,
	}
	g.t.Cleanup(base.CloseIdleConnections)
	return &http.Client{
		Transport:     &agentTransport{userAgent, base},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Timeout:       patience,
	}
}

// hangUp closes the tunnels of a client, which the gateway logs then.
func hangUp(c *http.Client) {
	if a, ok := c.Transport.(*agentTransport); ok {
		a.base.CloseIdleConnections()
	}
}

// connect opens a tunnel. Further header lines end in CR LF.
func (g *gateway) connect(authority, header string) *wire {
	g.t.Helper()
	w := g.dial()
	a, err := w.ask(http.MethodConnect, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n"+header+"\r\n")
	if err != nil || a.status != http.StatusOK {
		g.t.Fatalf("CONNECT %s: %v %+v", authority, err, a)
	}
	return w
}

// secureLine is what tests of tunnels look at beyond logLine.
type secureLine struct {
	Request struct {
		Proto    string `json:"proto"`
		RemoteIP string `json:"remote_ip"`
		TLS      struct {
			Proto      string `json:"proto"`
			ServerName string `json:"server_name"`
		} `json:"tls"`
	} `json:"request"`
	UserID string `json:"user_id"`
}

func (l logLine) secure(t *testing.T) (s secureLine) {
	t.Helper()
	if err := json.Unmarshal([]byte(l.raw), &s); err != nil {
		t.Fatal(err)
	}
	return s
}
