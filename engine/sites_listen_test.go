package engine

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/crawlgate/crawlgate/egress/guard"
	"github.com/crawlgate/crawlgate/internal/sockets"
)

func TestListenAddrs(t *testing.T) {
	t.Parallel()
	for listen, want := range map[string][]string{
		":3128":                {"[::]:3128"},
		"0.0.0.0:3128":         {"[::]:3128"},
		"tcp4/:3128":           {"0.0.0.0:3128"},
		"tcp6/[::1]:3128":      {"[::1]:3128"},
		"127.0.0.1:3128-3130":  {"127.0.0.1:3128", "127.0.0.1:3129", "127.0.0.1:3130"},
		"[fe80::1%eth0]:3128":  {"[fe80::1]:3128"},
		"localhost:3128":       {"127.0.0.1:3128", "[::1]:3128"},
		"name.example:3128":    nil,
		":0":                   nil,
		"udp/:3128":            nil,
		"unix//run/proxy.sock": nil,
		"fd/3":                 nil,
	} {
		var got []string
		for _, a := range listenAddrs(&caddyhttp.Server{Listen: []string{listen}}) {
			got = append(got, a.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", listen, got, want)
		}
	}
}

// TestListenerAt checks that an unknown listener is not a site, and that one socket of no site
// closes a port.
func TestListenerAt(t *testing.T) {
	parse := func(list ...string) (addrs []netip.AddrPort) {
		for _, s := range list {
			addrs = append(addrs, netip.MustParseAddrPort(s))
		}
		return addrs
	}
	var own []string
	var unknown error
	before := sockets.Process.Own
	t.Cleanup(func() {
		sockets.Process.Own = before
		sockets.Process.Changed()
	})
	sockets.Process.Own = func() (list []sockets.Socket, err error) {
		for _, addr := range parse(own...) {
			list = append(list, sockets.Socket{Addr: addr})
		}
		return list, unknown
	}
	for _, listen := range []string{":9180", "127.0.0.1:9181"} {
		t.Cleanup(Record(&caddyhttp.Server{Listen: []string{listen}})) // an operator's page
	}
	e := new(Engine)
	e.listens.Store(&listens{gateways: parse("[::]:3128"), sites: parse("[::]:80", "127.0.0.1:8080", "[::]:9180", "127.0.0.1:9181")})
	for _, tt := range []struct {
		own     []string
		unknown error
		target  string
		started bool
		want    guard.Listener
	}{
		{nil, nil, "127.0.0.1:80", true, guard.NoListener},
		{[]string{"[::]:80"}, nil, "127.0.0.1:81", true, guard.NoListener},
		{[]string{"[::]:80"}, nil, "8.8.8.8:80", true, guard.NoListener},
		{[]string{"[::]:80"}, nil, "127.0.0.1:80", true, guard.ListenerSite},
		{[]string{"0.0.0.0:80"}, nil, "127.0.0.1:80", true, guard.ListenerSite},
		{[]string{"[::]:80", "[::]:80"}, nil, "127.0.0.1:80", true, guard.ListenerSite}, // during a reload
		{[]string{"[::]:80"}, nil, "127.0.0.1:80", false, guard.ListenerOther},
		{[]string{"[::]:3128"}, nil, "127.0.0.1:3128", true, guard.ListenerGateway},
		{[]string{"127.0.0.1:2019"}, nil, "127.0.0.1:2019", true, guard.ListenerOther},
		{[]string{"[::]:9180"}, nil, "127.0.0.1:9180", true, guard.ListenerOther},
		{[]string{"0.0.0.0:9180"}, nil, "127.0.0.2:9180", true, guard.ListenerOther},
		{[]string{"127.0.0.1:9181"}, nil, "127.0.0.1:9181", true, guard.ListenerOther},
		{[]string{"127.0.0.1:8080", "10.0.0.5:8080"}, nil, "127.0.0.1:8080", true, guard.ListenerOther},
		{nil, errors.ErrUnsupported, "127.0.0.1:80", true, guard.ListenerUnknown},
		{nil, fmt.Errorf("looking: %w", errors.ErrUnsupported), "127.0.0.1:80", true, guard.ListenerUnknown},
		{nil, errors.New("no descriptors left"), "127.0.0.1:80", true, guard.ListenerOther},
		{nil, errors.New("no descriptors left"), "8.8.8.8:80", true, guard.NoListener},
	} {
		own, unknown = tt.own, tt.unknown
		sockets.Process.Changed()
		if tt.started {
			active.current.Store(e)
		}
		if got := listenerAt(netip.MustParseAddrPort(tt.target), tt.target[0] == '8'); got != tt.want {
			t.Errorf("listenerAt(%s) with %v, %v = %d, want %d", tt.target, tt.own, tt.unknown, got, tt.want)
		}
		active.current.Store(nil)
	}
}
