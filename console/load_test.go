package console_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/crawlgate/crawlgate/internal/testgateway"
)

func TestMain(m *testing.M) { testgateway.Main(m) }

// The password of ada is "open sesame".
const basicAuth = "basic_auth%s {\nada $2a$04$YpL2MwB3lw6DP0b3ygrNIuhaORMVr0vpC4zpEoiWySN6uRSEkKfXm\n}\n"

func auth(matcher string) string { return strings.Replace(basicAuth, "%s", matcher, 1) }

// provision adapts a Caddyfile and validates it like `crawlgate validate`.
func provision(t *testing.T, text string) error {
	t.Helper()
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	if err != nil {
		return err
	}
	var c caddy.Config
	if err := json.Unmarshal(config, &c); err != nil {
		t.Fatal(err)
	}
	return caddy.Validate(&c)
}

// Parts of the errors.
const (
	atLarge  = "without authentication: bind it to 127.0.0.1"
	noOrders = "orders on: nobody would be responsible for an order"
	hidden   = "must be in a route of its site"
)

// TestLoad checks which sites may have the page.
func TestLoad(t *testing.T) {
	const everywhere, loopback = ":9180", "http://:9180"
	forward := "forward_auth 127.0.0.1:9 {\nuri /check\n}\n"
	page, orders := "robots_console", "robots_console {\norders on\n}"
	for _, tt := range []struct {
		name, site, bind, lines, want string // want is part of the error; empty for none
	}{
		{"loopback", loopback, "127.0.0.1 ::1", page, ""},
		{"localhost", loopback, "localhost", page, ""},
		{"socket", loopback, "unix//tmp/console.sock", page, ""},
		{"everywhere", everywhere, "", page, atLarge},
		{"IPv4 everywhere", loopback, "0.0.0.0", page, atLarge},
		{"IPv6 everywhere", loopback, "::", page, atLarge},
		{"one of two", loopback, "127.0.0.1 192.0.2.1", page, atLarge},
		{"a name", loopback, "console.internal", page, atLarge},
		{"basic_auth", everywhere, "", auth("") + page, ""},
		{"basic_auth for a path", everywhere, "", auth(" /x*") + page, atLarge},
		{"basic_auth for a matcher", everywhere, "", "@in remote_ip 10.0.0.0/8\n" + auth(" @in") + page, atLarge},
		{"basic_auth after it", everywhere, "", "route {\n" + page + "\n" + auth("") + "}", atLarge},
		{"basic_auth before it in a route", everywhere, "", "route {\n" + auth("") + page + "\n}", ""},
		{"basic_auth in another handle", everywhere, "", "handle /x* {\n" + auth("") + "}\nhandle {\n" + page + "\n}", atLarge},
		{"basic_auth in the same handle", everywhere, "", "handle /x* {\nrespond no\n}\nhandle {\n" + auth("") + page + "\n}", ""},
		{"one of two pages", everywhere, "", "handle /x* {\n" + auth("") + page + "\n}\nhandle {\n" + page + "\n}", atLarge},
		{"forward_auth", everywhere, "", forward + page, ""},
		{"forward_auth with orders", everywhere, "", forward + orders, noOrders},
		{
			"proxy that handles errors", everywhere, "",
			"route {\nreverse_proxy 127.0.0.1:9 {\n@bad status 5xx\nhandle_response @bad {\nrespond no\n}\n}\n" + page + "\n}", atLarge,
		},
		{
			"proxy that handles everything", everywhere, "",
			"route {\nreverse_proxy 127.0.0.1:9 {\nhandle_response {\nrespond no\n}\n}\n" + page + "\n}", atLarge,
		},
		{"orders on loopback", loopback, "127.0.0.1", orders, noOrders},
		{"orders with basic_auth", loopback, "127.0.0.1", auth("") + orders, ""},
		{"orders with basic_auth for a path", loopback, "127.0.0.1", auth(" /x*") + orders, noOrders},
		{"named route", loopback, "127.0.0.1", "invoke page", hidden},
		{"error route", loopback, "127.0.0.1", "handle_errors {\n" + page + "\n}", hidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bind := ""
			if tt.bind != "" {
				bind = "bind " + tt.bind + "\n"
			}
			err := provision(t, "{\nadmin off\nauto_https off\n}\n&(page) {\n"+page+"\n}\n"+tt.site+" {\n"+bind+tt.lines+"\n}\n")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

// TestGuardInGroup checks that an authentication does not protect later routes if another route of
// its group may match instead, as in some JSON configurations.
func TestGuardInGroup(t *testing.T) {
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("{\nadmin off\nauto_https off\n}\n:9180 {\nroute {\n"+auth("")+"robots_console\n}\n}\n"),
		map[string]any{"filename": "Caddyfile"})
	if err != nil {
		t.Fatal(err)
	}
	const guard, page = `{"handle":[{"handler":"authentication"`, `,{"handler":"robots_console"}`
	apart := strings.Replace(string(config), page, `]},{"handle":[`+page[1:], 1)
	grouped := strings.Replace(apart, guard, `{"group":"a",`+guard[1:], 1)
	if apart == string(config) || grouped == apart {
		t.Fatalf("the configuration lacks %s or %s: %s", guard, page, config)
	}
	for text, want := range map[string]string{apart: "", grouped: atLarge} {
		var c caddy.Config
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatal(err)
		}
		if err := caddy.Validate(&c); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s\ngot %v, want %q", text, err, want)
		}
	}
}

// TestBadOptions checks the errors for mistakes, with their line.
func TestBadOptions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ lines, want string }{
		{"robots_console /x* now", `robots_console takes no argument, found "now", at Caddyfile:2`},
		{"robots_console {\norders yes\n}", `option "orders" of robots_console: unknown value "yes": want on, off, at Caddyfile:3`},
		{"robots_console {\norders\n}", `option "orders" of robots_console takes 1 argument, found 0, at Caddyfile:3`},
		{"robots_console {\norders on\norders off\n}", `option "orders" of robots_console is given twice, at Caddyfile:4`},
		{"robots_console {\norder on\n}", `unknown option "order" in robots_console: want one of hosts, orders, at Caddyfile:3`},
		{"robots_console {\nhosts *.example.com\n}", `hosts "*.example.com": want a name or an address, at Caddyfile:3`},
		{"robots_console {\nhosts https://example.com\n}", `hosts "https://example.com": want a name or an address, at Caddyfile:3`},
		{"robots_console {\nhosts\n}", `option "hosts" of robots_console takes at least 1 argument, found 0, at Caddyfile:3`},
	} {
		_, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte("http://:9180 {\n"+tt.lines+"\n}\n"), map[string]any{"filename": "Caddyfile"})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\n got %v\nwant %s", tt.lines, err, tt.want)
		}
	}
}
