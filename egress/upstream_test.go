package egress

import (
	"strings"
	"testing"
)

// TestParseUpstream checks which proxies are rejected before any dial, and that no error contains a
// password.
func TestParseUpstream(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"http://user:secret@proxy.example:3128":  "",
		"https://proxy.example/":                 "",
		"socks5://user:secret@[2001:db8::1]":     "",
		"http://user:secret@proxy.example:x":     "url cannot be parsed",
		"":                                       "no host",
		"proxy.example:3128":                     "no host",
		"ftp://user:secret@proxy.example":        "ftp://user:xxxxx@proxy.example: the scheme must be http, https or socks5",
		"http://user:secret@proxy.example/a":     "http://user:xxxxx@proxy.example/a: a path has no meaning here",
		"http://user:secret@proxy.example:99999": `http://user:xxxxx@proxy.example:99999: `,
	} {
		_, err := ParseUpstream(raw)
		if err == nil && want == "" {
			continue
		}
		if err == nil || want == "" || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("ParseUpstream(%q): error %v, want %s", raw, err, want)
		}
	}
}
