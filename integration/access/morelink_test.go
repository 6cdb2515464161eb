//go:build slow

package access

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
)

// refusedURL is refused to every client.
const refusedURL = "http://" + enforce.OwnHost + "/refused"

// moreOf returns the link in a refusal in plain text.
func moreOf(t *testing.T, a rig.Answer) string {
	t.Helper()
	_, link, _ := strings.Cut(a.Body, "\nmore:        ")
	link, _, found := strings.Cut(link, "\n")
	if !found || a.Header.Get("Crawlgate-Decision") == "" {
		t.Errorf("status %d, header %v, want a refusal: %s", a.Status, a.Header, a.Body)
	}
	return link
}

// leadsTo checks the link of a refusal and the page that it leads to.
func leadsTo(t *testing.T, way string, a rig.Answer, by *http.Client, base string, reason enforce.Reason) {
	t.Helper()
	got, want := moreOf(t, a), base+"/docs/problems/"+reason.Slug()
	if got != want {
		t.Errorf("%s: the link is %s, want %s", way, got, want)
		return
	}
	for _, suffix := range []string{"", ".md"} {
		page := rig.Get(t, by, got+suffix)
		if page.Status != http.StatusOK || !strings.HasPrefix(page.Body, "# "+reason.Info().Title+"\n") || !strings.Contains(page.Body, "Reason `"+string(reason)+"`") {
			t.Errorf("%s: %s%s: status %d, %.200s", way, got, suffix, page.Status, page.Body)
		}
	}
}

// direct returns a client without a proxy. It connects to listeners of this machine, over a unix
// socket if one is given.
func direct(config *tls.Config, socket string) *http.Client {
	t := &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}
	if socket != "" {
		t.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}
	}
	return &http.Client{Transport: t}
}

// TestMoreLinks follows the links of refusals on each way to the gateway. They lead to the
// gateway's own page about the reason, at the address that the client uses for the gateway.
func TestMoreLinks(t *testing.T) {
	t.Parallel()
	six, every := rig.FreePort(t), rig.FreePort(t)
	_, port6, _ := net.SplitHostPort(six)
	_, portAny, _ := net.SplitHostPort(every)
	socket := filepath.Join(rig.TempDir(t), "proxy.sock")
	g := rig.New(t, rig.Config{Site: "connect deny denied.example", Sites: fmt.Sprintf(
		"http://:%s {\nbind ::1\nrobots\n}\nhttp://:%s {\nbind 0.0.0.0\nrobots\n}\nhttp://:80 {\nbind unix/%s\nrobots\n}\n", port6, portAny, socket)})
	at := func(addr string) *http.Client {
		return g.ClientOf("Tester/1.0", 1, &url.URL{Scheme: "http", Host: addr}, nil)
	}
	plain := direct(nil, "")
	for way, c := range map[string]*http.Client{"HTTP/1.1": g.SecureClient("Tester/1.0", 1), "HTTP/2": g.SecureClient("Tester/1.0", 2)} {
		leadsTo(t, way+" in a tunnel", rig.Get(t, c, "https://"+enforce.OwnHost+"/refused"), plain, "http://"+g.Addr, enforce.ReasonOperatorDeny)
	}
	for way, ask := range g.Through(http.MethodGet, enforce.OwnHost+":80", "/refused") {
		a, err := ask()
		if err != nil {
			t.Fatal(err)
		}
		leadsTo(t, way, a, plain, "http://"+g.Addr, enforce.ReasonOperatorDeny)
	}
	connect, err := g.Dial().Ask(http.MethodConnect, "CONNECT denied.example:443 HTTP/1.1\r\nHost: denied.example:443\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	leadsTo(t, "CONNECT", connect, plain, "http://"+g.Addr, enforce.ReasonConnectDenied)
	// The link ignores the Host field.
	posing, err := g.Dial().Ask(http.MethodGet, "GET "+refusedURL+" HTTP/1.1\r\nHost: evil.example\r\nX-Forwarded-Host: evil.example\r\n\r\n")
	if err != nil || strings.Contains(posing.Body, "evil") {
		t.Errorf("error %v, want a link without the name in Host: %s", err, posing.Body)
	}
	leadsTo(t, "another Host", posing, plain, "http://"+g.Addr, enforce.ReasonOperatorDeny)

	leadsTo(t, "a listener of all addresses", rig.Get(t, at("127.0.0.1:"+portAny), refusedURL), plain, "http://127.0.0.1:"+portAny, enforce.ReasonOperatorDeny)
	leadsTo(t, "IPv6", rig.Get(t, at("[::1]:"+port6), refusedURL), plain, "http://[::1]:"+port6, enforce.ReasonOperatorDeny)
	overSocket := direct(nil, socket)
	overSocket.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: "gateway"})
	leadsTo(t, "a unix socket", rig.Get(t, overSocket, refusedURL), overSocket, "http://"+enforce.OwnHost, enforce.ReasonOperatorDeny)
}

// TestMoreLinksOfTLS checks that the link at a port with TLS has the server name that the client
// sent, if any.
func TestMoreLinksOfTLS(t *testing.T) {
	t.Parallel()
	c, port := rig.Config{}.WithTLSPort(t, rig.NewTestCA(t), "")
	g := rig.New(t, c)
	roots := g.Authority()
	roots.AddCert(port.Authority.Cert)
	_, number, _ := net.SplitHostPort(port.Addr)
	trusting := &tls.Config{RootCAs: roots}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		base := "https://" + net.JoinHostPort(host, number)
		proxy, err := url.Parse(base)
		if err != nil {
			t.Fatal(err)
		}
		for way, target := range map[string]string{"plain": refusedURL, "in a tunnel": "https://" + enforce.OwnHost + "/refused"} {
			a := rig.Get(t, g.ClientOf("Tester/1.0", 1, proxy, trusting), target)
			leadsTo(t, host+" "+way, a, direct(trusting, ""), base, enforce.ReasonOperatorDeny)
		}
	}
	// An invalid server name is not shown.
	wire, err := new(net.Dialer).DialContext(t.Context(), "tcp", port.Addr)
	if err != nil {
		t.Fatal(err)
	}
	secure := tls.Client(wire, &tls.Config{ServerName: `a"><b>/x`, InsecureSkipVerify: true})
	t.Cleanup(func() { _ = secure.Close() })
	a, err := fetchOver(&rig.Wire{Conn: secure, Reader: bufio.NewReader(secure)}, "", refusedURL)
	if err != nil {
		t.Fatal(err)
	}
	leadsTo(t, "no name", a, direct(trusting, ""), "https://"+port.Addr, enforce.ReasonOperatorDeny)
}

// TestMoreLinksBehindAProxy checks that the link has the address that the PROXY line gives for the
// gateway.
func TestMoreLinksBehindAProxy(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{
		Site:   "clients any",
		Global: "servers {\nlistener_wrappers {\nproxy_protocol {\ntimeout 60s\nallow 127.0.0.1/32\n}\nrobots\n}\n}",
	})
	a, err := fetchOver(g.Dial(), "PROXY TCP4 198.51.100.1 198.51.100.200 4000 3128\r\n", refusedURL)
	if err != nil {
		t.Fatal(err)
	}
	if got := moreOf(t, a); got != "http://198.51.100.200:3128/docs/problems/operator-deny" {
		t.Errorf("the link is %s, want the address of the PROXY line", got)
	}
}

// TestMoreLinksElsewhere checks that more_link replaces the gateway's pages, and that a client that
// must not read those gets a link to the project's pages.
func TestMoreLinksElsewhere(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{Engine: "help https://wiki.acme.example/robots?why="})
	if got := moreOf(t, g.MustFetch("Tester/1.0", refusedURL)); got != "https://wiki.acme.example/robots?why=operator-deny" {
		t.Errorf("with the option, the link is %s", got)
	}
	stranger := rig.New(t, rig.Config{Site: "clients 203.0.113.0/24"})
	if got := moreOf(t, stranger.MustFetch("Tester/1.0", refusedURL)); !strings.HasPrefix(got, "https://github.com/crawlgate/crawlgate/blob/") || !strings.HasSuffix(got, "/docs/problems/client-not-allowed.md") {
		t.Errorf("for a client that must not use the gateway, the link is %s", got)
	}
}
