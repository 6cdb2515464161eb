package crawlgate

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/sockets"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/pace"
)

// TestSilentFetches checks that fetches that only wait leave descriptors for the requests of
// crawlers.
func TestSilentFetches(t *testing.T) {
	t.Parallel()
	c, err := new(App).settings()
	if err != nil {
		t.Fatal(err)
	}
	if limit, got := sockets.DescriptorLimit(), c.Cache.InFlight; limit > 0 && (got <= 0 || got > limit/fetchShare) {
		t.Errorf("%d fetches may be in progress with %d descriptors, want 1 to %d", got, limit, limit/fetchShare)
	}
}

// TestFleetSettings checks that the fleet uses the configured Redis, and that its URL may be a
// placeholder.
func TestFleetSettings(t *testing.T) {
	t.Setenv("FLEET_URL", "redis://fleet.example")
	store, shared := &engine.Store{Kind: "redis", URL: "redis://store.example"}, &PaceConfig{Shared: "redis://pace.example"}
	redis := &RedisConfig{URL: "{env.FLEET_URL}"}
	for _, tt := range []struct {
		app       App
		url, want string
	}{
		{App{Store: store, Fleet: new(engine.Fleet)}, "redis://store.example", ""},
		{App{Store: store, Pace: shared, Fleet: new(engine.Fleet)}, "redis://pace.example", ""},
		{App{Store: store, Fleet: &engine.Fleet{URL: "{env.FLEET_URL}", Expect: 3}}, "redis://fleet.example", ""},
		{App{Store: store}, "redis://store.example", ""},
		{App{Store: store, Pace: shared}, "redis://pace.example", ""},
		{App{Pace: &PaceConfig{Shared: "{env.FLEET_URL}"}}, "redis://fleet.example", ""},
		{App{Redis: redis}, "redis://fleet.example", ""},
		{App{Redis: redis, Store: store, Pace: shared}, "redis://fleet.example", ""},
		{App{Redis: &RedisConfig{}}, "", "redis needs a url"},
		{App{Redis: &RedisConfig{URL: "redis://h", Expect: -1}}, "", "redis: expect is negative"},
		{App{}, "", ""},
		{App{Fleet: new(engine.Fleet)}, "", "needs a url"},
		{App{Store: store, Fleet: &engine.Fleet{Expect: maxGateways + 1}}, "", "expect: 1001 is not from 1 to 1000"},
	} {
		c, err := tt.app.settings()
		if err == nil {
			err = tt.app.resolve(&c)
		}
		if tt.want == "" && (err != nil || c.Fleet.URL != tt.url) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %q, %v; want %q, %q", tt.app.Fleet, c.Fleet.URL, err, tt.url, tt.want)
		}
		if f := tt.app.Fleet; err == nil && f != nil && (c.Fleet.Expect != f.Expect || c.Fleet.Self.Name != c.Name || c.Prefix == "") {
			t.Errorf("fleet settings = %+v", c.Fleet)
		}
	}
}

// TestRedisSettings checks that one option makes gateways share records, clocks and orders, and
// that the option of a part overrides it.
func TestRedisSettings(t *testing.T) {
	t.Parallel()
	redis := &RedisConfig{URL: "redis://all.example", Prefix: "acme", Expect: 3}
	for name, tt := range map[string]struct {
		app                          App
		store, clocks, fleet, prefix string
		kind                         string
		expect                       int
	}{
		"all": {
			App{Redis: redis}, redis.URL, redis.URL, redis.URL, "acme", "redis", 3,
		},
		"nothing but a URL": {
			App{Redis: &RedisConfig{URL: redis.URL}}, redis.URL, redis.URL, redis.URL, "crawlgate", "redis", 0,
		},
		"records in a file": {
			App{Redis: redis, Store: &engine.Store{Kind: "file", Path: "/x"}}, "", redis.URL, redis.URL, "acme", "file", 3,
		},
		"records elsewhere": {
			App{Redis: redis, Store: &engine.Store{Kind: "redis", URL: "redis://s"}}, "redis://s", redis.URL, redis.URL, "acme", "redis", 3,
		},
		"records kept for a day": {
			App{Redis: redis, Store: &engine.Store{Kind: "redis", Retain: 1}}, redis.URL, redis.URL, redis.URL, "acme", "redis", 3,
		},
		"clocks elsewhere": {
			App{Redis: redis, Pace: &PaceConfig{Shared: "redis://p"}}, redis.URL, "redis://p", redis.URL, "acme", "redis", 3,
		},
		"orders elsewhere": {
			App{Redis: redis, Fleet: &engine.Fleet{URL: "redis://f", Expect: 4}}, redis.URL, redis.URL, "redis://f", "acme", "redis", 4,
		},
	} {
		c, err := tt.app.settings()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got := []any{c.Store.URL, c.SharedClocks, c.Fleet.URL, c.Prefix, c.Store.Kind, c.Fleet.Expect}
		want := []any{tt.store, tt.clocks, tt.fleet, tt.prefix, tt.kind, tt.expect}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}

// connectProxy is an HTTP proxy that opens tunnels and records their targets.
type connectProxy struct {
	mu      sync.Mutex
	targets []string
}

func (p *connectProxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	p.targets = append(p.targets, r.Host)
	p.mu.Unlock()
	out, err := net.Dial("tcp", r.Host)
	if r.Method != http.MethodConnect || err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer out.Close()
	in, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer in.Close()
	_, _ = io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
	go func() {
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
}

func listenLocal(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// TestRedisURLWithPlaceholders checks that the value of a placeholder is read and checked when the
// gateway starts.
func TestRedisURLWithPlaceholders(t *testing.T) {
	t.Setenv("TEST_REDIS", "redis://user:secret@redis.example/2")
	t.Setenv("TEST_NO_REDIS", "http://redis.example")
	t.Setenv("TEST_WORD", "s3cret")
	for text, want := range map[string]string{
		"{env.TEST_REDIS}":                       "",
		"redis://:{env.TEST_WORD}@redis.example": "",
		"{env.TEST_NO_REDIS}":                    `store: redis url has scheme "http"`,
	} {
		a := &App{Store: &engine.Store{Kind: "redis", URL: text}}
		config, err := a.settings()
		if err == nil {
			err = a.resolve(&config)
		}
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestFTPKeepsToTheUpstream checks that with an upstream proxy, robots.txt of an FTP site is
// fetched only through it, over both connections. If the proxy is unreachable, no other way is
// used.
func TestFTPKeepsToTheUpstream(t *testing.T) {
	t.Parallel()
	const text = "User-agent: *\nDisallow: /\n"
	site := testorigin.StartFTP(t, &testorigin.FTPSite{Files: map[string]string{"/robots.txt": text}})
	o, err := origin.Parse("ftp://" + site)
	if err != nil {
		t.Fatal(err)
	}
	proxy := new(connectProxy)
	server := httptest.NewServer(proxy)
	defer server.Close()
	retrieve := func(upstream string) fetch.Outcome {
		a := &App{Egress: &EgressConfig{AllowPrivate: []string{"127.0.0.0/8"}, Upstreams: []UpstreamConfig{{URL: upstream}}}}
		config, err := a.settings()
		if err != nil {
			t.Fatal(err)
		}
		if err := a.resolve(&config); err != nil {
			t.Fatal(err)
		}
		transport, err := egress.NewTransport(config.Egress)
		if err != nil {
			t.Fatal(err)
		}
		return fetch.New(fetch.Config{Transport: transport}).Fetch(t.Context(), fetch.Key{Origin: o}, nil)
	}

	closed := listenLocal(t)
	gone := "http://" + closed.Addr().String()
	_ = closed.Close()
	if out := retrieve(gone); out.Kind != fetch.KindUnreachable {
		t.Errorf("with an unreachable proxy: got %+v, want an unreachable site", out)
	}
	if out := retrieve(server.URL); out.Kind != fetch.KindRules || string(out.Body) != text {
		t.Errorf("through the proxy: got %+v, want rules", out)
	}
	proxy.mu.Lock()
	defer proxy.mu.Unlock()
	if len(proxy.targets) != 2 || proxy.targets[0] != site {
		t.Errorf("the proxy was asked for %q, want the control connection to %s and one for data", proxy.targets, site)
	}
}

// TestNegative checks that JSON cannot set a number or a time below 0, like a Caddyfile.
func TestNegative(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"pace":{"wait":"-1s"}}`:                      "pace: wait",
		`{"pace":{"queue":-1}}`:                        "pace: queue",
		`{"pace":{"crawl_delay":{"min":-2,"max":-1}}}`: "pace: crawl_delay: min",
		`{"pace":{"backoff":{"first":-1}}}`:            "pace: backoff: first",
		`{"cache":{"max_size":-1}}`:                    "cache: max_size",
		`{"cache":{"ttl":-1}}`:                         "cache: ttl",
		`{"fetch":{"unreachable_for":-1}}`:             "fetch: unreachable_for",
		`{"fetch":{"parallel":-1}}`:                    "fetch: parallel",
		`{"egress":{"dial_timeout":-1}}`:               "egress: dial_timeout",
		`{"limits":{"tunnel_age":-1}}`:                 "limits: tunnel_age",
		`{"store":{"retain":-1}}`:                      "store: retain",
		`{"redis":{"url":"redis://h","expect":-1}}`:    "redis: expect",
		`{"allow_for":-1}`:                             "allow_for",
	} {
		var a App
		if err := json.Unmarshal([]byte(text), &a); err != nil {
			t.Fatal(err)
		}
		if _, err := a.settings(); err == nil || err.Error() != want+" is negative" {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
	var h Handler
	if err := json.Unmarshal([]byte(`{"agents":[{"name":"A","max_wait":"-1s"}]}`), &h); err != nil {
		t.Fatal(err)
	}
	if _, err := h.policy(); err == nil || err.Error() != `agent "A": max_wait -1s is negative` {
		t.Errorf("got %v", err)
	}
}

// TestBadHTMLMode checks that the mode of html is checked in JSON like in the Caddyfile.
func TestBadHTMLMode(t *testing.T) {
	t.Parallel()
	var a App
	if err := json.Unmarshal([]byte(`{"signals":{"html":"on"}}`), &a); err != nil {
		t.Fatal(err)
	}
	if _, err := a.settings(); err == nil || err.Error() != `signals: html "on": want off, log, hold` {
		t.Errorf("got %v", err)
	}
	if err := json.Unmarshal([]byte(`{"signals":{"html":"hold"}}`), &a); err != nil || a.Signals.HTML != enforce.HTMLHold {
		t.Errorf("got %v, %v", a.Signals, err)
	}
}

// TestPaceWords checks the operator's words for the scope of a clock and for the treatment of a
// Crawl-delay that is too long.
func TestPaceWords(t *testing.T) {
	t.Parallel()
	read := func(per, above string) (engine.Config, error) {
		return (&App{Pace: &PaceConfig{Per: []string{per}, CrawlDelay: &CrawlDelayConfig{Above: above}}}).settings()
	}
	for word, want := range map[string]pace.Scope{"": pace.PerHost, "host": pace.PerHost, "site": pace.PerSite, "address": pace.PerAddress} {
		if c, err := read(word, ""); err != nil || !slices.Equal(c.Politeness.Per, []pace.Scope{want}) || c.Politeness.CrawlDelay.Above != pace.Clamp {
			t.Errorf("per %q: %v, %v", word, c.Politeness, err)
		}
	}
	for word, want := range map[string]pace.Above{"clamp": pace.Clamp, "refuse": pace.Refuse, "honor": pace.Honor} {
		if c, err := read("host", word); err != nil || c.Politeness.CrawlDelay.Above != want {
			t.Errorf("above %q: %v, %v", word, c.Politeness, err)
		}
	}
	for _, bad := range []string{"Host", "hosts", "Clamp", "site "} {
		if _, err := read(bad, ""); err == nil {
			t.Errorf("per %q gave no error", bad)
		}
		if _, err := read("host", bad); err == nil {
			t.Errorf("above %q gave no error", bad)
		}
	}
}

// TestUnknownFields checks that a field of a removed option is an error in JSON, like in a
// Caddyfile.
func TestUnknownFields(t *testing.T) {
	for _, field := range []string{
		`"cache":{"min_ttl":300000000000}`, `"limits":{"body_timeout":600000000000}`, `"fetch":{"max_redirects":5}`, `"signals":{"headers":true}`,
		`"fleet":{"prefix":"a"}`, `"pace":{"gateways":3}`,
	} {
		name := strings.Split(field, `"`)[3]
		if err := validate([]byte(`{"apps":{"robots":{` + field + `}}}`)); err == nil || !strings.Contains(err.Error(), `unknown field "`+name+`"`) {
			t.Errorf("field %s: got %v, want an error about an unknown field", field, err)
		}
	}
}
