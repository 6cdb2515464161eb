package integration

import (
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// rootFile is the certificate that clients of the gateway have to trust, as it serves it.
func (g *gateway) rootFile() string {
	g.t.Helper()
	file := filepath.Join(g.t.TempDir(), "ca.crt") // subtests run in parallel, each with its client
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
	return g.clientOf(userAgent, version, &url.URL{Scheme: "http", Host: g.addr}, &tls.Config{RootCAs: g.authority()})
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

// tunnel opens one over HTTP/1.1.
func (g *gateway) tunnel(authority string) *wire {
	g.t.Helper()
	w := g.dial()
	if resp := w.connect(g.t, authority, ""); resp.StatusCode != http.StatusOK {
		g.t.Fatalf("CONNECT %s: %s", authority, resp.Status)
	}
	return w
}

// of is the same gateway for a subtest, whose own failures are to be its own.
func (g *gateway) of(t *testing.T) *gateway {
	t.Helper()
	sub := *g
	sub.t = t
	return &sub
}

// closedTunnel waits for the line of the only tunnel to an authority.
func (g *gateway) closedTunnel(authority string) (line logLine) {
	g.t.Helper()
	eventually(g.t, "the line of the tunnel to "+authority, func() bool {
		n := 0
		for _, l := range g.readLogs() {
			if l.Request.Method == http.MethodConnect && l.Request.URI == authority {
				line = l
				n++
			}
		}
		if n > 1 {
			g.t.Fatalf("%d lines for one tunnel: %s", n, line.raw)
		}
		return n == 1
	})
	return line
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
