package botpage_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	_ "github.com/crawlgate/crawlgate" // the modules of the gateway
	"github.com/crawlgate/crawlgate/botpage"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/webbotauth"
)

func TestMain(m *testing.M) { testgateway.Main(m) }

const agents = `
agent acmebot {
	token AcmeBot acme
	user_agent AcmeBot
	owner "Acme <Search>"
	contact crawl@acme.example
	purpose search train-ai
}
agent newsbot {
	user_agent newsbot
}
`

// site is a gateway with the public site of an agent.
type site struct {
	*testgateway.Gateway
	t      *testing.T
	client *http.Client
}

func lines(options string) string {
	return agents + "}\n}\nhttp://bot.test:80 {\nbind unix/%DIR%/bot.sock\nrobots_bot acmebot {\n" + options
}

func newSite(t *testing.T, options string) *site {
	t.Helper()
	g := testgateway.New(t, lines(options), "")
	return &site{g, t, &http.Client{Transport: &http.Transport{DialContext: g.Dial("bot.sock"), DisableKeepAlives: true}}}
}

// ask sends a request. edit may change it.
func (s *site) ask(method, path string, form url.Values, edit func(*http.Request)) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, "http://bot.test"+path, strings.NewReader(form.Encode()))
	if err != nil {
		s.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if edit != nil {
		edit(req)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // reading is what counts
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, string(body)
}

// TestSite checks the answers of the site.
func TestSite(t *testing.T) {
	s := newSite(t, "ranges 192.0.2.0/28 2001:db8::/48")
	cross := func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }
	form := url.Values{"host": {"shop.example"}, "scope": {"host"}}
	for _, tt := range []struct {
		method, path string
		form         url.Values
		edit         func(*http.Request)
		status       int
		want         string
	}{
		{"GET", "/", nil, nil, 200, "of Acme &lt;Search&gt;"},
		{"GET", "/", nil, nil, 200, "User-agent: AcmeBot\nDisallow: /</pre>"},
		{"GET", "/", nil, nil, 200, `<a href="mailto:crawl@acme.example">`},
		{"GET", "/", nil, nil, 200, "search, train-ai"},
		{"HEAD", "/", nil, nil, 200, ""},
		{"GET", "/", nil, cross, 200, "<h1>acmebot</h1>"},
		{"GET", "/?host=shop.example", nil, nil, 200, "No robots.txt of shop.example is kept here."},
		{"GET", "/", nil, nil, 200, "obeys the robots.txt of each site, except where its operator has set an exception"},
		{"GET", "/?host=shop.example&path=" + strings.Repeat("a", 999), nil, nil, 200, "is kept here"},
		{"GET", "/?host=shop.example&path=" + strings.Repeat("a", 1000), nil, nil, 400, "more than 1,000 bytes"},
		{"GET", "/?host=127.0.0.1", nil, nil, 400, "no address"},
		{"GET", "/?host=<script>", nil, nil, 400, "no address"},
		{"GET", "/nothing", nil, nil, 404, "nothing at this path"},
		{"DELETE", "/", nil, nil, 405, "Only GET"},
		{"POST", "/opt-out", form, nil, 405, "Only GET"}, // opt-out is off
		{"GET", "/.well-known/http-message-signatures-directory", nil, nil, 404, "signs nothing"},
		{"GET", "/signature-agent-card", nil, func(r *http.Request) { r.Host = "a b" }, 400, ""},
	} {
		resp, body := s.ask(tt.method, tt.path, tt.form, tt.edit)
		_, body, _ = strings.Cut(body, "</style>")
		if resp.StatusCode != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%s %s: %d %s, want %d with %q", tt.method, tt.path, resp.StatusCode, body, tt.status, tt.want)
		}
		if tt.status != 400 && !strings.Contains(resp.Header.Get("Content-Security-Policy"), "default-src 'none'; ") {
			t.Errorf("%s: Content-Security-Policy = %q, want default-src 'none'", tt.path, resp.Header.Get("Content-Security-Policy"))
		}
		if strings.Contains(body, "newsbot") || strings.Contains(body, "http://") || strings.Contains(body, "<script") {
			t.Errorf("%s: the page names another agent, or has an absolute http URL or a script: %s", tt.path, body)
		}
	}
}

// TestPublished checks the files that are made for programs.
func TestPublished(t *testing.T) {
	s := newSite(t, "ranges 192.0.2.0/28 2001:db8::/48 198.51.100.7")
	resp, body := s.ask("GET", "/signature-agent-card", nil, nil)
	const card = `{
  "client_id": "https://bot.test/signature-agent-card",
  "client_name": "acmebot",
  "client_uri": "https://bot.test/",
  "contacts": [
    "mailto:crawl@acme.example"
  ],
  "web_bot_auth": {
    "expected-user-agent": "AcmeBot",
    "ips_uri": "https://bot.test/ranges.json",
    "purpose": "search, train-ai",
    "rate-control": "429",
    "rfc9309-product-token": "AcmeBot",
    "trigger": "crawler"
  }
}`
	if body != card || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the card has type %q, want application/json, and body\n%s", resp.Header.Get("Content-Type"), body)
	}
	_, body = s.ask("GET", "/ranges.json", nil, nil)
	var ranges struct {
		CreationTime string
		Prefixes     []map[string]string
	}
	if err := json.Unmarshal([]byte(body), &ranges); err != nil || len(ranges.CreationTime) != len("2024-01-01T00:00:00.000000") || len(ranges.Prefixes) != 3 ||
		ranges.Prefixes[0]["ipv4Prefix"] != "192.0.2.0/28" || ranges.Prefixes[1]["ipv6Prefix"] != "2001:db8::/48" || ranges.Prefixes[2]["ipv4Prefix"] != "198.51.100.7/32" {
		t.Errorf("the address ranges differ from the configured ones: error %v, body %s", err, body)
	}
}

// TestDirectory checks that the keys are served at the host that the agent's signatures name, with
// a signature of each key, and at no other host.
func TestDirectory(t *testing.T) {
	signing, err := webbotauth.Generate(time.Time{}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "acmebot.jwk")
	if err := os.WriteFile(file, webbotauth.Keys{signing}.Private(), 0o600); err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(lines(""), "purpose search", "send_user_agent \"AcmeBot/2 (+https://bot.test)\"\nsign {\nkeys "+file+"\ndirectory https://bot.test\n}\npurpose search", 1)
	g := testgateway.New(t, strings.Replace(text, "http://bot.test:80", "http://bot.test:80 http://bot.test.:80 http://other.test:80", 1), "")
	s := &site{g, t, &http.Client{Transport: &http.Transport{DialContext: g.Dial("bot.sock"), DisableKeepAlives: true}}}

	resp, body := s.ask("GET", webbotauth.WellKnown, nil, nil)
	var set struct{ Keys []struct{ Kid, X, D string } }
	if err := json.Unmarshal([]byte(body), &set); err != nil || resp.StatusCode != 200 || resp.Header.Get("Content-Type") != webbotauth.MediaType ||
		len(set.Keys) != 1 || set.Keys[0].Kid != signing.ID || set.Keys[0].D != "" {
		t.Fatalf("the directory: status %d, header %v, body %s, error %v", resp.StatusCode, resp.Header, body, err)
	}
	digest := sha256.Sum256([]byte(body))
	if want := "sha-256=:" + base64.StdEncoding.EncodeToString(digest[:]) + ":"; resp.Header.Get("Content-Digest") != want {
		t.Errorf("digest %s, want %s", resp.Header.Get("Content-Digest"), want)
	}
	input := strings.TrimPrefix(resp.Header.Get("Signature-Input"), "key1=")
	public, _ := base64.RawURLEncoding.DecodeString(set.Keys[0].X)
	signature, err := base64.StdEncoding.DecodeString(strings.TrimSuffix(strings.TrimPrefix(resp.Header.Get("Signature"), "key1=:"), ":"))
	base := "\"@authority\";req: bot.test\n\"content-digest\": " + resp.Header.Get("Content-Digest") + "\n\"@signature-params\": " + input
	if err != nil || !strings.HasPrefix(input, `("@authority";req "content-digest");created=`) || !ed25519.Verify(public, []byte(base), signature) {
		t.Errorf("the signature of the directory does not verify; header %v", resp.Header)
	}

	for _, host := range []string{"BOT.test", "bot.test:443"} {
		resp, _ := s.ask("GET", webbotauth.WellKnown, nil, func(r *http.Request) { r.Host = host })
		if resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %d", host, resp.StatusCode)
		}
	}
	for _, host := range []string{"other.test", "bot.test:8443", "bot.test."} {
		resp, _ := s.ask("GET", webbotauth.WellKnown, nil, func(r *http.Request) { r.Host = host })
		if resp.StatusCode != http.StatusMisdirectedRequest || resp.Header.Get("Signature") != "" {
			t.Errorf("%s: status %d, header %v, want 421 without a signature", host, resp.StatusCode, resp.Header)
		}
	}
	if resp, body := s.ask("HEAD", webbotauth.WellKnown, nil, nil); resp.StatusCode != 200 || body != "" || resp.Header.Get("Signature") == "" {
		t.Errorf("HEAD: status %d, header %v, want 200 with a signature and no body", resp.StatusCode, resp.Header)
	}
	_, body = s.ask("GET", "/signature-agent-card", nil, func(r *http.Request) { r.Host = "other.test" })
	for _, want := range []string{`"jwks_uri": "https://bot.test` + webbotauth.WellKnown + `"`, `"expected-user-agent": "AcmeBot/2 (+https://bot.test)"`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
}

// TestOptOutForm checks that the first step of an opt-out does not give an order.
func TestOptOutForm(t *testing.T) {
	s := newSite(t, "opt_out")
	form := func(host, scope string, more ...string) url.Values {
		f := url.Values{"host": {host}, "scope": {scope}}
		for i := 0; i < len(more); i += 2 {
			f.Set(more[i], more[i+1])
		}
		return f
	}
	for _, tt := range []struct {
		form   url.Values
		edit   func(*http.Request)
		status int
		want   string
	}{
		{form("Shop.Example", "agent@host"), nil, 200, "https://shop.example/.well-known/crawlgate-opt-out.txt"},
		{form("shop.example", "host"), nil, 200, "keep all crawlers of this operator away"},
		{form("shop.example", "all"), nil, 400, "choose who shall stay away"},
		{form("*.example", "host"), nil, 400, "no address, pattern"},
		{form("shop.example", "host", "token", "0-0", "proof", "file"), nil, 403, "begin again"},
		{form("shop.example", "host"), func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403, "another site"},
		{form("shop.example", "host"), func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") }, 403, "another site"},
		{form(strings.Repeat("a", 9000), "host"), nil, 400, "choose who shall stay away"},
		{nil, func(r *http.Request) { r.Method = "GET" }, 405, "end of the page"},
	} {
		if resp, body := s.ask("POST", "/opt-out", tt.form, tt.edit); resp.StatusCode != tt.status || !strings.Contains(body, tt.want) {
			t.Errorf("%v: %d %s, want %d with %q", tt.form, resp.StatusCode, body, tt.status, tt.want)
		}
	}
	limited := false
	for range 20 {
		resp, _ := s.ask("POST", "/opt-out", form("shop.example", "host"), nil)
		limited = limited || resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != ""
	}
	if !limited {
		t.Error("all of twenty requests at once passed, want some refused")
	}
	if list := engine.Current().Stops().List(); len(list) > 0 {
		t.Errorf("orders in force: %v, want none", list)
	}
}

// TestReadings checks the reading of a robots.txt on the page, and that the page does not fetch it.
func TestReadings(t *testing.T) {
	s := newSite(t, "")
	shop := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	shop.SetRobots(testorigin.OK("User-agent: acme\nDisallow: /private/\nCrawl-delay: 7\n\nUser-agent: *\nDisallow: /\n"))
	reading := func(agent, path string) string { return botpage.ReadingOf(engine.Current(), agent, shop.URL(path)) }
	if got := reading("acmebot", "/"); got != "" || len(shop.Exchanges()) > 0 {
		t.Errorf("reading before the first request = %q after %d fetches, want none", got, len(shop.Exchanges()))
	}
	if status := s.Visit(shop.URL("/"), "AcmeBot/1"); status != http.StatusOK {
		t.Fatal(status)
	}
	fetches := len(shop.Exchanges())
	for _, tt := range []struct{ agent, path, want string }{
		{"acmebot", "/", "rules 64 true 7s true"},
		{"acmebot", "/private/x", "rules 64 false 7s true"},
		{"acmebot", "/x/../private/", "rules 64 false 7s true"},
		{"newsbot", "/", "rules 64 false 0s true"},
	} {
		if got := reading(tt.agent, tt.path); got != tt.want {
			t.Errorf("%s at %s: %q, want %q", tt.agent, tt.path, got, tt.want)
		}
	}
	if n := len(shop.Exchanges()); n != fetches {
		t.Errorf("the page made %d requests, want none", n-fetches)
	}
}

// TestProofsStayOutside checks that a stranger's proof is not looked for at addresses that only
// allow_private permits.
func TestProofsStayOutside(t *testing.T) {
	s := newSite(t, "opt_out")
	shop := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	if status := s.Visit(shop.URL("/"), "AcmeBot/1"); status != http.StatusOK {
		t.Fatal(status)
	}
	fetches := len(shop.Exchanges())
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, shop.URL("/"), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := engine.Current().OutsideTransport.RoundTrip(r)
	if err == nil {
		_ = resp.Body.Close()
	}
	if _, refused := errors.AsType[*guard.ForbiddenError](err); !refused || len(shop.Exchanges()) != fetches {
		t.Errorf("got error %v and %d requests, want a *guard.ForbiddenError and none", err, len(shop.Exchanges())-fetches)
	}
}

// TestBadOptions checks the errors for mistakes, with their line if one line is at fault.
func TestBadOptions(t *testing.T) {
	adapt := func(text string) error {
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
		return err
	}
	for text, want := range map[string]string{
		"robots_bot":                             `robots_bot takes the name of an agent, found [], at Caddyfile:2`,
		"robots_bot a b":                         `found ["a" "b"], at Caddyfile:2`,
		"robots_bot a {\nrange\n}":               `unknown option "range" in robots_bot: want one of opt_out, ranges, at Caddyfile:3`,
		"robots_bot a {\nopt_out on\n}":          `option "opt_out" of robots_bot takes no argument, found 1, at Caddyfile:3`,
		"robots_bot a {\nranges 192.0.2.1/24\n}": `has bits set outside the range, want 192.0.2.0/24, at Caddyfile:3`,
	} {
		if err := adapt("http://:9180 {\n" + text + "\n}\n"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
	s := newSite(t, "")
	err := s.TryLoad(strings.Replace(lines(""), "robots_bot acmebot", "robots_bot nobody", 1), "")
	if err == nil || !strings.Contains(err.Error(), "robots_bot nobody: no site has a block agent nobody") {
		t.Errorf("got %v, want an error about an unknown agent", err)
	}
}
