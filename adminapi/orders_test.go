package adminapi

import (
	"context"
	"net"
	"net/http"
	"os"
	"slices"
	"testing"
	"time"
)

// TestAuthor checks that an order over a unix socket has the name of the user at the other end, and
// that only root and the user of the gateway may give another name.
func TestAuthor(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		claimed string
		uid     int
		known   bool
		want    string
	}{
		{"dora", 0, true, "dora"},
		{"", 0, true, "root"},
		{"dora", os.Getuid(), true, "dora"},
		{"dora", 4711, true, "uid 4711"},
		{"", 4711, true, "uid 4711"},
		{"dora", unmapped, true, "dora (not verified)"},
		{"dora", 0, false, "dora (not verified)"},
		{"", 0, false, "somebody (not verified)"},
	} {
		if got := author(tt.claimed, tt.uid, tt.known); got != tt.want {
			t.Errorf("%q of %d, %v: %q, want %q", tt.claimed, tt.uid, tt.known, got, tt.want)
		}
	}
	// Over TCP, the user is unknown.
	ctx := context.WithValue(t.Context(), http.LocalAddrContextKey, net.Addr(&net.TCPAddr{}))
	if got := authorOf(context.WithValue(ctx, peerKey{}, new(peer)), "dora"); got != "dora" {
		t.Errorf("author over TCP = %q, want dora", got)
	}
}

func TestInDays(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		24 * time.Hour:   "1 day",
		720 * time.Hour:  "30 days",
		36 * time.Hour:   "36h0m0s",
		90 * time.Minute: "1h30m0s",
	} {
		if got := inDays(d); got != want {
			t.Errorf("inDays(%v) = %q, want %q", d, got, want)
		}
	}
}

func TestNearNames(t *testing.T) {
	t.Parallel()
	names := []string{"AcmeBot", "AcmeNews", "Crawler-2", "X"}
	for name, want := range map[string][]string{
		"acmebto":   {"AcmeBot"},
		"AcmeBots":  {"AcmeBot"},
		"acme":      {"AcmeBot", "AcmeNews"},
		"crawler2":  {"Crawler-2"},
		"Crawler-3": {"Crawler-2"},
		"Googlebot": nil,
		"y":         nil,
		"Acmeotb":   {"AcmeBot"},
	} {
		if got := NearNames(names, name); !slices.Equal(got, want) {
			t.Errorf("near %q: %q, want %q", name, got, want)
		}
	}
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "abc", 3}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"flaw", "lawn", 2}, {"same", "same", 0}} {
		if got := edits(tt.a, tt.b); got != tt.want {
			t.Errorf("edits(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
	}
}
