package console_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/crypto/bcrypt"

	_ "github.com/crawlgate/crawlgate" // the modules of the gateway
	"github.com/crawlgate/crawlgate/adminapi"
	"github.com/crawlgate/crawlgate/console"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/internal/testgateway"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// rig is a gateway with a page.
type rig struct {
	*testgateway.Gateway
	t      *testing.T
	client *http.Client
}

// siteOf returns the lines that end the gateway's site and begin the page's.
func siteOf(before, options string) string {
	return "}\n}\nhttp://console.test:80 http://localhost:80 http://other.test:80 {\nbind unix/%DIR%/console.sock\n" +
		before + "robots_console {\nhosts desk.test\n" + options
}

func newRig(t *testing.T, before, options string) *rig {
	t.Helper()
	g := testgateway.New(t, siteOf(before, options), "")
	transport := &http.Transport{DialContext: g.Dial("console.sock"), MaxIdleConns: 1}
	t.Cleanup(transport.CloseIdleConnections)
	return &rig{g, t, &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// ask sends a request to the page. edit may change it.
func (r *rig) ask(method, path string, form url.Values, edit func(*http.Request)) (*http.Response, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://localhost"+path, strings.NewReader(form.Encode()))
	if err != nil {
		r.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if edit != nil {
		edit(req)
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }() // reading is what counts
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp, string(body)
}

func ada(req *http.Request) { req.SetBasicAuth("ada", "open sesame") }

// orders returns the orders in force.
func (r *rig) orders() []enforce.Stop {
	r.t.Helper()
	return engine.Current().Stops().List()
}

// TestRequests checks the answers of the page to different users and requests.
func TestRequests(t *testing.T) {
	r := newRig(t, "", "")
	header := func(name, value string) func(*http.Request) {
		return func(req *http.Request) { req.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(req *http.Request) { req.Host = name } }
	stop := url.Values{"action": {"deny"}, "scope": {"all"}}
	for _, tt := range []struct {
		name, method, path string
		form               url.Values
		edit               func(*http.Request)
		status             int
		want               string
	}{
		{"page", "GET", "/", nil, nil, 200, "<title>Crawlgate"},
		{"style", "GET", "/console.css", nil, nil, 200, "{"},
		{"script", "GET", "/console.js", nil, nil, 200, "EventSource"},
		{"nothing", "GET", "/nothing", nil, nil, 404, "nothing at this path"},
		{"stops", "GET", "/stops", nil, nil, 200, "Nobody stopped anything in the last 90 days."},
		{"no origin", "GET", "/origin", nil, nil, 404, "host is empty: want a host such as example.com"},
		{"host for an origin", "GET", "/origin?origin=example.com", nil, nil, 404, "name a new site by its URL, such as https://example.com"},
		{"unknown origin", "GET", "/origin?origin=https://example.com", nil, nil, 404, "nothing is known"},
		{"site's name", "GET", "/", nil, host("console.test"), 200, "<title>"},
		{"site's name in capitals and with a port", "GET", "/", nil, host("CONSOLE.test:8443"), 200, "<title>"},
		{"the option's name, which the site has not", "GET", "/", nil, host("desk.test"), 200, ""},
		{"cross-site GET", "GET", "/", nil, header("Sec-Fetch-Site", "cross-site"), 200, "<title>"},
		{"cross-site POST", "POST", "/orders", stop, header("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		{"same-site POST", "POST", "/orders", stop, header("Sec-Fetch-Site", "same-site"), 403, "another site"},
		{"foreign Origin", "POST", "/orders", stop, header("Origin", "http://evil.test"), 403, "another site"},
		{"no Origin", "POST", "/orders", stop, header("Origin", "null"), 403, "another site"},
		{"orders off", "POST", "/orders", stop, nil, 403, "takes no orders"},
		{"GET orders", "GET", "/orders?action=deny&scope=all", nil, nil, 405, "POST"},
		{"POST page", "POST", "/", stop, nil, 200, "<title>"},
		{"cross-site POST of the page", "POST", "/", stop, header("Sec-Fetch-Site", "cross-site"), 403, "another site"},
		{"POST an origin", "POST", "/origin", stop, nil, 405, "GET"},
		{"DELETE", "DELETE", "/", nil, nil, 405, "GET"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, body := r.ask(tt.method, tt.path, tt.form, tt.edit)
			if resp.StatusCode != tt.status || !strings.Contains(body, tt.want) {
				t.Errorf("got %d %.200s, want %d with %q", resp.StatusCode, body, tt.status, tt.want)
			}
			// Every page has the frame and a way back, including error pages.
			if html := strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html"); tt.want != "" && html != (tt.path != "/console.css" && tt.path != "/console.js") ||
				html && (!strings.Contains(body, `<nav aria-label="Pages"><a href="/"`) || !strings.HasSuffix(body, "</html>\n")) {
				t.Errorf("incomplete page of type %s: %s", resp.Header.Get("Content-Type"), body)
			}
			if allow := resp.Header.Get("Allow"); (allow != "") != (tt.status == http.StatusMethodNotAllowed) {
				t.Errorf("Allow = %q, want it exactly with status 405", allow)
			}
		})
	}
	if list := r.orders(); len(list) != 0 {
		t.Errorf("orders in force: %v, want none", list)
	}
	resp, _ := r.ask("GET", "/", nil, nil)
	for name, want := range map[string]string{
		"Content-Security-Policy": "default-src 'none'; script-src 'self'", "X-Content-Type-Options": "nosniff",
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer",
	} {
		if got := resp.Header.Get(name); !strings.HasPrefix(got, want) {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestDocumentation checks that each page links to the documentation, and that the same users may
// read it.
func TestDocumentation(t *testing.T) {
	r := newRig(t, auth(""), "")
	if _, body := r.ask("GET", "/stops", nil, ada); strings.Count(body, ` href="/docs/"`) != 1 {
		t.Errorf("the page does not link to the documentation once: %s", body)
	}
	for path, want := range map[string]int{"/docs/": 200, "/docs/problems/disallowed": 200, "/docs/?q=redis": 200, "/docs/nothing": 404} {
		resp, body := r.ask("GET", path, nil, ada)
		if resp.StatusCode != want || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") || !strings.Contains(body, `<form action="/docs/"`) ||
			!strings.Contains(resp.Header.Get("Content-Security-Policy"), "style-src 'sha256-") {
			t.Errorf("%s: got status %d with header %v", path, resp.StatusCode, resp.Header)
		}
		if resp, _ := r.ask("GET", path, nil, nil); resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s without a password: got status %d, want 401", path, resp.StatusCode)
		}
	}
}

// TestHosts checks that the page is not served under another name, even if the site accepts every
// name.
func TestHosts(t *testing.T) {
	g := testgateway.New(t, "}\n}\nhttp://:80 {\nbind unix/%DIR%/console.sock\nrobots_console {\nhosts desk.test", "")
	r := &rig{g, t, &http.Client{Transport: &http.Transport{DialContext: g.Dial("console.sock"), DisableKeepAlives: true}}}
	for name, want := range map[string]int{
		"desk.test": 200, "DESK.test:80": 200, "localhost:1": 200, "127.0.0.1": 200, "[::1]:80": 200, "evil.test": 421, "desk.test.evil.test": 421,
		"192.0.2.1": 421,
	} {
		if resp, body := r.ask("GET", "/", nil, func(req *http.Request) { req.Host = name }); resp.StatusCode != want {
			t.Errorf("%s: %d %.100s, want %d", name, resp.StatusCode, body, want)
		}
	}
}

// TestOrders checks that orders have the name of the user, and that the page shows their result
// once.
func TestOrders(t *testing.T) {
	r := newRig(t, auth(""), "orders on")
	stop := url.Values{"action": {"deny"}, "scope": {"host"}, "value": {"shop.test"}, "reason": {"complaint 7"}, "by": {"mallory"}}
	if resp, _ := r.ask("POST", "/orders", stop, nil); resp.StatusCode != http.StatusUnauthorized || len(r.orders()) != 0 {
		t.Fatalf("an order without a password: got status %d and orders %v, want 401 and none", resp.StatusCode, r.orders())
	}
	for _, tt := range []struct {
		name string
		form url.Values
		want string // part of the message
		left int
	}{
		{"stop", stop, `class="stopped">Stopped: `, 1},
		{"no scope", url.Values{"action": {"deny"}, "scope": {"planet"}}, `class="failed">scope &#34;planet&#34; is not one of all, host, agent`, 1},
		{"lift another", url.Values{"action": {"undeny"}, "confirm": {"yes"}, "scope": {"host"}, "value": {"other.test"}}, "no such order", 1},
		{"unblock", url.Values{"action": {"unblock"}, "value": {"shop.test"}}, "is not blocked", 1},
		{"purge", url.Values{"action": {"purge"}, "confirm": {"yes"}, "value": {"https://shop.test"}}, `class="done">Forgotten: https://shop.test`, 1},
		{"markup", url.Values{"action": {"purge"}, "confirm": {"yes"}, "value": {"<script>alert(1)</script>"}}, "want a host such as example.com", 1},
		{"lift", url.Values{"action": {"undeny"}, "confirm": {"yes"}, "scope": {"host"}, "value": {"shop.test"}}, `class="done">Order lifted by ada: stop of host shop.test`, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			resp, _ := r.ask("POST", "/orders", tt.form, ada)
			to, err := url.Parse(resp.Header.Get("Location"))
			if resp.StatusCode != http.StatusSeeOther || err != nil || to.Host != "" {
				t.Fatalf("got status %d with location %v, %v, want 303 to a page of the site", resp.StatusCode, to, err)
			}
			_, body := r.ask("GET", to.RequestURI(), nil, ada)
			_, message, _ := strings.Cut(body, `<p id="message"`)
			message, _, _ = strings.Cut(message, "</p>")
			if message == "" || !strings.Contains(message, tt.want) || strings.Contains(message, "<script") {
				t.Errorf("the page says %q, want %q", message, tt.want)
			}
			if list := r.orders(); len(list) != tt.left || tt.left == 1 && (list[0].By != "ada" || list[0].Reason != "complaint 7") {
				t.Errorf("orders in force: %+v", list)
			}
		})
	}
	if resp, body := r.ask("POST", "/orders", url.Values{"action": {"explode"}}, ada); resp.StatusCode != http.StatusBadRequest || !strings.Contains(body, "no such order") {
		t.Errorf("an unknown action: got status %d, %s, want 400", resp.StatusCode, body)
	}
	if _, body := r.ask("GET", "/?m=AAAA", nil, ada); strings.Contains(body, `id="message"`) {
		t.Error("the page shows an invalid message")
	}
	large := url.Values{"action": {"deny"}, "scope": {"all"}, "reason": {strings.Repeat("x", 20<<10)}}
	if resp, _ := r.ask("POST", "/orders", large, ada); resp.StatusCode != http.StatusBadRequest || len(r.orders()) != 0 {
		t.Errorf("a large form: got status %d and orders %v, want 400 and none", resp.StatusCode, r.orders())
	}
}

// TestOrdersNeedAUser checks that a page without authenticated users accepts no order, however the
// request reached it.
func TestOrdersNeedAUser(t *testing.T) {
	newRig(t, "", "")
	h := console.Following(t.Context())
	h.Orders = true
	w := newFrames()
	r := request(context.Background(), http.MethodPost, "/orders")
	if err := h.ServeHTTP(w, r, nil); err != nil || w.status != http.StatusForbidden || !strings.Contains(w.text(), "authenticated users") {
		t.Errorf("got status %d, %q, %v, want 403", w.status, w.text(), err)
	}
}

// hostile is a text that may break markup, terminals and readers.
const hostile = "\"'<script>alert(1)</script>&<img src=x onerror=alert(1)>\u202e\u2066\x1b[2J"

// maxPage is the largest size of a page, in bytes.
const maxPage = 150_000

// TestPagesAreBoundedAndEscaped fills everything that the page shows with hostile texts.
func TestPagesAreBoundedAndEscaped(t *testing.T) {
	r := newRig(t, auth(""), "orders on")
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{})
	rules := "User-agent: *\nDisallow: /" + hostile + "\n" + strings.Repeat("Disallow: /"+strings.Repeat(hostile, 3)+"\n", 10<<20/300)
	site.SetRobots(testorigin.OK(rules))
	r.Visit(site.URL("/page"), "alpha")
	for i := range 1100 {
		engine.RecordRecent(&enforce.LogRecord{
			Decision: enforce.OutcomeDeny, Reason: enforce.ReasonDisallowed, Agent: fmt.Sprint(i, strings.Repeat(`"`, 200)), Origin: site.Origin().String(),
			Rule: strings.Repeat(hostile, 20), Line: i,
		}, "GET", strings.Repeat(`<"`, 32)+fmt.Sprint(i), true, func() string { return site.URL("/") + strings.Repeat(`"<`, 400) })
	}
	for i := range 60 {
		if _, err := adminapi.Deny(t.Context(), engine.Current(), adminapi.OrderRequest{
			Scope: enforce.StopHost, Value: fmt.Sprintf("h%d.%s.test", i, strings.Repeat("a", 60)),
			By: strings.Repeat(`"`, 60), Reason: strings.Repeat(`<"`, 90),
		}); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{
		"/", "/stops", "/refusals", "/refusals?from=60", "/refusals?reason=disallowed&q=%3C", "/agents", "/agents?name=other", "/agents?name=" + url.QueryEscape(hostile), "/hosts",
		"/origins", "/gateways", "/find?q=1", "/find?q=" + url.QueryEscape(hostile), "/origin?origin=" + url.QueryEscape(site.Origin().String()),
		"/?agent=alpha&url=" + url.QueryEscape(site.URL("/"+strings.Repeat(`"<script>`, 800))),
		"/?agent=" + url.QueryEscape(hostile) + "&url=" + url.QueryEscape(hostile),
	} {
		resp, body := r.ask("GET", path, nil, ada)
		t.Logf("%.60s: %d, %d bytes", path, resp.StatusCode, len(body))
		if resp.StatusCode != http.StatusOK || len(body) > maxPage || !strings.HasSuffix(body, "</html>\n") {
			t.Errorf("%.60s: got status %d with %d bytes, want a complete page", path, resp.StatusCode, len(body))
		}
		const early = `data-of="Before Retry-After">1</td></tr>` // of 1100 agents, the first that came too early
		if path == "/agents" && strings.Count(body, early) < 20 {
			t.Errorf("the page does not show agents that were too early: %s", body)
		}
		if n := strings.Count(body, "<script"); n > 1 || strings.Contains(body, "<img") {
			t.Errorf("%.60s: the page has markup from requests", path)
		}
		if i := strings.IndexAny(body, "\u202e\u2066\x1b"); i >= 0 {
			t.Errorf("%.60s: the page has an invisible character at %d: %q", path, i, body[max(i-60, 0):i])
		}
	}
}

// TestExplainFetchesOnPostOnly checks that only the page itself can cause a fetch of robots.txt,
// but not an image of another site, which is a GET that a browser sends with the password.
func TestExplainFetchesOnPostOnly(t *testing.T) {
	r := newRig(t, "", "")
	server := testorigin.Start(t, testorigin.Config{})
	site := server.Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\n"))
	question := url.Values{"agent": {"alpha"}, "url": {site.URL("/private/x")}}
	from := func(where string) func(*http.Request) {
		return func(req *http.Request) { req.Header.Set("Sec-Fetch-Site", where) }
	}
	for _, tt := range []struct {
		name, method string
		edit         func(*http.Request)
		status       int
		want         string
		fetched      bool
	}{
		{"GET", "GET", nil, 200, "too little is known about " + site.Origin().String(), false},
		{"picture of another site", "GET", from("cross-site"), 200, "too little is known about", false},
		{"form of another site", "POST", from("cross-site"), 403, "another site", false},
		{"form of the page", "POST", from("same-origin"), 200, "Disallow: /private", true},
		{"GET of a known origin", "GET", nil, 200, "Disallow: /private", true},
	} {
		path, form := "/", question
		if tt.method == "GET" {
			path, form = "/?"+question.Encode(), nil
		}
		resp, body := r.ask(tt.method, path, form, tt.edit)
		_, known := engine.Current().Cache().Peek(site.Origin(), "")
		if resp.StatusCode != tt.status || !strings.Contains(body, tt.want) || known != tt.fetched {
			t.Errorf("%s: got status %d, known %t, want %q: %.300s", tt.name, resp.StatusCode, known, tt.want, body[strings.Index(body, "Explain a decision")+1:])
		}
	}
}

// TestPasswordsWaitForTheirTurn checks that the hashes of passwords are not computed all at once:
// if a source sends hundreds of wrong ones, some are not checked. A right one is remembered, and is
// wrong for another user.
func TestPasswordsWaitForTheirTurn(t *testing.T) {
	// The hash is of "open sesame"; computing it takes about 20 ms.
	hash, err := bcrypt.GenerateFromPassword([]byte("open sesame"), 8)
	if err != nil {
		t.Fatal(err)
	}
	r := newRig(t, fmt.Sprintf("basic_auth {\nada %s\n}\n", hash), "orders on")
	guess := func(user, password string) (status int, asks, busy string) {
		resp, _ := r.ask("GET", "/console.css", nil, func(req *http.Request) {
			req.Close = true // the client keeps two connections, and closes others in the middle
			req.SetBasicAuth(user, password)
		})
		return resp.StatusCode, resp.Header.Get("WWW-Authenticate"), resp.Header.Get("Retry-After")
	}
	for _, tt := range []struct {
		user, password string
		want           int
	}{
		{"ada", "open sesame", 200}, {"ada", "open sesame", 200}, {"ada", "close sesame", 401}, {"ada", "", 401}, {"bob", "open sesame", 401}, {"", "", 401},
	} {
		if status, asks, _ := guess(tt.user, tt.password); status != tt.want || (asks != "") != (tt.want == 401) {
			t.Errorf("%s with %q: got status %d, WWW-Authenticate %s", tt.user, tt.password, status, asks)
		}
	}
	if resp, _ := r.ask("GET", "/", nil, nil); resp.StatusCode != 401 || resp.Header.Get("WWW-Authenticate") == "" {
		t.Errorf("without a password: got status %d, want 401", resp.StatusCode)
	}
	var passed, unchecked atomic.Int64
	var group sync.WaitGroup
	for i := range 400 {
		group.Go(func() {
			status, _, busy := guess("ada", fmt.Sprint("guess ", i))
			if status != 401 {
				passed.Add(1)
			}
			if busy != "" {
				unchecked.Add(1)
			}
		})
	}
	group.Wait()
	if passed.Load() > 0 || unchecked.Load() == 0 {
		t.Errorf("of 400 wrong passwords at once, %d passed and %d were not checked, want none and some", passed.Load(), unchecked.Load())
	}
}
