package origin_test

import (
	"net/netip"
	"testing"

	"github.com/crawlgate/crawlgate/origin"
)

func TestOriginForms(t *testing.T) {
	t.Parallel()
	tests := []struct {
		url                                 string
		str, authority, hostPort, robotsURL string
		host                                string
		isAddr                              bool
	}{
		{
			url: "http://example.com/x", str: "http://example.com", authority: "example.com",
			hostPort: "example.com:80", robotsURL: "http://example.com/robots.txt", host: "example.com",
		},
		{
			url: "https://example.com:8443", str: "https://example.com:8443", authority: "example.com:8443",
			hostPort: "example.com:8443", robotsURL: "https://example.com:8443/robots.txt", host: "example.com",
		},
		{
			url: "ftp://example.com/pub", str: "ftp://example.com", authority: "example.com",
			hostPort: "example.com:21", robotsURL: "ftp://example.com/robots.txt", host: "example.com",
		},
		{
			url: "https://[2001:db8::1]/", str: "https://[2001:db8::1]", authority: "[2001:db8::1]",
			hostPort: "[2001:db8::1]:443", robotsURL: "https://[2001:db8::1]/robots.txt", host: "2001:db8::1", isAddr: true,
		},
		{
			url: "http://[::1]:8080/", str: "http://[::1]:8080", authority: "[::1]:8080",
			hostPort: "[::1]:8080", robotsURL: "http://[::1]:8080/robots.txt", host: "::1", isAddr: true,
		},
		{ // from Google's specification: an address as host name
			url: "https://212.96.82.21/x", str: "https://212.96.82.21", authority: "212.96.82.21",
			hostPort: "212.96.82.21:443", robotsURL: "https://212.96.82.21/robots.txt", host: "212.96.82.21", isAddr: true,
		},
		{
			url: "http://127.0.0.1.example/", str: "http://127.0.0.1.example", authority: "127.0.0.1.example",
			hostPort: "127.0.0.1.example:80", robotsURL: "http://127.0.0.1.example/robots.txt", host: "127.0.0.1.example",
		},
	}
	for _, tt := range tests {
		t.Run(tt.url, func(t *testing.T) {
			t.Parallel()
			o := mustParse(t, tt.url)
			if o.IsZero() {
				t.Error("IsZero() = true for a parsed origin")
			}
			if o.Host != tt.host {
				t.Errorf("Host = %q, want %q", o.Host, tt.host)
			}
			for _, form := range []struct{ name, got, want string }{
				{"String", o.String(), tt.str},
				{"Authority", o.Authority(), tt.authority},
				{"HostPort", o.HostPort(), tt.hostPort},
				{"RobotsURL", o.RobotsURL(), tt.robotsURL},
			} {
				if form.got != form.want {
					t.Errorf("%s() = %q, want %q", form.name, form.got, form.want)
				}
			}
			addr, ok := o.Addr()
			if ok != tt.isAddr || (ok && addr != netip.MustParseAddr(tt.host)) {
				t.Errorf("Addr() = %v, %v, want ok %v", addr, ok, tt.isAddr)
			}
		})
	}
}

func TestZeroOriginIsNoOrigin(t *testing.T) {
	t.Parallel()
	var o origin.Origin
	if !o.IsZero() {
		t.Error("IsZero() = false for the zero origin")
	}
	if s := o.String(); s != "" {
		t.Errorf("String() = %q, want empty", s)
	}
	if addr, ok := o.Addr(); ok {
		t.Errorf("Addr() = %v, true for the zero origin", addr)
	}
	if _, err := origin.Parse(o.String()); err == nil {
		t.Error("Parse accepts the zero origin's string")
	}
}

func mustParse(tb testing.TB, rawURL string) origin.Origin {
	tb.Helper()
	o, err := origin.Parse(rawURL)
	if err != nil {
		tb.Fatalf("Parse(%q): %v", rawURL, err)
	}
	return o
}
