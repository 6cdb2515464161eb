package egress

import (
	"errors"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestGuardAllow(t *testing.T) {
	t.Parallel()
	lists := map[string]*Guard{
		"nil":  nil,
		"zero": {},
		"lan":  {AllowPrivate: prefixes("10.0.0.0/8", "fd00::/8", "169.254.0.0/16", "64:ff9b::/96")},
		"meta": {AllowPrivate: prefixes("169.254.169.254/32")},
		"all":  {AllowPrivate: prefixes("0.0.0.0/0", "::/0")},
		"web":  {Ports: []PortRange{{80, 80}, {8000, 8080}}},
	}
	tests := []struct {
		guard, target string
		want          Class // ClassPublic stands for allowed
	}{
		{"nil", "8.8.8.8:443", ClassPublic},
		{"nil", "127.0.0.1:443", ClassLoopback},
		{"zero", "8.8.8.8:80", ClassPublic},
		{"zero", "8.8.8.8:1024", ClassPublic},
		{"zero", "8.8.8.8:65535", ClassPublic},
		{"zero", "8.8.8.8:1023", ClassPort},
		{"zero", "8.8.8.8:25", ClassPort},
		{"zero", "8.8.8.8:0", ClassPort},
		{"zero", "10.0.0.1:80", ClassPrivate},
		{"zero", "10.0.0.1:25", ClassPrivate},
		{"lan", "10.0.0.1:80", ClassPublic},
		{"lan", "[::ffff:10.0.0.1]:80", ClassPublic},
		{"lan", "10.0.0.1:25", ClassPort},
		{"lan", "192.168.0.1:80", ClassPrivate},
		{"lan", "[fd00::1]:80", ClassPublic},
		{"lan", "[fc00::1]:80", ClassUniqueLocal},
		{"lan", "169.254.1.1:80", ClassPublic},
		{"lan", "169.254.169.254:80", ClassMetadata}, // named by itself only
		{"lan", "[64:ff9b::10.0.0.1]:80", ClassPublic},
		{"lan", "[64:ff9b::169.254.169.254]:80", ClassMetadata},
		{"lan", "[2002:a00:1::1]:80", Class6to4}, // 10.0.0.1 inside: the inner address opens nothing
		{"meta", "169.254.169.254:80", ClassPublic},
		{"meta", "169.254.169.253:80", ClassMetadata},
		{"all", "127.0.0.1:80", ClassPublic},
		{"all", "224.0.0.1:80", ClassPublic},
		{"all", "[fd00:ec2::254]:80", ClassMetadata},
		{"web", "8.8.8.8:443", ClassPort},
		{"web", "8.8.8.8:8000", ClassPublic},
		{"web", "8.8.8.8:8080", ClassPublic},
		{"web", "8.8.8.8:8081", ClassPort},
	}
	for _, tt := range tests {
		err := lists[tt.guard].Allow(netip.MustParseAddrPort(tt.target))
		checkRefusal(t, tt.guard+" "+tt.target, err, tt.want)
	}
	checkRefusal(t, "zero address", new(Guard).Allow(netip.AddrPort{}), ClassInvalid)
}

func checkRefusal(t *testing.T, what string, err error, want Class) {
	t.Helper()
	if want == ClassPublic {
		if err != nil {
			t.Errorf("%s: %v, want it allowed", what, err)
		}
		return
	}
	forbidden, ok := errors.AsType[*ForbiddenError](err)
	if !ok || forbidden.Class != want {
		t.Errorf("%s: %v, want class %v", what, err, want)
	}
}

// TestGuardOwn: dialing a listener of the gateway is a loop, also where the address is allowed.
func TestGuardOwn(t *testing.T) {
	t.Parallel()
	g := &Guard{AllowPrivate: prefixes("0.0.0.0/0", "::/0")}
	g.interfaces = func() ([]netip.Addr, error) {
		return []netip.Addr{netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("2001:db8::5")}, nil
	}
	checkRefusal(t, "before SetOwn", g.Allow(netip.MustParseAddrPort("10.0.0.5:3128")), ClassPublic)
	g.SetOwn(netip.MustParseAddrPort("[::]:3128"), netip.MustParseAddrPort("10.0.0.6:8443"))
	tests := []struct {
		target string
		want   Class
	}{
		{"10.0.0.5:3128", ClassOwn},
		{"[::ffff:10.0.0.5]:3128", ClassOwn},
		{"[2001:db8::5]:3128", ClassOwn},
		{"127.0.0.1:3128", ClassOwn},
		{"127.9.9.9:3128", ClassOwn},
		{"[::1]:3128", ClassOwn},
		{"0.0.0.0:3128", ClassOwn},
		{"[::]:3128", ClassOwn},
		{"10.0.0.7:3128", ClassPublic},
		{"10.0.0.5:3129", ClassPublic},
		{"10.0.0.6:8443", ClassOwn},
		{"10.0.0.5:8443", ClassPublic},
		{"127.0.0.1:8443", ClassPublic},
		{"0.0.0.0:8443", ClassOwn},
	}
	for _, tt := range tests {
		checkRefusal(t, tt.target, g.Allow(netip.MustParseAddrPort(tt.target)), tt.want)
	}
	g.interfaces = func() ([]netip.Addr, error) { return nil, errors.New("no netlink") }
	checkRefusal(t, "unknown interfaces", g.Allow(netip.MustParseAddrPort("10.0.0.7:3128")), ClassOwn)
}

func TestInterfaceAddrsKnowLoopback(t *testing.T) {
	t.Parallel()
	addrs, err := interfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addrs {
		if a == netip.MustParseAddr("127.0.0.1") {
			return
		}
	}
	t.Errorf("interfaceAddrs() = %v, want 127.0.0.1 among them", addrs)
}

// TestForbiddenErrorThroughNetHTTP: the fetch package knows the refusal by a method, through whatever wraps it.
func TestForbiddenErrorThroughNetHTTP(t *testing.T) {
	t.Parallel()
	wrapped := &url.Error{Op: "Get", URL: "http://h/", Err: &ForbiddenError{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Class: ClassPrivate}}
	marked, ok := errors.AsType[interface {
		error
		Forbidden() string
	}](wrapped)
	if !ok || marked.Forbidden() != KindForbidden.String() {
		t.Errorf("%v is not known as a refused address", wrapped)
	}
}

func TestForbiddenErrorText(t *testing.T) {
	t.Parallel()
	tests := []struct {
		addr  string
		class Class
		want  string
	}{
		{"10.0.0.1:80", ClassPrivate, "address 10.0.0.1:80 is not public (private)"},
		{"[2002:a00:1::]:80", Class6to4, "address [2002:a00:1::]:80 is not public (6to4, holds 10.0.0.1)"},
		{"8.8.8.8:25", ClassPort, "port of 8.8.8.8:25 is not open for egress"},
		{"127.0.0.1:3128", ClassOwn, "address 127.0.0.1:3128 is a listener of this gateway"},
	}
	for _, tt := range tests {
		if got := (&ForbiddenError{Addr: netip.MustParseAddrPort(tt.addr), Class: tt.class}).Error(); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

func TestParsePortRange(t *testing.T) {
	t.Parallel()
	good := map[string]PortRange{"80": {80, 80}, "1024-65535": {1024, 65535}, "1-1": {1, 1}}
	for in, want := range good {
		if got, err := ParsePortRange(in); err != nil || got != want {
			t.Errorf("ParsePortRange(%q) = %v, %v, want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "0", "65536", "-1", "80-", "-80", "90-80", "http", "+80", "80-90-100", " 80", "0-80"} {
		got, err := ParsePortRange(in)
		if err == nil {
			t.Errorf("ParsePortRange(%q) = %v, want an error", in, got)
		} else if !strings.Contains(err.Error(), "reading port range") {
			t.Errorf("ParsePortRange(%q): %v does not say what was done", in, err)
		}
	}
}

func prefixes(texts ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}
