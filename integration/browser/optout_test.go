package browser

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

const (
	proofPath = "/.well-known/crawlgate-opt-out.txt"
	shopPage  = "http://shop.example/page"
)

// bots has two gateways of a fleet, each with the public pages of two crawlers, and a site that
// answers to every name but inside.example.
type bots struct {
	t        *testing.T
	gateways []*rig.Gateway
	pages    []string // of acmebot, at each gateway
	others   []string // of newsbot
	site     *testorigin.Site
	dns      *rig.FakeDNS
	redis    *redistest.Server
	tries    int
}

func startBots(t *testing.T) *bots {
	t.Helper()
	server := testorigin.Start(t, testorigin.Config{})
	b := &bots{t: t, site: server.Site(t, testorigin.SiteConfig{Host: "shop.example", Port: 80})}
	b.site.SetPath(proofPath, testorigin.Status(http.StatusNotFound))
	ca := rig.NewTestCA(t)
	upstream := startUpstream(t, ca, func(ctx context.Context) (net.Conn, error) { return server.DialContext(ctx, "tcp", "shop.example:80") })
	b.dns = rig.StartDNS(t, "", map[string][]string{"*": {"203.0.114.1"}, "inside.example": {"127.0.0.1"}})
	b.redis = redistest.Start(t)
	const agents = "agent acmebot {\nuser_agent AcmeBot\n}\nagent newsbot {\nuser_agent NewsBot\n}"
	for i := range 2 {
		page, other := rig.FreePort(t), rig.FreePort(t)
		site := func(addr, agent string) string {
			return fmt.Sprintf("http://:%s {\nbind 127.0.0.1\nrobots_bot %s {\nopt_out\n}\n}\n", addr[strings.LastIndex(addr, ":")+1:], agent)
		}
		b.gateways = append(b.gateways, rig.New(t, rig.Config{
			Engine: rig.FleetEngine(fmt.Sprint("gw", i), b.redis.URL(), 2), Egress: "upstream " + upstream, Site: agents,
			Sites: site(page, "acmebot") + site(other, "newsbot"), Wrap: b.dns.Command,
		}.Trusting(ca)))
		b.pages, b.others = append(b.pages, "http://"+page), append(b.others, "http://"+other)
	}
	b.expect(http.StatusOK, http.StatusOK)
	return b
}

// startUpstream starts the proxy that the gateways use, and returns its URL. Names have a public
// address, because a proof needs one. The proxy connects all of them to the site, for http and
// https.
func startUpstream(t *testing.T, ca *rig.TestCA, dial func(context.Context) (net.Conn, error)) string {
	t.Helper()
	secure := &tls.Config{Certificates: []tls.Certificate{*ca.Issue(t, []string{"*.example"}, nil)}}
	plain := &httputil.ReverseProxy{
		Rewrite:   func(*httputil.ProxyRequest) {},
		Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }},
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			plain.ServeHTTP(w, r)
			return
		}
		out, err := dial(r.Context())
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer out.Close()
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n")
		in := tls.Server(conn, secure)
		go func() { _, _ = io.Copy(out, in) }()
		_, _ = io.Copy(in, out)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// soon returns the time within which a stop must hold everywhere. It is longer beside other tests.
func soon() time.Duration {
	if rig.Long() {
		return time.Second
	}
	return 10 * time.Second
}

// expect checks the status of a page of the shop for acmebot at each gateway.
func (b *bots) expect(want ...int) {
	b.t.Helper()
	for i, g := range b.gateways {
		if a := g.MustFetch("AcmeBot/1.0", shopPage); a.Status != want[i] || a.Status == http.StatusForbidden && !strings.Contains(a.Header.Get("Crawlgate-Decision"), "kill_switch") {
			b.t.Errorf("gateway %d: status %d, header %v, want status %d", i, a.Status, a.Header, want[i])
		}
	}
}

// orders returns the orders in force at a gateway.
func (b *bots) orders(i int) []enforce.Stop {
	b.t.Helper()
	var list adminapi.Orders
	if a := b.gateways[i].Admin("/robots/deny"); json.Unmarshal([]byte(a.Body), &list) != nil {
		b.t.Fatalf("orders: status %d, %s", a.Status, a.Body)
	}
	return list.Orders
}

// post sends the form, each time from a different address.
func (b *bots) post(page, host, scope, token, proof string) rig.Answer {
	b.t.Helper()
	b.tries++
	from := &net.TCPAddr{IP: net.IPv4(127, 90, byte(b.tries>>8), byte(b.tries))}
	client := &http.Client{Transport: &http.Transport{DialContext: (&net.Dialer{LocalAddr: from}).DialContext, DisableKeepAlives: true}, Timeout: rig.Patience}
	form := url.Values{"host": {host}, "scope": {scope}, "token": {token}, "proof": {proof}}
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodPost, page+"/opt-out", strings.NewReader(form.Encode()))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	a, err := rig.ReadAnswer(resp)
	if err != nil {
		b.t.Fatal(err)
	}
	return a
}

var (
	tokenShown  = regexp.MustCompile(`<pre id="token">([0-9a-f-]+)</pre>`)
	ticketShown = regexp.MustCompile(`<strong id="ticket">(optout-[0-9a-f]+)</strong>`)
)

// begin takes the first step of an opt-out, and returns the token.
func (b *bots) begin(page, host, scope string) string {
	b.t.Helper()
	a := b.post(page, host, scope, "", "")
	found := tokenShown.FindStringSubmatch(a.Body)
	if a.Status != http.StatusOK || found == nil {
		b.t.Fatalf("%s: status %d, %s", host, a.Status, a.Body)
	}
	return found[1]
}

// TestForgedOptOuts checks that a thousand tries without proof of a host stop nothing at any
// gateway. With proof, at whichever gateway the form arrives, the stop soon holds at the other one.
// After a lift, the same proof has no effect.
func TestForgedOptOuts(t *testing.T) {
	t.Parallel()
	b := startBots(t)
	const agent, all, file, dns = "agent@host", "host", "file", "dns"
	acme, news := b.pages[0], b.others[0]
	token := b.begin(acme, "shop.example", agent)
	b.site.SetPath(proofPath, testorigin.Respond(testorigin.Response{Status: 200, Body: []byte(token)})) // the token that these tries guess
	flip := func(i int) string {
		forged := []byte(token)
		forged[i%len(forged)] ^= 1
		return string(forged)
	}
	notOurs := []string{
		b.begin(acme, "other.example", agent), b.begin(acme, "www.shop.example", agent), b.begin(news, "shop.example", agent), b.begin(news, "shop.example", all),
		"", "-", "0-0", strings.ToUpper(token) + "x", token + " ", " " + token, "ffffffff" + token, token[9:],
	}
	hosts := []string{
		"*", "*.example", "*.shop.example", "shop.*", "127.0.0.1", "0x7f.1", "2130706433", "[::1]", "[::ffff:127.0.0.1]", "shop.example:80", "shop.example:8080", "localhost",
		"shop.example/", "http://shop.example", "x@shop.example", "acmebot@shop.example", "shop.example\x00", "sh\u200dop.example\u202e", "xn--a.example", "shop%2eexample", "",
	}
	forgeries := []func(i int) rig.Answer{
		func(i int) rig.Answer { return b.post(b.pages[i%2], "shop.example", agent, flip(i), file) },
		func(i int) rig.Answer { return b.post(acme, "shop.example", all, token, []string{file, dns}[i%2]) },
		func(i int) rig.Answer { return b.post(news, "shop.example", agent, token, file) },
		func(i int) rig.Answer { return b.post(acme, fmt.Sprintf("n%d.shop.example", i), agent, token, file) },
		func(i int) rig.Answer {
			return b.post(acme, hosts[i%len(hosts)], []string{agent, all}[i%2], token, file)
		},
		func(i int) rig.Answer {
			return b.post(acme, "shop.example", []string{"all", "agent", "", "agent@host "}[i%4], token, file)
		},
		func(i int) rig.Answer {
			forged := notOurs[i%len(notOurs)]
			if forged == "" {
				forged = "0"
			}
			return b.post(acme, "shop.example", agent, forged, file)
		},
	}
	const tries = 1000
	answered := map[int]int{}
	for i := range tries {
		a := forgeries[i%len(forgeries)](i / len(forgeries))
		answered[a.Status]++
		if a.Status != http.StatusForbidden && a.Status != http.StatusBadRequest {
			t.Errorf("try %d: status %d, want 403 or 400: %s", i, a.Status, a.Body)
		}
	}
	// These tries have a token of their host, but the site shows no proof.
	for i, shown := range []testorigin.Behaviour{
		testorigin.Status(http.StatusNotFound), testorigin.OK("nothing"), testorigin.OK(token), testorigin.OK(strings.Repeat(token+"\n", 1<<16)),
		testorigin.Redirect(http.StatusFound, "http://evil.example"+proofPath), testorigin.Redirect(http.StatusFound, "http://shop.example:8080"+proofPath),
		testorigin.Status(http.StatusInternalServerError), testorigin.RedirectLoop(), testorigin.Status(http.StatusNoContent),
	} {
		b.site.SetPath(proofPath, shown)
		for _, proof := range []string{file, dns} { // each with its own host, because the checks of a host are limited
			host := fmt.Sprintf("unproven%d%s.example", i, proof)
			b.dns.Publish("_crawlgate-opt-out."+host, token)
			own := b.begin(acme, host, agent)
			if a := b.post(acme, host, agent, own, proof); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "Nothing has changed") {
				t.Errorf("%s, %s: status %d, want 403: %s", host, proof, a.Status, a.Body)
			}
		}
	}
	inside := b.begin(news, "inside.example", agent)
	b.site.SetPath(proofPath, testorigin.OK(inside))
	if a := b.post(news, "inside.example", agent, inside, file); a.Status != http.StatusForbidden || !strings.Contains(a.Body, "cannot read this proof") {
		t.Errorf("a host with a private address: status %d, want 403: %s", a.Status, a.Body)
	}
	b.site.SetPath(proofPath, testorigin.OK(token))
	for _, how := range []string{"files", "file by order of the operator", "file\n"} { // unknown ways of proof
		if a := b.post(acme, "shop.example", agent, token, how); a.Status != http.StatusOK || strings.Contains(a.Body, "It is done") {
			t.Errorf("proof %q: status %d, want 200 without effect: %s", how, a.Status, a.Body)
		}
	}
	for i := range b.gateways {
		if list := b.orders(i); len(list) > 0 {
			t.Errorf("gateway %d: orders in force %v, want none", i, list)
		}
	}
	b.expect(http.StatusOK, http.StatusOK)
	t.Logf("%d tries: %v", b.tries, answered)

	// The right proof, at the gateway that did not give the token.
	b.site.SetPath(proofPath, testorigin.OK(token+"\n"))
	began := time.Now()
	a := b.post(b.pages[1], "shop.example", agent, token, file)
	took := time.Since(began)
	ticket := ticketShown.FindStringSubmatch(a.Body)
	if a.Status != http.StatusOK || ticket == nil || !strings.Contains(a.Body, "It is done") || took > soon() {
		t.Fatalf("the right proof: status %d after %v: %s", a.Status, took, a.Body)
	}
	b.expect(http.StatusForbidden, http.StatusForbidden)
	for i := range b.gateways {
		if list := b.orders(i); len(list) != 1 || list[0].ID != ticket[1] || list[0].Value != "acmebot@shop.example" || list[0].By != "site owner of shop.example" ||
			!strings.Contains(list[0].Reason, ticket[1]) {
			t.Errorf("gateway %d: %+v", i, list)
		}
	}
	if a := b.gateways[0].MustFetch("NewsBot/1.0", shopPage); a.Status != http.StatusOK {
		t.Errorf("another agent: status %d, want 200", a.Status)
	}
	if a := b.post(acme, "shop.example", agent, "", ""); a.Status != http.StatusOK || !strings.Contains(a.Body, "already") {
		t.Errorf("a second opt-out: status %d, %s", a.Status, a.Body)
	}
	if out, err := b.gateways[0].Robots("undeny", "agent@host", "acmebot@shop.example"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if a := b.post(acme, "shop.example", agent, token, file); a.Status != http.StatusServiceUnavailable || len(b.orders(0)) > 0 {
		t.Errorf("the old proof after a lift: status %d, want 503 and no order: %s", a.Status, a.Body)
	}
	own := b.begin(acme, "shop.example", all)
	b.dns.Publish("_crawlgate-opt-out.shop.example", own)
	if a := b.post(acme, "shop.example", all, own, dns); a.Status != http.StatusOK || !strings.Contains(a.Body, "It is done") {
		t.Errorf("a proof by DNS for all agents: status %d, %s", a.Status, a.Body)
	}
	b.expect(http.StatusForbidden, http.StatusForbidden)

	b.redis.Kill()
	if a := b.post(acme, "late.example", agent, "", ""); a.Status != http.StatusServiceUnavailable || !strings.Contains(a.Body, "come back later") {
		t.Errorf("without Redis: status %d, want 503: %s", a.Status, a.Body)
	}
}
