package guard

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
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
		want          Class // ClassPublic if allowed
	}{
		{"nil", "8.8.8.8:443", ClassPublic},
		{"nil", "127.0.0.1:443", "loopback"},
		{"zero", "8.8.8.8:79", ClassPort},
		{"zero", "8.8.8.8:80", ClassPublic},
		{"zero", "8.8.8.8:81", ClassPort},
		{"zero", "8.8.8.8:442", ClassPort},
		{"zero", "8.8.8.8:443", ClassPublic},
		{"zero", "8.8.8.8:444", ClassPort},
		{"zero", "8.8.8.8:1024", ClassPublic},
		{"zero", "8.8.8.8:65535", ClassPublic},
		{"zero", "8.8.8.8:1023", ClassPort},
		{"zero", "8.8.8.8:25", ClassPort},
		{"zero", "8.8.8.8:0", ClassPort},
		{"zero", "10.0.0.1:80", "private"},
		{"zero", "10.0.0.1:25", "private"},
		{"lan", "10.0.0.1:80", ClassPublic},
		{"lan", "[::ffff:10.0.0.1]:80", ClassPublic},
		{"lan", "10.0.0.1:25", ClassPort},
		{"lan", "192.168.0.1:80", "private"},
		{"lan", "[fd00::1]:80", ClassPublic},
		{"lan", "[fc00::1]:80", "unique_local"},
		{"lan", "169.254.1.1:80", ClassPublic},
		{"lan", "169.254.169.254:80", ClassMetadata}, // only its own block opens it
		{"lan", "[64:ff9b::10.0.0.1]:80", ClassPublic},
		{"lan", "[64:ff9b::169.254.169.254]:80", ClassMetadata},
		{"lan", "[2002:a00:1::1]:80", "6to4"}, // 10.0.0.1 inside: the inner address opens nothing
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
			t.Errorf("%s: error %v, want it allowed", what, err)
		}
		return
	}
	forbidden, ok := errors.AsType[*ForbiddenError](err)
	if !ok || forbidden.Class != want {
		t.Errorf("%s: error %v, want the class %v", what, err, want)
	}
}

// TestGuardListener checks that a listener of this process is refused even if AllowPrivate includes
// its address. Only a site is allowed, if a block has exactly its address.
func TestGuardListener(t *testing.T) {
	t.Parallel()
	listeners := map[string]Listener{
		"10.0.0.5:3128": ListenerGateway, "10.0.0.5:2019": ListenerOther, "10.0.0.5:8080": ListenerSite, "10.0.0.5:81": ListenerUnknown,
		"10.0.0.6:8080": ListenerSite, "8.8.8.8:8080": ListenerSite, "8.8.8.8:3128": ListenerGateway,
		"[64:ff9b::a00:7]:2019": ListenerOther,
	}
	var public bool
	listener := func(ap netip.AddrPort, isPublic bool) Listener {
		public = isPublic
		return listeners[ap.String()]
	}
	wide := &Guard{AllowPrivate: prefixes("0.0.0.0/0", "::/0"), Listener: listener}
	named := &Guard{AllowPrivate: prefixes("10.0.0.5/32", "8.8.8.8/32"), Listener: listener, Ports: []PortRange{{1, 65535}}}
	tests := []struct {
		guard  *Guard
		target string
		want   Class
	}{
		{wide, "10.0.0.5:80", ClassPublic},
		{wide, "10.0.0.5:3128", ClassOwn},
		{wide, "10.0.0.5:2019", ClassOwn},
		{wide, "10.0.0.5:8080", ClassOwn},
		{wide, "10.0.0.5:81", ClassOwn},
		{wide, "8.8.8.8:8080", ClassOwn},
		{wide, "[::ffff:10.0.0.5]:2019", ClassOwn},
		{wide, "[64:ff9b::10.0.0.5]:2019", ClassOwn}, // NAT64 leads to this machine
		{wide, "[64:ff9b::10.0.0.7]:2019", ClassOwn}, // an address of this machine itself
		{wide, "[2002:a00:5::]:3128", ClassOwn},
		{named, "10.0.0.5:3128", ClassOwn},
		{named, "10.0.0.5:2019", ClassOwn},
		{named, "10.0.0.5:8080", ClassPublic},
		{named, "10.0.0.5:81", ClassPublic},
		{named, "10.0.0.6:8080", ClassOwn},
		{named, "8.8.8.8:8080", ClassPublic},
		{named, "8.8.8.8:3128", ClassOwn},
	}
	for _, tt := range tests {
		checkRefusal(t, tt.target, tt.guard.Allow(netip.MustParseAddrPort(tt.target)), tt.want)
	}
	// For an address with an IPv4 address inside, the last call is about that one.
	for target, want := range map[string]bool{
		"8.8.8.8:80": true, "10.0.0.5:80": false, "168.63.129.16:80": false, "[2002:808:808::]:80": true, "[2002:a00:6::]:80": false,
	} {
		if _ = wide.Allow(netip.MustParseAddrPort(target)); public != want {
			t.Errorf("%s: public %t, want %t", target, public, want)
		}
	}
	for target, want := range map[string]Class{
		"10.0.0.5:3128": ClassOwn, "10.0.0.5:2019": ClassOwn, "10.0.0.5:8080": ClassPublic, "10.0.0.5:81": ClassPublic, "10.0.0.9:80": ClassPublic,
		"[::ffff:10.0.0.5]:2019": ClassOwn, "[64:ff9b::10.0.0.5%eth0]:2019": ClassOwn,
	} {
		checkRefusal(t, "an upstream proxy at "+target, (&Guard{Listener: listener}).NotOwn(netip.MustParseAddrPort(target)), want)
	}
}

// TestAllowFTP checks that port 21 (RFC 959 section 8) is open beside the ports for HTTP, but that
// it opens no address.
func TestAllowFTP(t *testing.T) {
	t.Parallel()
	g := &Guard{Listener: func(ap netip.AddrPort, _ bool) Listener {
		if ap.String() == "8.8.4.4:21" {
			return ListenerGateway
		}
		return NoListener
	}}
	for target, want := range map[string]Class{
		"8.8.8.8:21": ClassPublic, "8.8.8.8:443": ClassPublic, "8.8.8.8:20": ClassPort, "8.8.8.8:22": ClassPort,
		"10.0.0.1:21": "private", "169.254.169.254:21": ClassMetadata, "8.8.4.4:21": ClassOwn,
	} {
		checkRefusal(t, target, g.AllowFTP(netip.MustParseAddrPort(target)), want)
	}
}

// TestForbiddenErrorThroughNetHTTP checks that the fetch package can recognize the refusal by a
// method, whatever wraps it.
func TestForbiddenErrorThroughNetHTTP(t *testing.T) {
	t.Parallel()
	for class, want := range map[Class]string{
		"private": "forbidden_address", ClassMixed: "forbidden_address", ClassPort: "forbidden_port", ClassOwn: "own_listener",
	} {
		wrapped := &url.Error{Op: "Get", URL: "http://h/", Err: &ForbiddenError{Addr: netip.MustParseAddrPort("10.0.0.1:80"), Class: class}}
		marked, ok := errors.AsType[interface {
			error
			Forbidden() string
		}](wrapped)
		if !ok || marked.Forbidden() != want {
			t.Errorf("%v is not recognized as %s", wrapped, want)
		}
	}
}

func TestForbiddenErrorText(t *testing.T) {
	t.Parallel()
	at := func(addr string, class Class, l Listener) ForbiddenError {
		return ForbiddenError{Addr: netip.MustParseAddrPort(addr), Class: class, Listener: l}
	}
	mixed := at("10.0.0.1:80", ClassMixed, NoListener)
	mixed.Name, mixed.Other = "site.example", netip.MustParseAddr("8.8.8.8")
	tests := []struct {
		err  ForbiddenError
		want string
	}{
		{at("10.0.0.1:80", "private", NoListener), "address 10.0.0.1:80 is not public (private)"},
		{at("[2002:a00:1::]:80", "6to4", NoListener), "address [2002:a00:1::]:80 is not public (6to4, holds 10.0.0.1)"},
		{at("8.8.8.8:25", ClassPort, NoListener), "port of 8.8.8.8:25 is not open for egress"},
		{at("127.0.0.1:3128", ClassOwn, ListenerGateway), "address 127.0.0.1:3128 is a listener of this gateway"},
		{
			at("127.0.0.1:80", ClassOwn, ListenerSite),
			"address 127.0.0.1:80 belongs to another site of the gateway's process; only allow_private 127.0.0.1 opens it",
		},
		{
			at("[::1]:2019", ClassOwn, ListenerOther),
			"address [::1]:2019 belongs to the admin API, the operator's page or another listener of the gateway's process",
		},
		{
			at("[::1]:80", ClassOwn, ListenerUnknown),
			"address [::1]:80 is one of the gateway's own machine; only allow_private ::1 opens it",
		},
		{mixed, "name site.example has a public and a non-public address (10.0.0.1, 8.8.8.8), as for DNS rebinding"},
	}
	for _, tt := range tests {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("Error() = %q, want %q", got, tt.want)
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
			t.Errorf("ParsePortRange(%q): %v does not name the operation", in, err)
		}
	}
}

func TestParsePrefixes(t *testing.T) {
	t.Parallel()
	got, err := ParsePrefixes("ranges", []string{"10.0.0.0/8", "192.0.2.1", "::ffff:192.0.2.2", "fd00::1"})
	if want := prefixes("10.0.0.0/8", "192.0.2.1/32", "192.0.2.2/32", "fd00::1/128"); err != nil || !slices.Equal(got, want) {
		t.Errorf("ParsePrefixes = %v, %v, want %v", got, err, want)
	}
	for in, want := range map[string]string{
		"10.0.0.1/8": `ranges "10.0.0.1/8": has bits set outside the range, want 10.0.0.0/8`,
		"intranet":   `ranges "intranet": not an address range such as 10.0.0.0/8`,
	} {
		if got, err := ParsePrefixes("ranges", []string{in}); err == nil || err.Error() != want {
			t.Errorf("ParsePrefixes(%q) = %v, %v, want the error %s", in, got, err, want)
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
