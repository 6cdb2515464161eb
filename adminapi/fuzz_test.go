package adminapi

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/crawlgate/crawlgate/egress"
	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/engine"
)

// oneFile is a transport that returns the same rules for every URL.
type oneFile struct{}

func (oneFile) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader("User-agent: *\nDisallow: /private/\n")), Request: r}, nil
}

// adminEngine returns an engine without listeners and files, with one site.
func adminEngine(tb testing.TB) *engine.Engine {
	tb.Helper()
	config := engine.Config{Store: engine.Store{Kind: "none"}}
	config.Egress.Dialer = &egress.Dialer{Guard: new(guard.Guard)}
	config.Fetch.Transport = oneFile{}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: tb.Context()})
	tb.Cleanup(cancel)
	e, err := engine.New(ctx, config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = e.Close() })
	if err := e.Open(); err != nil {
		tb.Fatal(err)
	}
	identifier, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{{Name: "Acme"}}})
	if err != nil {
		tb.Fatal(err)
	}
	policy, _, err := enforce.NewPolicy(enforce.PolicyConfig{Deny: []string{"denied.example"}}, time.Now())
	if err != nil {
		tb.Fatal(err)
	}
	err = e.AddSite(ctx, &engine.SitePolicy{
		Engine: e, Life: ctx, Identifier: identifier, Operator: policy,
		Enforcer: &enforce.Enforcer{Rules: e, Policy: policy, Stops: e.Stops()},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

// FuzzAdmin checks that no query and no body makes the admin API panic, fail with a server error,
// or answer with invalid JSON; and that an accepted order is listed like in its answer and can be
// lifted with its id.
func FuzzAdmin(f *testing.F) {
	paths := make([]string, 0, len(routes))
	for path := range routes {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	at := func(path string) byte { return byte(slices.Index(paths, path)) }
	f.Add(at("origins"), uint8(0), "limit=1&state=rules&host=example.com", "")
	f.Add(at("origin"), uint8(0), "origin=https%3A%2F%2Fexample.com", "")
	f.Add(at("body"), uint8(0), "sha256="+strings.Repeat("ab", 32), "")
	f.Add(at("diff"), uint8(0), "origin=https://example.com&from=x&to=y", "")
	f.Add(at("explain"), uint8(0), "agent=acme&url=https://example.com/private/%zz?x=1", "")
	f.Add(at("purge"), uint8(1), "", `{"origin":"https://example.com"}`)
	f.Add(at("refresh"), uint8(1), "", `{"origin":"http://denied.example"}`)
	f.Add(at("refresh"), uint8(1), "", `{"origin":"http://[::1]:8080"}`)
	f.Add(at("deny"), uint8(1), "", `{"scope":"host","value":"*.example.com","by":"dora","reason":"x","force":true}`)
	f.Add(at("deny"), uint8(1), "", `{"scope":"agent","value":"acmee"}`)
	f.Add(at("deny"), uint8(2), "scope=all", "")
	f.Add(at("allow"), uint8(1), "", "{}")
	f.Add(at("clocks"), uint8(0), "key=example.com&state=blocked&after=a", "")
	f.Add(at("unblock"), uint8(1), "", `{"key":"EXAMPLE.com:80"}`)
	f.Add(at("unblock"), uint8(1), "", `{"key":"addr:192.0.2.1"}{}`)
	methods := []string{http.MethodGet, http.MethodPost, http.MethodDelete, http.MethodHead, "\x00"}
	e := adminEngine(f)
	f.Fuzz(func(t *testing.T, path, method uint8, query, body string) {
		route := paths[int(path)%len(paths)]
		e.Pacer().RecordFailure("example.com", 0)
		answer, err := askAdmin(route, methods[int(method)%len(methods)], query, body)
		if err != nil {
			fault, ok := errors.AsType[caddy.APIError](err)
			if ok && route == "allow" && fault.HTTPStatus == http.StatusForbidden {
				return // this engine accepts no exceptions
			}
			if !ok || !slices.Contains([]int{400, 404, 405, 409}, fault.HTTPStatus) || fault.Error() == "" {
				t.Fatalf("%s ?%s %s: unexpected error %v", route, query, body, err)
			}
			return
		}
		if !strings.HasPrefix(answer.Header().Get("Content-Type"), "text/plain") && !json.Valid(answer.Body.Bytes()) {
			t.Fatalf("%s ?%s: the answer is not JSON: %s", route, query, answer.Body)
		}
		var given OrderGiven
		if route != "deny" || methods[int(method)%len(methods)] != http.MethodPost {
			return
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &given); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(e.Stops().List(), given.Order) {
			t.Fatalf("order %+v is not listed: %+v", given.Order, e.Stops().List())
		}
		q := url.Values{"scope": {string(given.Order.Scope)}}
		if given.Order.Value != "" {
			q.Set("value", given.Order.Value)
		}
		if _, err := askAdmin("deny", http.MethodDelete, q.Encode(), ""); err != nil {
			t.Fatalf("order %+v cannot be lifted: %v", given.Order, err)
		}
	})
}

func askAdmin(route, method, query, body string) (*httptest.ResponseRecorder, error) {
	r := httptest.NewRequest(http.MethodPost, Prefix+route, strings.NewReader(body))
	r.Method, r.URL.RawQuery = method, query
	w := httptest.NewRecorder()
	return w, handler(routes[route])(w, r)
}
