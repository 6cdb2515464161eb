package engine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/origin"
)

// TestDenyOfAllSites checks that a fetch is denied only if all sites of the configuration deny the
// origin, because they share its record.
func TestDenyOfAllSites(t *testing.T) {
	t.Parallel()
	site := func(deny ...string) *SitePolicy {
		p, _, err := enforce.NewPolicy(enforce.PolicyConfig{Deny: deny}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return &SitePolicy{Operator: p}
	}
	o, err := origin.Parse("https://www.example.com")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		sites   []*SitePolicy
		pattern string
	}{
		{"no site", nil, ""},
		{"one that denies nothing", []*SitePolicy{site()}, ""},
		{"one that denies another host", []*SitePolicy{site("example.com")}, ""},
		{"one that denies it", []*SitePolicy{site("www.example.com")}, "www.example.com"},
		{"one of two", []*SitePolicy{site("*.example.com"), site()}, ""},
		{"the other of two", []*SitePolicy{site(), site("*.example.com")}, ""},
		{"both", []*SitePolicy{site("www.example.com"), site("*.example.com")}, "*.example.com"},
	} {
		e := &Engine{sites: tt.sites}
		if pattern, denied := e.denied(o); pattern.String() != tt.pattern || denied != (tt.pattern != "") {
			t.Errorf("%s: denied by %q, %v; want %q", tt.name, pattern, denied, tt.pattern)
		}
	}
}

// TestReachable checks that the line "ready" names an address that clients can use.
func TestReachable(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string]string{
		"127.0.0.1:3128":        "127.0.0.1:3128",
		"[::ffff:10.0.0.1]:80":  "10.0.0.1:80",
		"[::1]:3128":            "[::1]:3128",
		"[::]:3128":             "localhost:3128",
		"0.0.0.0:3128":          "localhost:3128",
		"[::ffff:0.0.0.0]:3128": "localhost:3128",
	} {
		if got := reachable(netip.MustParseAddrPort(listen)); got != want {
			t.Errorf("reachable(%s) = %s, want %s", listen, got, want)
		}
	}
}
