package enforce

import (
	"strings"
	"testing"
	"time"
)

func TestPolicyMode(t *testing.T) {
	t.Parallel()
	p := mustPolicy(t, PolicyConfig{
		Mode: ModeReport,
		HostModes: []HostMode{
			{Hosts: []string{"*.corp.example", "corp.example"}, Mode: ModeOff},
			{Hosts: []string{"strict.corp.example", "*:8443"}, Mode: ModeEnforce},
		},
	})
	agents := map[string]*Agent{"": nil, "other": {}, "acme": {Mode: ModeEnforce}, "own": {Mode: ModeOff}}
	for _, tt := range []struct {
		url, agent string
		want       Mode
	}{
		{"http://example.com", "", ModeReport},
		{"http://example.com", "other", ModeReport},
		{"http://example.com", "acme", ModeEnforce},
		{"http://example.com", "own", ModeOff},
		{"http://a.corp.example", "acme", ModeOff},
		{"http://corp.example", "", ModeOff},
		{"http://strict.corp.example", "own", ModeEnforce},
		{"https://a.corp.example:8443", "", ModeOff}, // a longer name is closer than a port
		{"https://example.com:8443", "own", ModeEnforce},
	} {
		if got := p.Mode(mustOrigin(t, tt.url), agents[tt.agent]); got != tt.want {
			t.Errorf("%s for %q: %s, want %s", tt.url, tt.agent, got, tt.want)
		}
	}
	if new(Policy).Mode(mustOrigin(t, "http://a"), nil) != ModeEnforce {
		t.Error("the zero policy does not enforce")
	}
}

func TestPolicyDenied(t *testing.T) {
	t.Parallel()
	p := mustPolicy(t, PolicyConfig{Deny: []string{"*.bad.example", "worse.example:8080"}})
	for url, want := range map[string]string{
		"http://a.bad.example":       "*.bad.example",
		"http://bad.example":         "",
		"http://worse.example":       "",
		"http://worse.example:8080":  "worse.example:8080",
		"https://worse.example:8080": "worse.example:8080",
	} {
		if got, denied := p.Denied(mustOrigin(t, url)); got.String() != want || denied != (want != "") {
			t.Errorf("%s: %q %t, want %q", url, got, denied, want)
		}
	}
	if _, denied := new(Policy).Denied(mustOrigin(t, "http://a")); denied {
		t.Error("the zero policy denies a host")
	}
}

func TestPolicyConnect(t *testing.T) {
	t.Parallel()
	p := mustPolicy(t, PolicyConfig{
		ConnectDefault: ConnectDeny,
		Connect: []ConnectRule{
			{Choice: ConnectTunnel, Hosts: []string{"*.bank.example:443"}},
			{Choice: ConnectDeny, Hosts: []string{"www.bank.example", "*:8443"}},
			{Hosts: []string{"payroll.example"}},
			{Choice: ConnectIntercept},
		},
	})
	for url, want := range map[string]Connect{
		"https://example.com":           ConnectIntercept,
		"https://www.bank.example":      ConnectTunnel, // by the first rule, not the closest
		"https://www.bank.example:8444": ConnectDeny,
		"https://example.com:8443":      ConnectDeny,
		"https://payroll.example":       ConnectDeny, // no rule
	} {
		if got := p.Connect(mustOrigin(t, url)); got != want {
			t.Errorf("%s: %s, want %s", url, got, want)
		}
	}
	host, err := ParseHostPattern("a")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*Policy{{}, {connectDefault: "open"}, {connect: []connectRule{{host, "open"}}, connectDefault: ConnectTunnel}} {
		if got := p.Connect(mustOrigin(t, "https://a")); got != ConnectDeny {
			t.Errorf("%+v: %s, want %s", p, got, ConnectDeny)
		}
	}
}

// TestMayIntercept checks which policies need a certificate authority.
func TestMayIntercept(t *testing.T) {
	t.Parallel()
	bank := []string{"bank.example"}
	for _, tt := range []struct {
		rules    []ConnectRule
		fallback Connect
		want     bool
	}{
		{nil, ConnectDeny, false},
		{nil, ConnectTunnel, false},
		{nil, ConnectIntercept, true},
		{[]ConnectRule{{ConnectIntercept, bank}}, ConnectDeny, true},
		{[]ConnectRule{{ConnectTunnel, bank}}, ConnectIntercept, true},
		{[]ConnectRule{{ConnectTunnel, bank}, {Choice: ConnectDeny}}, ConnectIntercept, false},
		{[]ConnectRule{{ConnectTunnel, bank}, {Choice: ConnectIntercept}}, ConnectDeny, true},
	} {
		p := mustPolicy(t, PolicyConfig{Connect: tt.rules, ConnectDefault: tt.fallback})
		if got := p.MayIntercept(); got != tt.want {
			t.Errorf("MayIntercept of %v, default %s = %t, want %t", tt.rules, tt.fallback, got, tt.want)
		}
	}
	if new(Policy).MayIntercept() {
		t.Error("the zero policy intercepts")
	}
}

func TestPolicyExempt(t *testing.T) {
	t.Parallel()
	p := mustPolicy(t, PolicyConfig{Exceptions: []Exception{
		{Hosts: []string{"partner.example", "*.partner.example"}, Reason: "contract 7"},
		{Hosts: []string{"paths.example"}, Paths: []string{"/open/", "/a?x=", "/café", "/%c3%9c/%7eann"}, Reason: "paths"},
		{Hosts: []string{"all.paths.example"}, Paths: []string{"/"}, Reason: "all"},
		{Hosts: []string{"agents.example"}, Agents: []string{"Acme"}, Reason: "agents"},
		{Hosts: []string{"time.example"}, Until: stamp(now.Add(time.Second)), Reason: "time"},
		{Hosts: []string{"over.example"}, Until: stamp(now), Reason: "over"},
		{Hosts: []string{"bare.example"}, Paths: []string{"/x"}},
		{Hosts: []string{"two.example"}, Paths: []string{"/one"}, Reason: "first"},
		{Hosts: []string{"*.example"}, Agents: []string{"Wide"}, Reason: "second"},
	}})
	for _, tt := range []struct{ url, path, agent, want string }{
		{"http://partner.example", "/any/path", "", "partner.example: contract 7"},
		{"https://a.b.partner.example:8443", "/", "x", "partner.example: contract 7"},
		{"http://partner.example", "", "", "partner.example: contract 7"}, // a tunnel
		{"http://partner.example", "/../x", "", "partner.example: contract 7"},
		{"http://paths.example", "/open/", "", "paths.example: paths"},
		{"http://paths.example", "/open/x?y", "", "paths.example: paths"},
		{"http://paths.example", "/open", "", ""},
		{"http://paths.example", "/Open/", "", ""},
		{"http://paths.example", "/a?x=1", "", "paths.example: paths"},
		{"http://paths.example", "/caf%C3%A9/menu", "", "paths.example: paths"},
		{"http://paths.example", "/caf%c3%a9/menu", "", "paths.example: paths"},
		{"http://paths.example", "/%C3%9C/~ann", "", "paths.example: paths"},
		{"http://paths.example", "/%C3%9c/%7Eann", "", "paths.example: paths"},
		{"http://paths.example", "/%C3%BC/~ann", "", ""},
		{"http://paths.example", "/%6fpen/x", "", "paths.example: paths"},
		{"http://paths.example", "/open%2fx", "", ""},
		{"http://paths.example", "", "", ""}, // a tunnel
		{"http://all.paths.example", "", "", ""},
		{"http://paths.example", "/other", "", ""},
		// A path that origins resolve to another place does not have the prefix.
		{"http://paths.example", "/open/../private", "", ""},
		{"http://paths.example", "/open/..", "", ""},
		{"http://paths.example", "/open/%2e%2E/private", "", ""},
		{"http://paths.example", "/open/.%2e/private", "", ""},
		{"http://paths.example", "/open/..%2fprivate", "", ""},
		{"http://paths.example", "/open/..%5Cprivate", "", ""},
		{"http://paths.example", `/open/..\private`, "", ""},
		{"http://paths.example", "/open/..;/private", "", ""},
		{"http://paths.example", "/open/%2e%2e;x=y/private", "", ""},
		{"http://paths.example", "/open/x/..;/..;/private", "", ""},
		{"http://paths.example", "/open/%c0%ae%c0%ae/private", "", ""},
		{"http://paths.example", "/open;/x", "", ""},
		{"http://paths.example", "//open/x", "", ""},
		{"http://paths.example", "/x/../open/y", "", ""},
		// A resolved form that has the prefix is harmless.
		{"http://paths.example", "/open/./x", "", "paths.example: paths"},
		{"http://paths.example", "/open//x;y=z", "", "paths.example: paths"},
		{"http://paths.example", "/open/a/..%2fx", "", "paths.example: paths"},
		{"http://paths.example", "/open/...", "", "paths.example: paths"},
		{"http://paths.example", "/open/..a/.b/c..", "", "paths.example: paths"},
		{"http://paths.example", "/open/x?y=/../z", "", "paths.example: paths"},
		{"http://agents.example", "/", "acme", "agents.example: agents"},
		{"http://agents.example", "/", "", ""},
		{"http://agents.example", "/", "AcmeNews", ""},
		{"http://time.example", "/", "", "time.example: time"},
		{"http://over.example", "/", "", ""},
		{"http://bare.example", "/x/y", "", "bare.example /x"},
		{"http://two.example", "/one", "wide", "two.example: first"},
		{"http://two.example", "/two", "wide", "*.example: second"},
		{"http://else.test", "/", "", ""},
	} {
		got, ok := p.Exempt(mustOrigin(t, tt.url), tt.path, tt.agent, now)
		if got != tt.want || ok != (tt.want != "") {
			t.Errorf("%s%s for %q: %q %t, want %q", tt.url, tt.path, tt.agent, got, ok, tt.want)
		}
	}
	if _, ok := new(Policy).Exempt(mustOrigin(t, "http://a"), "/", "", now); ok {
		t.Error("the zero policy makes an exception")
	}
}

func TestParseUntil(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]string{
		"2026-12-31":                "2027-01-01T00:00:00Z", // the day is included
		"2026-12-31T12:00:00Z":      "2026-12-31T12:00:00Z",
		"2026-12-31T12:00:00+02:00": "2026-12-31T10:00:00Z",
		"31.12.2026":                "",
		"2026-13-01":                "",
		"":                          "",
	} {
		got, err := parseUntil(s)
		if (err == nil) != (want != "") || err == nil && got.UTC().Format(time.RFC3339) != want {
			t.Errorf("%q: %v %v, want %q", s, got, err, want)
		}
	}
}

func TestNewPolicyRefuses(t *testing.T) {
	t.Parallel()
	agents := []string{"Acme"}
	for name, tt := range map[string]struct {
		cfg  PolicyConfig
		want string
	}{
		"mode":                   {PolicyConfig{Mode: "strict"}, `mode "strict": want enforce, report, off`},
		"paths":                  {PolicyConfig{Paths: "both"}, `paths "both": want strict, as_sent`},
		"host mode":              {PolicyConfig{HostModes: []HostMode{{[]string{"a"}, "on"}}}, `mode "on": want enforce, report, off`},
		"connect":                {PolicyConfig{Connect: []ConnectRule{{Choice: "open"}}}, `connect "open": want intercept, tunnel, deny`},
		"connect default":        {PolicyConfig{ConnectDefault: "open"}, `connect "open": want intercept, tunnel, deny`},
		"host mode, no host":     {PolicyConfig{HostModes: []HostMode{{nil, ModeOff}}}, "names no host"},
		"host mode, bad host":    {PolicyConfig{HostModes: []HostMode{{[]string{".a"}, ModeOff}}}, `".a"`},
		"host mode twice":        {PolicyConfig{HostModes: []HostMode{{[]string{"a"}, ModeEnforce}, {[]string{"A"}, ModeReport}}}, `mode report of hosts: "a" is given twice`},
		"deny":                   {PolicyConfig{Deny: []string{"http://a"}}, `deny: host pattern "http://a"`},
		"deny twice":             {PolicyConfig{Deny: []string{"*.a", "*.A"}}, `"*.a" is given twice`},
		"except nothing":         {PolicyConfig{Exceptions: []Exception{{}}}, "names no host"},
		"except bad host":        {PolicyConfig{Exceptions: []Exception{{Hosts: []string{"a b"}}}}, "except a b"},
		"except relative path":   {PolicyConfig{Exceptions: []Exception{{Hosts: []string{"a"}, Paths: []string{"x"}}}}, "start with a slash"},
		"except pattern as path": {PolicyConfig{Exceptions: []Exception{{Hosts: []string{"a"}, Paths: []string{"/*.pdf"}}}}, "plain prefix"},
		"except dot segment":     {PolicyConfig{Exceptions: []Exception{{Hosts: []string{"a"}, Paths: []string{"/a/%2e%2e/b"}}}}, `servers resolve it to "/b"`},
		"except parameters":      {PolicyConfig{Exceptions: []Exception{{Hosts: []string{"a"}, Paths: []string{"/a;b/"}}}}, `servers resolve it to "/a/"`},
		"except long path":       {PolicyConfig{Exceptions: []Exception{{Hosts: []string{"a"}, Paths: []string{"/" + strings.Repeat("x", 256)}}}}, "longer"},
		"except unknown agent":   {PolicyConfig{AgentNames: agents, Exceptions: []Exception{{Hosts: []string{"a"}, Agents: []string{"b"}}}}, `no agent "b"`},
		"except two-line reason": {PolicyConfig{Exceptions: []Exception{{Hosts: []string{"a"}, Reason: "x\ny"}}}, "one line"},
		"connect bad host":       {PolicyConfig{Connect: []ConnectRule{{ConnectTunnel, []string{"*a"}}}}, "connect tunnel"},
		"connect twice":          {PolicyConfig{Connect: []ConnectRule{{ConnectTunnel, []string{"a"}}, {ConnectDeny, []string{"a"}}}}, `"a" is given twice`},
		"connect after all":      {PolicyConfig{Connect: []ConnectRule{{Choice: ConnectTunnel}, {ConnectDeny, []string{"a"}}}}, "never reached"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, _, err := NewPolicy(tt.cfg, now)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNewPolicyWarns(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		x    Exception
		want []string
	}{
		{Exception{Hosts: []string{"a"}, Until: stamp(now.Add(time.Hour)), Reason: "r"}, nil},
		{Exception{Hosts: []string{"a"}, Reason: "r"}, []string{"a: r: has no end"}},
		{Exception{Hosts: []string{"a", "b"}, Paths: []string{"/x"}, Until: stamp(now.Add(time.Hour))}, []string{"a b /x: has no reason"}},
		{Exception{Hosts: []string{"a"}, Until: stamp(now), Reason: "r"}, []string{"ended at 2026-11-21T12:00:00Z"}},
	} {
		_, warnings, err := NewPolicy(PolicyConfig{Exceptions: []Exception{tt.x}}, now)
		if err != nil {
			t.Fatal(err)
		}
		if len(warnings) != len(tt.want) || len(warnings) > 0 && !strings.Contains(warnings[0], tt.want[0]) {
			t.Errorf("%+v: %q, want %q", tt.x, warnings, tt.want)
		}
	}
}

// TestWhy checks that the ticket and the approver of an exception are shown with its reason.
func TestWhy(t *testing.T) {
	t.Parallel()
	for want, x := range map[string]Exception{
		"a.example: contract 7, ticket OPS-1, approved by Jane Doe": {Reason: "contract 7", Ticket: "OPS-1", ApprovedBy: "Jane Doe"},
		"a.example: ticket OPS-1":                                   {Ticket: "OPS-1"},
		"a.example: approved by Jane Doe":                           {ApprovedBy: "Jane Doe"},
		"a.example: contract 7":                                     {Reason: "contract 7"},
		"a.example":                                                 {},
	} {
		x.Hosts = []string{"a.example"}
		p := mustPolicy(t, PolicyConfig{Exceptions: []Exception{x}})
		if label, ok := p.Exempt(mustOrigin(t, "https://a.example"), "/", "acme", now); !ok || label != want {
			t.Errorf("Exempt returned %q, want %q", label, want)
		}
	}
	for _, x := range []Exception{{Ticket: "a\nb"}, {ApprovedBy: strings.Repeat("x", 201)}, {Reason: strings.Repeat("x", 150), Ticket: strings.Repeat("x", 50)}} {
		x.Hosts = []string{"a.example"}
		if _, _, err := NewPolicy(PolicyConfig{Exceptions: []Exception{x}}, now); err == nil || !strings.Contains(err.Error(), "one line") {
			t.Errorf("%+v: error %v, want one about one line", x, err)
		}
	}
}
