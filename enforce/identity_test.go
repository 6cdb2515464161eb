package enforce

import (
	"context"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/robotstxt"
)

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

const browser = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0 Safari/537.36"

// Without agent blocks, only the product token identifies.
func TestIdentifyWithoutAgents(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		allow  bool
		field  string
		agent  string
		by     string
		reason Reason
	}{
		{true, "ExampleBot/1.0 (+https://example.org)", "ExampleBot", "user_agent", ""},
		{true, "", "", "", ""},
		{false, "ExampleBot/1.0", "ExampleBot", "user_agent", ""},
		{false, "", "", "", ReasonUnidentified},
		{true, "", "", "", ""},
		{true, strings.Repeat("A", maxUserAgent+1), "", "", ReasonUnidentified},
	} {
		i := mustIdentifier(t, IdentifierConfig{AllowUnidentified: tt.allow}).Identify(t.Context(), Sender{
			UserAgent: tt.field,
			// Without a verifier, the credentials are for another proxy.
			ProxyAuthorization: basic("u", "wrong"),
		})
		reason, _, _ := i.Refused()
		if i.Agent != tt.agent || i.IdentifiedBy != tt.by || reason != tt.reason {
			t.Errorf("allow %t, %.40q: agent %q by %q, reason %q; want %q by %q, %q", tt.allow, tt.field, i.Agent, i.IdentifiedBy, reason, tt.agent, tt.by, tt.reason)
		}
		if tt.agent != "" && !slices.Equal(i.Robots.Tokens, []string{tt.agent}) {
			t.Errorf("%q: tokens %q", tt.field, i.Robots.Tokens)
		}
	}
}

// company returns a configuration with every kind of condition.
func company(t *testing.T, allow bool) *Identifier {
	t.Helper()
	return mustIdentifier(t, IdentifierConfig{AllowUnidentified: allow, Agents: []Agent{
		{Name: "alpha", Credentials: []string{"al"}},
		{Name: "beta", Credentials: []string{"be"}, UserAgents: []string{"BetaBot", "Mozilla/* (compatible; BetaClassic/*"}},
		{Name: "gamma", Credentials: []string{"ga"}, From: prefixes(t, "10.3.0.0/16")},
		{Name: "delta", ClientCertificates: []string{"delta.corp"}},
		{Name: "office", From: prefixes(t, "10.5.0.0/16", "2001:db8:5::/48", "2001:db8:6::1/128", "::ffff:10.7.0.0/112")},
		{Name: "office-news", From: prefixes(t, "10.5.0.0/16"), UserAgents: []string{"OfficeNews"}},
		{Name: "Open", Tokens: []string{"OpenBot", "Open"}},
		{Name: "mybot"},
		{Name: "globbed", UserAgents: []string{"*special crawler*"}},
		{Name: "team-a", Credentials: []string{"team"}, UserAgents: []string{"TeamA"}},
		{Name: "team-b", Credentials: []string{"team"}, UserAgents: []string{"TeamB"}},
	}})
}

var identityCases = []struct {
	name   string
	e      Sender
	agent  string // the accepted or the refused agent
	by     string // if accepted
	reason Reason // with unidentified deny
	open   Reason // with unidentified allow, if that differs
	detail string
}{
	// A credential alone outranks a header that names no agent …
	{name: "credential, no User-Agent", e: Sender{ProxyAuthorization: basic("al", "pw-al")}, agent: "alpha", by: "credential"},
	{name: "credential, browser", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: browser}, agent: "alpha", by: "credential"},
	{name: "credential, library", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "curl/8"}, agent: "alpha", by: "credential"},
	{name: "credential, own token", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "alpha/2"}, agent: "alpha", by: "credential"},
	{name: "credential, own token first", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "alpha/2 OpenBot/1"}, agent: "alpha", by: "credential"},
	// … unless it names another agent, by product, comment or pattern.
	{name: "credential, other's product", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "OpenBot/1"}, agent: "alpha", reason: ReasonUserAgentConflict, detail: `names agent "Open", but the credential is that of agent "alpha"`},
	{name: "credential, other's product, case", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "OPENBOT"}, agent: "alpha", reason: ReasonUserAgentConflict},
	{name: "credential, other's product second", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "curl/8 OpenBot/1"}, agent: "alpha", reason: ReasonUserAgentConflict},
	{name: "credential, other's product before own", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "OpenBot/1 alpha/2"}, agent: "alpha", reason: ReasonUserAgentConflict},
	{name: "credential, other in comment", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "Mozilla/5.0 (compatible; BetaBot/1.0; +x)"}, agent: "alpha", reason: ReasonUserAgentConflict},
	{name: "credential, other in comment of a system", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "Mozilla/5.0 (X11; BetaBot/1.0) Gecko/1"}, agent: "alpha", reason: ReasonUserAgentConflict},
	{name: "credential, other before its address", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "Mozilla/5.0 (BetaBot/1.0; +http://x)"}, agent: "alpha", reason: ReasonUserAgentConflict},
	{name: "credential, other's pattern", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "A Special Crawler!"}, agent: "alpha", reason: ReasonUserAgentConflict},
	{name: "credential, other's fallback token", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: "Open/1"}, agent: "alpha", by: "credential"},

	// Credentials with a User-Agent condition.
	{name: "both, as registered", e: Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: "BetaBot/3"}, agent: "beta", by: "credential+user_agent"},
	{name: "both, by pattern", e: Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: "Mozilla/5.0 (compatible; BetaClassic/1)"}, agent: "beta", by: "credential+user_agent"},
	{name: "both, no User-Agent", e: Sender{ProxyAuthorization: basic("be", "pw-be")}, agent: "beta", reason: ReasonAgentMismatch, detail: "user agent differs"},
	{name: "both, browser", e: Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: browser}, agent: "beta", reason: ReasonAgentMismatch},
	{name: "both, unknown", e: Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: "BetaBotX/3"}, agent: "beta", reason: ReasonAgentMismatch},
	{name: "both, token but no pattern", e: Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: "beta/1"}, agent: "beta", reason: ReasonAgentMismatch},
	{name: "both, other's", e: Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: "mybot/1"}, agent: "beta", reason: ReasonUserAgentConflict},

	// Credentials with a source condition.
	{name: "source holds", e: Sender{ProxyAuthorization: basic("ga", "pw-ga"), Source: netip.MustParseAddr("10.3.1.1")}, agent: "gamma", by: "credential+source"},
	{name: "source holds, IPv4-mapped", e: Sender{ProxyAuthorization: basic("ga", "pw-ga"), Source: netip.MustParseAddr("::ffff:10.3.1.1")}, agent: "gamma", by: "credential+source"},
	{name: "source differs", e: Sender{ProxyAuthorization: basic("ga", "pw-ga"), Source: netip.MustParseAddr("10.4.1.1")}, agent: "gamma", reason: ReasonAgentMismatch, detail: "source differs"},
	{name: "source unknown", e: Sender{ProxyAuthorization: basic("ga", "pw-ga")}, agent: "gamma", reason: ReasonAgentMismatch},
	{name: "source is another agent's", e: Sender{ProxyAuthorization: basic("ga", "pw-ga"), Source: netip.MustParseAddr("10.5.1.1")}, agent: "gamma", reason: ReasonAgentMismatch},
	{name: "source, without credential", e: Sender{Source: netip.MustParseAddr("10.3.1.1")}, reason: ReasonCredentialsMissing, open: "accepted"},

	// One account, told apart by User-Agent.
	{name: "team a", e: Sender{ProxyAuthorization: basic("team", "pw-team"), UserAgent: "TeamA"}, agent: "team-a", by: "credential+user_agent"},
	{name: "team b", e: Sender{ProxyAuthorization: basic("team", "pw-team"), UserAgent: "TeamB/1"}, agent: "team-b", by: "credential+user_agent"},
	{name: "team, no User-Agent", e: Sender{ProxyAuthorization: basic("team", "pw-team")}, agent: "team-a", reason: ReasonAgentMismatch},

	// Wrong credentials are refused whatever else holds, and in every policy.
	{name: "wrong password", e: Sender{ProxyAuthorization: basic("al", "x")}, reason: ReasonCredentialsWrong, detail: "user name or password is wrong"},
	{name: "wrong user", e: Sender{ProxyAuthorization: basic("nobody", "pw-nobody")}, reason: ReasonCredentialsWrong, detail: "user name or password is wrong"},
	{name: "user in other case", e: Sender{ProxyAuthorization: basic("AL", "pw-AL")}, reason: ReasonCredentialsWrong},
	{name: "wrong password, known User-Agent", e: Sender{ProxyAuthorization: basic("al", "x"), UserAgent: "OpenBot"}, reason: ReasonCredentialsWrong},
	{name: "wrong password, known source", e: Sender{ProxyAuthorization: basic("al", "x"), Source: netip.MustParseAddr("10.5.1.1")}, reason: ReasonCredentialsWrong},
	{name: "Bearer", e: Sender{ProxyAuthorization: "Bearer abc"}, reason: ReasonCredentialsWrong, detail: "not Basic"},
	{name: "no base64", e: Sender{ProxyAuthorization: "Basic ???"}, reason: ReasonCredentialsWrong},
	{name: "no colon", e: Sender{ProxyAuthorization: "Basic " + base64.StdEncoding.EncodeToString([]byte("al"))}, reason: ReasonCredentialsWrong},
	{name: "no user", e: Sender{ProxyAuthorization: basic("", "pw-")}, reason: ReasonCredentialsWrong},
	{name: "control character", e: Sender{ProxyAuthorization: basic("al", "pw-al\n")}, reason: ReasonCredentialsWrong},
	{name: "far too long", e: Sender{ProxyAuthorization: basic("al", strings.Repeat("x", 5000))}, reason: ReasonCredentialsWrong},

	// Certificates.
	{name: "certificate", e: Sender{CertificateNames: []string{"x", "delta.corp"}}, agent: "delta", by: "client_certificate"},
	{name: "certificate, browser", e: Sender{CertificateNames: []string{"delta.corp"}, UserAgent: browser}, agent: "delta", by: "client_certificate"},
	{name: "certificate, other's User-Agent", e: Sender{CertificateNames: []string{"delta.corp"}, UserAgent: "mybot"}, agent: "delta", reason: ReasonUserAgentConflict, detail: "client certificate"},
	{name: "certificate of nobody", e: Sender{CertificateNames: []string{"x"}}, reason: ReasonCredentialsMissing, open: "accepted"},
	{name: "certificate goes before source", e: Sender{CertificateNames: []string{"delta.corp"}, Source: netip.MustParseAddr("10.5.1.1")}, agent: "delta", by: "client_certificate"},
	{name: "credential goes before certificate", e: Sender{CertificateNames: []string{"delta.corp"}, ProxyAuthorization: basic("al", "pw-al")}, agent: "alpha", by: "credential"},

	// Sources.
	{name: "range", e: Sender{Source: netip.MustParseAddr("10.5.200.1"), UserAgent: "curl/8"}, agent: "office", by: "source"},
	{name: "range of one IPv6 address", e: Sender{Source: netip.MustParseAddr("2001:db8:6::1")}, agent: "office", by: "source"},
	{name: "beside a range of one IPv6 address", e: Sender{Source: netip.MustParseAddr("2001:db8:6::2")}, reason: ReasonCredentialsMissing, open: "accepted"},
	{name: "range written as IPv4-mapped", e: Sender{Source: netip.MustParseAddr("10.7.1.1")}, agent: "office", by: "source"},
	{name: "range, IPv6 with zone", e: Sender{Source: netip.MustParseAddr("2001:db8:5::1%eth0")}, agent: "office", by: "source"},
	{name: "range and User-Agent go before range", e: Sender{Source: netip.MustParseAddr("10.5.1.1"), UserAgent: "OfficeNews/1"}, agent: "office-news", by: "source+user_agent"},
	{name: "range, other's User-Agent", e: Sender{Source: netip.MustParseAddr("10.5.1.1"), UserAgent: "OpenBot/1"}, agent: "office", reason: ReasonUserAgentConflict, detail: `the source is that of agent "office"`},
	{name: "User-Agent without its range", e: Sender{Source: netip.MustParseAddr("10.6.1.1"), UserAgent: "OfficeNews/1"}, agent: "office-news", reason: ReasonAgentMismatch, detail: "source differs"},

	// User-Agents alone: whole tokens, never parts (features.md pitfall 9).
	{name: "product", e: Sender{UserAgent: "OpenBot/1.0 (+https://x)"}, agent: "Open", by: "user_agent"},
	{name: "product in comment of a system", e: Sender{UserAgent: "Mozilla/5.0 (X11; Linux; openbot/1.0) Gecko/1"}, agent: "Open", by: "user_agent"},
	{name: "product before its address", e: Sender{UserAgent: "Mozilla/5.0 Safari/1 (OpenBot/0.1; +http://x)"}, agent: "Open", by: "user_agent"},
	{name: "product behind a comment", e: Sender{UserAgent: "Mozilla/5.0 (KHTML, like Gecko); compatible; OpenBot/1.1; +http://x"}, agent: "Open", by: "user_agent"},
	{name: "product before other bytes", e: Sender{UserAgent: "OpenBot+(+http://x)"}, agent: "Open", by: "user_agent"},
	{name: "product in comment", e: Sender{UserAgent: "Mozilla/5.0 (compatible; openbot/1.0)"}, agent: "Open", by: "user_agent"},
	{name: "second product", e: Sender{UserAgent: "curl/8 mybot"}, agent: "mybot", by: "user_agent"},
	{name: "first of two wins", e: Sender{UserAgent: "mybot OpenBot"}, agent: "mybot", by: "user_agent"},
	{name: "pattern", e: Sender{UserAgent: "the SPECIAL crawler, v2"}, agent: "globbed", by: "user_agent"},
	{name: "product goes before pattern", e: Sender{UserAgent: "mybot special crawler"}, agent: "mybot", by: "user_agent"},
	// Padding does not hide a name from the gateway that the site will see.
	{name: "too long", e: Sender{UserAgent: "mybot/" + strings.Repeat("1", maxUserAgent)}, reason: ReasonUnidentified, detail: "longer than 4096"},
	{name: "credential, too long", e: Sender{ProxyAuthorization: basic("al", "pw-al"), UserAgent: strings.Repeat("x ", maxUserAgent/2) + "mybot"}, reason: ReasonUnidentified},
	{name: "just not too long", e: Sender{UserAgent: strings.Repeat("x ", maxUserAgent/2-3) + "mybot"}, agent: "mybot", by: "user_agent"},
	{name: "bot is not mybot", e: Sender{UserAgent: "bot/1.0"}, reason: ReasonCredentialsMissing, open: "accepted"},
	{name: "mybotx is not mybot", e: Sender{UserAgent: "mybotx"}, reason: ReasonCredentialsMissing, open: "accepted"},
	{name: "fallback token is no name", e: Sender{UserAgent: "Open/1"}, reason: ReasonCredentialsMissing, open: "accepted"},

	// No agent is identified. The status is 407, because some agent requires credentials.
	{name: "nothing", e: Sender{}, reason: ReasonCredentialsMissing, open: "accepted"},
	{name: "browser", e: Sender{UserAgent: browser}, reason: ReasonCredentialsMissing, open: "accepted"},
	// An agent that requires credentials is never accepted without them.
	{name: "other's name in comment without credential", e: Sender{UserAgent: "Mozilla/5.0 (X11; BetaBot/1) Gecko/1"}, agent: "beta", reason: ReasonCredentialsMissing},
	{name: "other's name without credential", e: Sender{UserAgent: "BetaBot/1"}, agent: "beta", reason: ReasonCredentialsMissing, detail: "requires credentials"},
	{name: "token without credential", e: Sender{UserAgent: "alpha/1"}, agent: "alpha", reason: ReasonCredentialsMissing},
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	for _, allow := range []bool{false, true} {
		id := company(t, allow)
		for _, tt := range identityCases {
			t.Run(fmt.Sprint(allow, " ", tt.name), func(t *testing.T) {
				t.Parallel()
				want := tt.reason
				if allow && tt.open != "" {
					want = ""
				}
				i := id.Identify(t.Context(), tt.e)
				reason, detail, refused := i.Refused()
				if reason != want || refused != (want != "") || !strings.Contains(detail, tt.detail) {
					t.Errorf("refused %t, %q: %q; want %q: %q", refused, reason, detail, want, tt.detail)
				}
				if i.Agent != tt.agent || i.UserAgent != tt.e.UserAgent {
					t.Errorf("agent %q with User-Agent %.40q, want %q with %.40q", i.Agent, i.UserAgent, tt.agent, tt.e.UserAgent)
				}
				if !refused && i.IdentifiedBy != tt.by {
					t.Errorf("identified by %q, want %q", i.IdentifiedBy, tt.by)
				}
				if (i.Config != nil) != (tt.agent != "") || i.Config != nil && i.Config.Name != tt.agent {
					t.Errorf("config %+v", i.Config)
				}
			})
		}
	}
}

// A request in a tunnel has the CONNECT's evidence and its own User-Agent. If one request with all
// of this is accepted, it is accepted in the same way, whatever the CONNECT's own User-Agent.
func TestTunnelThenInner(t *testing.T) {
	t.Parallel()
	for _, allow := range []bool{false, true} {
		id := company(t, allow)
		for _, tt := range identityCases {
			t.Run(fmt.Sprint(allow, " ", tt.name), func(t *testing.T) {
				t.Parallel()
				want := id.Identify(t.Context(), tt.e)
				wantReason, _, _ := want.Refused()
				connect := tt.e
				connect.UserAgent = "Go-http-client/1.1"
				tunnel := id.AuthenticateTunnel(t.Context(), connect)
				reason, _, refused := tunnel.Refused()
				if refused != (wantReason == ReasonCredentialsWrong) {
					t.Fatalf("CONNECT refused %t for %q; the request for %q", refused, reason, wantReason)
				}
				got := id.Inner(tunnel, tt.e.UserAgent)
				reason, _, _ = got.Refused()
				switch wantReason {
				case ReasonCredentialsMissing:
					// A client that believes to talk to the origin cannot use a 407.
					if reason != ReasonUnidentified && reason != ReasonAgentMismatch {
						t.Errorf("inside refused for %q", reason)
					}
				default:
					if reason != wantReason || got.Agent != want.Agent || got.IdentifiedBy != want.IdentifiedBy {
						t.Errorf("inside %q by %q %q, want %q by %q %q",
							got.Agent, got.IdentifiedBy, reason, want.Agent, want.IdentifiedBy, wantReason)
					}
				}
			})
		}
	}
}

// A CONNECT for a blind tunnel mostly has no User-Agent. A sender that credentials or a certificate
// identify needs none, unless there are several candidates or it names another agent.
func TestOpaque(t *testing.T) {
	t.Parallel()
	id := company(t, false)
	withCert := mustIdentifier(t, IdentifierConfig{Agents: []Agent{
		{Name: "c", ClientCertificates: []string{"c.corp", "c2.corp"}, UserAgents: []string{"C"}},
		{Name: "d", ClientCertificates: []string{"d.corp"}, UserAgents: []string{"D"}},
		{Name: "s", From: prefixes(t, "10.0.0.0/8"), UserAgents: []string{"S"}},
	}})
	for _, tt := range []struct {
		name   string
		id     *Identifier
		e      Sender
		agent  string
		by     string
		reason Reason
	}{
		{"no User-Agent", id, Sender{ProxyAuthorization: basic("be", "pw-be")}, "beta", "credential", ""},
		{"library's User-Agent", id, Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: "Go-http-client/1.1"}, "beta", "credential", ""},
		{"own User-Agent", id, Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: "BetaBot"}, "beta", "credential+user_agent", ""},
		{"own token, not its pattern", id, Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: "beta"}, "beta", "", ReasonAgentMismatch},
		{"other's User-Agent", id, Sender{ProxyAuthorization: basic("be", "pw-be"), UserAgent: "mybot"}, "beta", "", ReasonUserAgentConflict},
		{"shared account", id, Sender{ProxyAuthorization: basic("team", "pw-team")}, "team-a", "", ReasonAmbiguousAgent},
		{"shared account, named", id, Sender{ProxyAuthorization: basic("team", "pw-team"), UserAgent: "TeamB"}, "team-b", "credential+user_agent", ""},
		{"wrong source", id, Sender{ProxyAuthorization: basic("ga", "pw-ga")}, "gamma", "", ReasonAgentMismatch},
		{"wrong password", id, Sender{ProxyAuthorization: basic("be", "x")}, "", "", ReasonCredentialsWrong},
		{"nobody", id, Sender{}, "", "", ReasonCredentialsMissing},
		{"certificate", withCert, Sender{CertificateNames: []string{"c.corp", "c2.corp"}}, "c", "client_certificate", ""},
		{"certificate of two", withCert, Sender{CertificateNames: []string{"c.corp", "d.corp"}}, "c", "", ReasonAmbiguousAgent},
		{"a source does not bind", withCert, Sender{Source: netip.MustParseAddr("10.0.0.1")}, "", "", ReasonUnidentified},
	} {
		i := tt.id.Opaque(t.Context(), tt.e)
		reason, _, refused := i.Refused()
		if reason != tt.reason || i.Agent != tt.agent || !refused && i.IdentifiedBy != tt.by {
			t.Errorf("%s: agent %q by %q, reason %q; want %q by %q, %q", tt.name, i.Agent, i.IdentifiedBy, reason, tt.agent, tt.by, tt.reason)
		}
	}
}

// Clients that wait for 407 (Java, Apache, okhttp) send credentials with CONNECT only. So CONNECT
// gets the 407, but only if no agent could be accepted without credentials.
func TestTunnelAsksForCredentials(t *testing.T) {
	t.Parallel()
	withCredential := Agent{Name: "a", Credentials: []string{"u"}}
	for _, tt := range []struct {
		name   string
		agents []Agent
		allow  bool
		e      Sender
		want   Reason
	}{
		{"credentials only", []Agent{withCredential}, false, Sender{UserAgent: "a"}, ReasonCredentialsMissing},
		{"unidentified allowed", []Agent{withCredential}, true, Sender{}, ""},
		{"some by User-Agent", []Agent{withCredential, {Name: "b"}}, false, Sender{}, ""},
		{"in a range", []Agent{withCredential, {Name: "b", From: prefixes(t, "10.0.0.0/8")}}, false, Sender{Source: netip.MustParseAddr("10.0.0.1")}, ""},
		{"outside of the range", []Agent{withCredential, {Name: "b", From: prefixes(t, "10.0.0.0/8")}}, false, Sender{Source: netip.MustParseAddr("11.0.0.1")}, ReasonCredentialsMissing},
		{"with a certificate", []Agent{withCredential, {Name: "b", ClientCertificates: []string{"c"}}}, false, Sender{CertificateNames: []string{"c"}}, ""},
		{"certificate, wrong range", []Agent{withCredential, {Name: "b", ClientCertificates: []string{"c"}, From: prefixes(t, "10.0.0.0/8")}}, false, Sender{CertificateNames: []string{"c"}}, ReasonCredentialsMissing},
		{"no credentials at all", []Agent{{Name: "b", From: prefixes(t, "10.0.0.0/8")}}, false, Sender{}, ""},
	} {
		id := mustIdentifier(t, IdentifierConfig{Agents: tt.agents, AllowUnidentified: tt.allow})
		if got, _, _ := id.AuthenticateTunnel(t.Context(), tt.e).Refused(); got != tt.want {
			t.Errorf("%s: refused for %q, want %q", tt.name, got, tt.want)
		}
	}
}

// A certificate with the names of two agents cannot be detected at load.
func TestIdentifyAmbiguousCertificate(t *testing.T) {
	t.Parallel()
	id := mustIdentifier(t, IdentifierConfig{Agents: []Agent{
		{Name: "a", ClientCertificates: []string{"a.corp", "a2.corp"}},
		{Name: "b", ClientCertificates: []string{"b.corp"}},
		{Name: "c", ClientCertificates: []string{"b.corp"}, UserAgents: []string{"C"}},
	}})
	for _, tt := range []struct {
		names  []string
		field  string
		agent  string
		reason Reason
	}{
		{[]string{"a.corp", "b.corp"}, "", "a", ReasonAmbiguousAgent},
		{[]string{"a.corp", "a2.corp"}, "", "a", ""},
		{[]string{"a.corp", "b.corp"}, "C/1", "c", ""}, // stronger evidence
		{[]string{"b.corp"}, "C/1", "c", ""},
		{[]string{"b.corp"}, "", "b", ""},
	} {
		i := id.Identify(t.Context(), Sender{CertificateNames: tt.names, UserAgent: tt.field})
		if reason, detail, _ := i.Refused(); reason != tt.reason || i.Agent != tt.agent {
			t.Errorf("%v, %q: agent %q, reason %q (%s); want %q, %q", tt.names, tt.field, i.Agent, reason, detail, tt.agent, tt.reason)
		}
	}
}

// A permitted unidentified request has no agent name, but a token that selects its rules.
func TestUnidentifiedAllowedHasNoName(t *testing.T) {
	t.Parallel()
	id := company(t, true)
	i := id.Identify(t.Context(), Sender{UserAgent: "ExampleBot/1.0"})
	if i.Agent != "" || i.IdentifiedBy != "" || !slices.Equal(i.Robots.Tokens, []string{"ExampleBot"}) {
		t.Errorf("got %+v", i)
	}
}

// A client cannot find out names: a wrong user and a wrong password cost the same work and get the
// same answer.
func TestWrongUserIsVerifiedToo(t *testing.T) {
	t.Parallel()
	var asked []string
	id := mustIdentifier(t, IdentifierConfig{
		Agents: []Agent{{Name: "a", Credentials: []string{"u"}}},
		Verify: func(_ context.Context, _ netip.Addr, user, _ string) PasswordCheck {
			asked = append(asked, user)
			if user == "ghost" {
				return PasswordRight
			}
			return PasswordWrong
		},
	})
	users := []string{"u", "nobody", "ghost"}
	said := make(map[string]bool)
	for _, user := range users {
		i := id.Identify(t.Context(), Sender{ProxyAuthorization: basic(user, "x")})
		reason, detail, _ := i.Refused()
		said[string(reason)+" "+detail] = true
	}
	if !slices.Equal(asked, users) || len(said) != 1 {
		t.Errorf("verified the users %q, answers %v; want %q and one answer", asked, said, users)
	}
}

// A password that was not checked is neither right nor wrong. The request is refused in every mode,
// for a while.
func TestUncheckedPassword(t *testing.T) {
	t.Parallel()
	id := mustIdentifier(t, IdentifierConfig{
		Agents: []Agent{{Name: "a", Credentials: []string{"u"}}},
		Verify: func(context.Context, netip.Addr, string, string) PasswordCheck { return PasswordUnchecked },
	})
	o := mustOrigin(t, "http://example.com/")
	gone, leave := context.WithCancel(t.Context())
	leave()
	for _, tt := range []struct {
		ctx   context.Context
		want  Reason
		retry time.Duration
	}{
		{t.Context(), ReasonCredentialsBusy, 3 * time.Second},
		{gone, ReasonCanceled, 0},
	} {
		for _, mode := range []Mode{ModeEnforce, ModeReport, ModeOff} {
			e := newEnforcer(nil, mustPolicy(t, PolicyConfig{Mode: mode}), nil)
			evidence := Sender{ProxyAuthorization: basic("u", "pw-u")}
			for _, d := range []Decision{
				ask(t, e, id.Identify(tt.ctx, evidence), "http://example.com/"),
				ask(t, e, id.Identify(tt.ctx, evidence), "http://example.com/robots.txt"),
				e.DecideTunnel(t.Context(), id.Opaque(tt.ctx, evidence), o),
				e.DecideIntercept(id.AuthenticateTunnel(tt.ctx, evidence), o),
			} {
				if d.Allowed || d.Reason != tt.want || d.RetryAfter != tt.retry {
					t.Errorf("mode %v: %+v", mode, d)
				}
			}
		}
	}
}

func TestNamed(t *testing.T) {
	t.Parallel()
	id := company(t, false)
	i, ok := id.Named("OPEN")
	if _, _, refused := i.Refused(); !ok || refused || i.Agent != "Open" || i.IdentifiedBy != "" ||
		!slices.Equal(i.Robots.Tokens, []string{"OpenBot", "Open"}) {
		t.Errorf("got %+v %t", i, ok)
	}
	if _, ok := id.Named("OpenBot"); ok {
		t.Error("Named accepts a token that is no name")
	}
	if got := id.Agents(); len(got) != 11 || got[0].Name != "alpha" {
		t.Errorf("%d agents: %+v", len(got), got)
	}
	free := mustIdentifier(t, IdentifierConfig{})
	if i, ok := free.Named("ExampleBot"); !ok || i.Agent != "ExampleBot" {
		t.Errorf("got %+v %t", i, ok)
	}
	if _, ok := free.Named("Example Bot"); ok {
		t.Error("Named accepts two words as a token")
	}
}

// TestIdentityInvariants checks invariants over all combinations of evidence and policy, with a
// second, simple evaluation of the configuration.
func TestIdentityInvariants(t *testing.T) {
	t.Parallel()
	authorizations := []string{
		"", "Basic !", basic("al", "x"), basic("zz", "pw-zz"),
		basic("al", "pw-al"), basic("be", "pw-be"), basic("ga", "pw-ga"), basic("team", "pw-team"),
	}
	fields := []string{
		"", browser, "curl/8", "alpha", "BetaBot/1", "beta", "gamma", "delta", "office", "OfficeNews", "OpenBot", "mybot/2",
		"special crawler", "TeamA", "TeamB", "OpenBot mybot", "mybot OpenBot", "TeamB TeamA", "Mozilla/5.0 (compatible; TeamA; BetaBot)",
		"Mozilla/5.0 (compatible; BetaClassic/1)", "mybotmybot", "Unknown/1.0",
	}
	sources := []string{"10.3.0.1", "10.5.0.1", "192.0.2.1", "2001:db8:5::9"}
	certificates := [][]string{nil, {"delta.corp"}, {"other"}}
	n := 0
	for _, allow := range []bool{false, true} {
		id := company(t, allow)
		for _, auth := range authorizations {
			for _, field := range fields {
				for _, source := range sources {
					for _, names := range certificates {
						e := Sender{UserAgent: field, ProxyAuthorization: auth, Source: netip.MustParseAddr(source), CertificateNames: names}
						i := id.Identify(t.Context(), e)
						if err := naive(id, allow, e, i); err != "" {
							t.Errorf("%+v: %s; got %+v", e, err, i)
						}
						n++
					}
				}
			}
		}
	}
	t.Logf("%d combinations", n)
}

// FuzzIdentify checks the same invariants for any User-Agent, and that a request in a tunnel is
// decided like one outside.
func FuzzIdentify(f *testing.F) {
	f.Add("A/1 (compatible; B/1 (x; C/1); OpenBot/1); compatible; mybot", "")
	f.Add("Mozilla/5.0 (X11; mybot/1; +https://example.org) OpenBot/1", basic("al", "pw-al"))
	for _, tt := range identityCases {
		f.Add(tt.e.UserAgent, tt.e.ProxyAuthorization)
	}
	f.Fuzz(func(t *testing.T, field, authorization string) {
		for _, allow := range []bool{false, true} {
			id := company(t, allow)
			e := Sender{UserAgent: field, ProxyAuthorization: authorization, Source: netip.MustParseAddr("10.5.0.1")}
			i := id.Identify(t.Context(), e)
			if err := naive(id, allow, e, i); err != "" {
				t.Errorf("%+v: %s; got %+v", e, err, i)
			}
			inner := id.Inner(id.AuthenticateTunnel(t.Context(), e), field)
			reason, _, refused := i.Refused()
			if innerReason, _, innerRefused := inner.Refused(); innerRefused != refused || innerReason != reason && reason != ReasonCredentialsMissing {
				t.Errorf("%+v: inside %q, outside %q", e, innerReason, reason)
			}
		}
	})
}

// naive returns the fault of an identity, or "".
func naive(id *Identifier, allow bool, e Sender, i Identity) string {
	user, password, parsed := basicCredentials(e.ProxyAuthorization)
	right := parsed && password == "pw-"+user && slices.Contains([]string{"al", "be", "ga", "team"}, user)
	reason, _, refused := i.Refused()
	wrong := e.ProxyAuthorization != "" && !right
	switch {
	case wrong != (reason == ReasonCredentialsWrong):
		return "wrong credentials and their refusal must go together"
	case reason == ReasonCredentialsMissing && e.ProxyAuthorization != "":
		return "credentials are called missing and are there"
	case !refused && i.Agent == "" && !allow:
		return "unidentified and accepted"
	case !refused && i.Agent == "" && right:
		return "a credential was ignored"
	}
	// Find the agents that the header names as a product. The first one counts.
	var owners []string
	for p := range robotstxt.Products(e.UserAgent) {
		for _, a := range id.agents {
			own := append([]string{a.Name}, a.UserAgents...)
			if len(a.Tokens) > 0 {
				own[0] = a.Tokens[0]
			}
			if containsFold(own, p) {
				owners = append(owners, a.Name)
			}
		}
		if len(owners) > 0 {
			break
		}
	}
	if !refused && len(owners) > 0 && !slices.Contains(owners, i.Agent) {
		return fmt.Sprintf("accepted with the User-Agent of %q", owners)
	}
	if refused || i.Config == nil {
		return ""
	}
	// All conditions of the block must hold.
	a := i.Config
	inRange := slices.ContainsFunc(a.From, func(p netip.Prefix) bool { return p.Contains(e.Source) })
	hasCertificate := common("", a.ClientCertificates, e.CertificateNames) != ""
	switch {
	case len(a.Credentials) > 0 && !right:
		return "accepted without its credential"
	case right && !slices.Contains(a.Credentials, user):
		return "accepted against the credential"
	case len(a.From) > 0 && !inRange:
		return "accepted from outside of its range"
	case len(a.ClientCertificates) > 0 && !hasCertificate:
		return "accepted without its certificate"
	case len(a.UserAgents) > 0 && e.UserAgent == "":
		return "accepted without User-Agent"
	}
	return ""
}

func TestIdentifierKnows(t *testing.T) {
	t.Parallel()
	agents := []Agent{{Name: "Acme"}}
	for _, tt := range []struct {
		cfg  IdentifierConfig
		name string
		want bool
	}{
		{IdentifierConfig{Agents: agents}, "acme", true},
		{IdentifierConfig{Agents: agents}, "other", false},
		{IdentifierConfig{Agents: agents, AllowUnidentified: true}, "other", true},
		{IdentifierConfig{Agents: agents, AllowUnidentified: true}, "no token", false},
		{IdentifierConfig{}, "other", true},
		{IdentifierConfig{}, "no token", false},
		{IdentifierConfig{}, "", false},
	} {
		if got := mustIdentifier(t, tt.cfg).Knows(tt.name); got != tt.want {
			t.Errorf("%+v: Knows(%q) = %v, want %v", tt.cfg, tt.name, got, tt.want)
		}
	}
	if new(Identifier).Knows("acme") {
		t.Error("the zero Identifier knows a name")
	}
}

// TestIdentityAsker checks that a site is asked in the name that the agent's requests have. A
// refused sender has no such name.
func TestIdentityAsker(t *testing.T) {
	t.Parallel()
	agents := []Agent{
		{Name: "plain"},
		{Name: "acme", UserAgents: []string{"AcmeBot"}},
		{Name: "n", Tokens: []string{"News", "Acme"}},
		{Name: "versions", UserAgents: []string{"VerBot/2.*"}},
		{Name: "several", UserAgents: []string{"(no token*", "First/1.*", "Second"}},
	}
	id, _, err := NewIdentifier(IdentifierConfig{Agents: agents, AllowUnidentified: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"plain": "plain", "acme": "AcmeBot", "n": "News", "versions": "VerBot", "several": "First"} {
		i, _ := id.Named(name)
		if a := i.Asker(); a.Token != want || !a.Configured {
			t.Errorf("%s: %+v, want %s", name, a, want)
		}
	}
	for userAgent, want := range map[string]string{"": "", "Bob/1.0 <script>": "Bob", "AcmeBot/9": "AcmeBot", "Mozilla/5.0": ""} {
		i := id.Identify(t.Context(), Sender{UserAgent: userAgent})
		if a := i.Asker(); a.Token != want || a.Configured != (want == "AcmeBot") {
			t.Errorf("%q: %+v, want %s", userAgent, a, want)
		}
	}
	strict, _, err := NewIdentifier(IdentifierConfig{Agents: []Agent{{Name: "far", UserAgents: []string{"FarBot"}, From: prefixes(t, "192.0.2.0/24")}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range []Identity{{}, strict.Identify(t.Context(), Sender{UserAgent: "Bob/1.0"}), strict.Identify(t.Context(), Sender{UserAgent: "FarBot/1.0"})} {
		if a := i.Asker(); a.Token != "" {
			t.Errorf("the Asker of a refused sender is %+v, want none", a)
		}
	}
}
