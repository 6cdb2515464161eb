package fetch

import (
	"fmt"
	"net"
	"net/http"
	"reflect"
	"testing"
)

// upstreamError is an error like that of egress's upstream proxies.
type upstreamError struct{ cause, text string }

func (e upstreamError) Error() string                  { return "upstream proxy 10.9.8.7:3128 " + e.text }
func (e upstreamError) Upstream() (cause, text string) { return e.cause, e.text }

// TestRFC9110_15_5_8_UpstreamAnswers checks that an upstream proxy's own answer is not the site's.
// Without an upstream proxy, an answer signed by a site's CDN is the site's.
func TestRFC9110_15_5_8_UpstreamAnswers(t *testing.T) {
	t.Parallel()
	status := func(code int) want { return statusWant(code) }
	for _, tt := range []struct {
		name   string
		status int
		field  string
		direct want
		sign   string // "" if it is the site's even with an upstream proxy
	}{
		{"407", 407, "Proxy-Authenticate: Basic", want{KindUnreachable, CauseProtocol}, "its status"},
		{"407 without a challenge", 407, "", want{KindUnreachable, CauseProtocol}, "its status"},
		{"511", 511, "", status(511), "its status"},
		{"challenge with another status", 403, "Proxy-Authenticate: NTLM", status(403), "Proxy-Authenticate"},
		{"squid", 403, "X-Squid-Error: ERR_ACCESS_DENIED 0", status(403), "X-Squid-Error"},
		{"squid without the site", 503, "X-Squid-Error: ERR_DNS_FAIL 0", status(503), "X-Squid-Error"},
		{"smokescreen", 407, "X-Smokescreen-Error: denied", want{KindUnreachable, CauseProtocol}, "its status"},
		{"smokescreen with another status", 404, "X-Smokescreen-Error: denied", status(404), "X-Smokescreen-Error"},
		{"scraping networks", 404, "X-Crawlera-Error: banned", status(404), "X-Crawlera-Error"},
		{"luminati", 403, "X-Luminati-Error: policy", status(403), "X-Luminati-Error"},
		{"bright data", 403, "X-Brd-Error: policy", status(403), "X-Brd-Error"},
		{"scraping network", 404, "X-Brd-Err-Code: policy_20000", status(404), "X-Brd-Err-Code"},
		{"RFC 9209", 403, "Proxy-Status: p; error=http_request_denied", status(403), "Proxy-Status"},
		{"RFC 9209, of several", 404, "Proxy-Status: cdn; received-status=200, p;error=proxy_internal_response; details=\"x\"", status(404), "Proxy-Status"},
		{"RFC 9209 with 200", 200, "Proxy-Status: p; error=destination_unavailable", status(200), "Proxy-Status"},
		{"RFC 9209 with 302", 302, "Proxy-Status: p; error=http_request_denied", status(302), "Proxy-Status"},

		{"RFC 9209 without an error", 404, "Proxy-Status: p; received-status=404", status(404), ""},
		{"Via", 404, "Via: 1.1 squid", status(404), ""},
		{"X-Cache", 404, "X-Cache: MISS from squid", status(404), ""},
		{"rules", 200, "Via: 1.1 squid", status(200), ""},
		{"404", 404, "", status(404), ""},
		{"503", 503, "", status(503), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			for _, proxied := range []bool{false, true} {
				asked := ""
				cfg := Config{Proxied: func(host string) bool { asked = host; return proxied }}
				out, _ := fetchScript(t, cfg, map[string]string{"*": answer(tt.status, rules, tt.field+"\r\nX: y")})
				w := tt.direct
				if proxied && tt.sign != "" {
					w = want{KindUnreachable, CauseUpstream}
					if want := fmt.Sprintf("upstream proxy answered %d itself (%s)", tt.status, tt.sign); out.Detail != want || asked != "a.example" {
						t.Errorf("detail %q, want %q; host %q", out.Detail, want, asked)
					}
				}
				w.check(t, out)
				checkOurs(t, out)
			}
		})
	}
}

// checkOurs checks that a local failure leaves every record unchanged, and permits nothing until it
// has passed.
func checkOurs(t *testing.T, out Outcome) {
	t.Helper()
	if out.Ours() != (out.Cause == CauseUpstream || out.Cause == CauseLocal) {
		t.Errorf("Ours of %s = %v", out.Cause, out.Ours())
	}
	if !out.Ours() {
		return
	}
	for _, before := range []Record{{Origin: mustOrigin(t, "http://a.example")}, after(Policy{}, 0*hour, good), after(Policy{}, 0*hour, broken)} {
		if r := (Policy{}).Next(before, out, t0.Add(25*hour)); !reflect.DeepEqual(r, before) {
			t.Errorf("the record %s became %+v", before.State, r)
		}
		if a := (Policy{}).Access((Policy{}).Provisional(before, out, t0.Add(25*hour)), t0.Add(25*hour)); a != AccessDeny {
			t.Errorf("the provisional record of %s permits %s", before.State, a)
		}
	}
}

// TestExt_UpstreamErrors checks that the proxy's failures count as local, and failures of the site
// behind it as the site's.
func TestExt_UpstreamErrors(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		err  upstreamError
		want want
	}{
		{upstreamError{"upstream", "answered 407"}, want{KindUnreachable, CauseUpstream}},
		{upstreamError{"connect", "answered 502"}, want{KindUnreachable, CauseConnect}},
		{upstreamError{"", ""}, want{KindUnreachable, CauseProtocol}},
	} {
		err := &net.OpError{Op: "write", Err: fmt.Errorf("wrapped: %w", tt.err)}
		out := New(Config{Transport: roundTripper(func(*http.Request) (*http.Response, error) { return nil, err })}).
			Fetch(t.Context(), mustKey(t, "http://a.example"), nil)
		tt.want.check(t, out)
		checkOurs(t, out)
		if tt.err.cause != "" && out.Detail != "upstream proxy "+tt.err.text {
			t.Errorf("detail %q", out.Detail)
		}
	}
}

// TestExt_UpstreamProbe checks a proxy that answers the made-up path of a soft 404 probe itself.
func TestExt_UpstreamProbe(t *testing.T) {
	t.Parallel()
	page := "<h1>Page not found</h1>"
	s := roundTripper(func(req *http.Request) (*http.Response, error) {
		field := "X: y"
		if req.URL.Path != "/robots.txt" {
			field = "X-Squid-Error: ERR_X 0"
		}
		return (&script{tb: t, answers: map[string]string{"*": answer(500, page, field)}}).RoundTrip(req)
	})
	out := New(Config{Transport: s, Soft404: true, Proxied: func(string) bool { return true }}).Fetch(t.Context(), mustKey(t, "http://a.example"), nil)
	want{KindUnreachable, CauseStatus}.check(t, out)
}
