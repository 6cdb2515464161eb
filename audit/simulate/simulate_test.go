package simulate

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/audit"
	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/pace"
	"github.com/crawlgate/crawlgate/robotscache"
	"github.com/crawlgate/crawlgate/robotstxt"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const text = "User-agent: *\nDisallow: /private\nDisallow: /*?secret\nCrawl-delay: 60\n"

// stored is a store with the texts of one site.
type stored struct {
	bodies map[[32]byte]string
	err    error
}

func (s stored) Body(_ context.Context, sha [32]byte) ([]byte, error) {
	if body, ok := s.bodies[sha]; ok {
		return []byte(body), s.err
	}
	return nil, robotscache.ErrNotFound
}

func newStored() stored {
	return stored{bodies: map[[32]byte]string{sha256.Sum256([]byte(text)): text}}
}

// policy makes a policy from agents and an operator's policy.
func policy(tb testing.TB, agents []enforce.Agent, operator enforce.PolicyConfig) Policy {
	tb.Helper()
	operator.ConnectDefault = enforce.ConnectIntercept
	p, _, err := enforce.NewPolicy(operator, noon)
	if err != nil {
		tb.Fatal(err)
	}
	trust := func(context.Context, netip.Addr, string, string) enforce.PasswordCheck { return enforce.PasswordRight }
	id, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: agents, Verify: trust})
	if err != nil {
		tb.Fatal(err)
	}
	return Policy{Identifier: id, Operator: p, Politeness: enforce.Politeness{CrawlDelay: pace.CrawlDelay{Max: time.Minute, Above: pace.Refuse}, Per: []pace.Scope{pace.PerHost}}, AllowFor: time.Hour}
}

// request is a line of a log, whose fields a test changes.
type request struct {
	Method, URI, Client, Headers, TLS string
	Status                            int
	Robots                            enforce.LogRecord
	// Before has the lines about the site's robots.txt that come before the request.
	Before []robotscache.Answer
}

// answered returns a line about the site's robots.txt, the given time before noon.
func answered(ago time.Duration, a robotscache.Answer) robotscache.Answer {
	a.Schema, a.Event, a.Origin, a.At = robotscache.AnswerSchema, robotscache.EventFetched, "https://example.com", noon.Add(-ago)
	return a
}

// atRunTime changes a request to one that passed by an exception at run time.
func atRunTime(left time.Duration) func(*request) {
	return func(r *request) {
		r.Robots.Decision, r.Robots.Reason, r.Robots.State, r.Robots.SHA256 = "allow", "exception", "unknown", ""
		r.Robots.Group, r.Robots.Rule, r.Robots.Line = "", "", 0
		r.Robots.Exception = "order A-1, by ada, ticket OPS-7, until then: AcmeBot@*.com /private"
		r.Robots.ExceptionOrder, r.Robots.ExceptionBy, r.Robots.ExceptionTicket = "A-1", "ada", "OPS-7"
		r.Robots.ExceptionUntil = enforce.SecondsOf(r.Robots.DecidedAt.Time().Add(left))
	}
}

func disallowed() request {
	sha := sha256.Sum256([]byte(text))
	return request{
		Method: "GET", URI: "https://example.com/private/x", Client: "127.0.0.1", Headers: `{"User-Agent":["AcmeBot/1"]}`, TLS: "null",
		Robots: enforce.LogRecord{
			Schema: 2, DecidedAt: enforce.SecondsOf(noon), Decision: "deny", Reason: "disallowed", Mode: "enforce", Agent: "AcmeBot", Tokens: []string{"AcmeBot"}, IdentifiedBy: "user_agent",
			UserAgent: "AcmeBot/1", Origin: "https://example.com", State: "rules", Group: "*", Rule: "/private", Line: 2,
			SHA256: fetch.Sum(sha).Hex(), Source: "hot", PathVisible: true, CrawlDelay: 60,
		},
		Before: []robotscache.Answer{answered(time.Hour, robotscache.Answer{State: "rules", Status: 200, SHA256: fetch.Sum(sha).Hex(), FreshUntil: noon.Add(time.Hour)})},
	}
}

func (r request) line(tb testing.TB) string {
	tb.Helper()
	robots, err := json.Marshal(r.Robots)
	if err != nil {
		tb.Fatal(err)
	}
	if r.Status == 0 {
		r.Status = 403
		if r.Robots.Decision == enforce.OutcomeAllow {
			r.Status = 200
		}
	}
	return fmt.Sprintf(`{"ts":%d,"status":%d,"request":{"client_ip":%q,"method":%q,"uri":%q,"headers":%s,"tls":%s},"robots":%s}`+"\n",
		noon.Unix(), r.Status, r.Client, r.Method, r.URI, r.Headers, r.TLS, robots)
}

// limited returns an agent with boundaries.
func limited(b enforce.Boundaries) []enforce.Agent {
	return []enforce.Agent{{Name: "AcmeBot", Boundaries: b}}
}

// run simulates one line and returns the cause or the new decision.
func run(t *testing.T, cfg Config, r request) (string, Totals) {
	t.Helper()
	text := r.line(t)
	for _, a := range slices.Backward(r.Before) {
		answer, err := json.Marshal(map[string]robotscache.Answer{"robots_txt": a})
		if err != nil {
			t.Fatal(err)
		}
		text = string(answer) + "\n" + text
	}
	source := audit.Source{Name: "a.log", Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }}
	result := "as before"
	totals, err := Run(t.Context(), cfg, [][]audit.Source{{source}}, func(_ *audit.Line, r Result) {
		result = string(r.Cause)
		if r.Cause == "" {
			result = strings.TrimSpace(fmt.Sprintf("%s %s %s", r.New.short(), r.New.Agent, r.New.Rule))
		}
	}, func(f audit.Fault) {
		result = "error: " + f.Err.Error()
	})
	if err != nil {
		t.Fatal(err)
	}
	return result, totals
}

// TestDecide checks the result of a line under another policy. The integration tests compare such
// results with a gateway.
func TestDecide(t *testing.T) {
	t.Parallel()
	acme := enforce.Agent{Name: "AcmeBot"}
	credential := enforce.Agent{Name: "CredBot", Credentials: []string{"cred", "other"}}
	certified := enforce.Agent{Name: "CertBot", ClientCertificates: []string{"cert"}}
	by := func(agent, condition string, reason enforce.Reason) func(*request) {
		return func(r *request) {
			r.Headers = `{"User-Agent":["x/1"],"Proxy-Authorization":["REDACTED"]}`
			r.Robots.UserAgent, r.Robots.Agent, r.Robots.IdentifiedBy, r.Robots.Reason = "x/1", agent, condition, reason
			if reason != "disallowed" {
				r.Robots.State, r.Robots.SHA256 = "unknown", ""
			}
		}
	}
	for _, tt := range []struct {
		name     string
		agents   []enforce.Agent
		operator enforce.PolicyConfig
		change   func(*request)
		want     string
	}{
		{"the same", []enforce.Agent{acme}, enforce.PolicyConfig{}, nil, "as before"},
		{"no agents", nil, enforce.PolicyConfig{}, nil, "as before"},
		{"mode report", nil, enforce.PolicyConfig{Mode: enforce.ModeReport}, nil, "allow (would deny) disallowed AcmeBot /private"},
		{"mode off", nil, enforce.PolicyConfig{Mode: enforce.ModeOff}, nil, "allow robots_off AcmeBot"},
		{"an exception", nil, enforce.PolicyConfig{Exceptions: []enforce.Exception{{Hosts: []string{"example.com"}, Reason: "x"}}}, nil, "allow exception AcmeBot"},
		{"one that is over", nil, enforce.PolicyConfig{Exceptions: []enforce.Exception{{Hosts: []string{"*"}, Until: noon.Add(-time.Hour).Format(time.RFC3339)}}}, nil, "as before"},
		{"one that was not over then", nil, enforce.PolicyConfig{Exceptions: []enforce.Exception{{Hosts: []string{"*"}, Until: noon.Add(time.Hour).Format(time.RFC3339)}}}, nil, "allow exception AcmeBot"},
		{"denied", nil, enforce.PolicyConfig{Deny: []string{"example.com"}}, nil, "deny operator_deny AcmeBot"},
		{"another host than the agent's", limited(enforce.Boundaries{Hosts: []string{"*.example.com"}}), enforce.PolicyConfig{}, nil, "deny agent_host AcmeBot"},
		{"another port", limited(enforce.Boundaries{Ports: [][2]uint16{{80, 80}}}), enforce.PolicyConfig{}, nil, "deny agent_port AcmeBot"},
		{"another method", limited(enforce.Boundaries{Methods: []string{"HEAD"}}), enforce.PolicyConfig{Mode: enforce.ModeOff}, nil, "deny agent_method AcmeBot"},
		{"another hour", limited(enforce.Boundaries{Windows: []string{"13:00-11:59 UTC"}}), enforce.PolicyConfig{}, nil, "deny window AcmeBot"},
		{"its hour", limited(enforce.Boundaries{Windows: []string{"13:00-12:01 Europe/London"}}), enforce.PolicyConfig{}, nil, "as before"},
		{"after its day", limited(enforce.Boundaries{Expires: "2026-11-21"}), enforce.PolicyConfig{}, nil, "deny agent_expired AcmeBot"},
		{"before its day", limited(enforce.Boundaries{Expires: "2026-11-22"}), enforce.PolicyConfig{}, nil, "as before"},
		{"no longer limited", []enforce.Agent{acme}, enforce.PolicyConfig{}, func(r *request) {
			r.Robots.Reason, r.Robots.State, r.Robots.SHA256, r.Robots.Group, r.Robots.Rule, r.Robots.Line = "agent_host", "unknown", "", "", "", 0
		}, "deny disallowed AcmeBot /private"}, // by the line before it
		{"while it waited its hour ended", limited(enforce.Boundaries{Windows: []string{"13:00-12:01 Europe/London"}}), enforce.PolicyConfig{}, func(r *request) {
			r.URI, r.Robots.Reason, r.Robots.WaitMillis = "https://example.com/open", "window", 24000
		}, "as before"},
		{"unknown agent", []enforce.Agent{{Name: "OtherBot"}}, enforce.PolicyConfig{}, nil, "deny unidentified"},
		{"other tokens", []enforce.Agent{{Name: "AcmeBot", IgnoreWildcard: true}}, enforce.PolicyConfig{}, nil, "allow no_rule AcmeBot"},
		{"no longer excepted", nil, enforce.PolicyConfig{}, func(r *request) {
			r.Robots.Decision, r.Robots.Reason, r.Robots.Exception, r.Robots.State, r.Robots.SHA256 = "allow", "exception", "x", "unknown", ""
		}, "deny disallowed AcmeBot /private"}, // by the line before it
		{"excepted at run time", nil, enforce.PolicyConfig{}, atRunTime(time.Second), "as before"},
		{"excepted at run time, and denied", nil, enforce.PolicyConfig{Deny: []string{"example.com"}}, atRunTime(time.Second), "deny operator_deny AcmeBot"},
		{"excepted by the configuration instead", nil, enforce.PolicyConfig{Exceptions: []enforce.Exception{{Hosts: []string{"*"}}}}, atRunTime(time.Second), "allow exception AcmeBot"},
		{"by an exception that had ended", nil, enforce.PolicyConfig{}, atRunTime(0), "deny disallowed AcmeBot /private"},
		{"of another site", nil, enforce.PolicyConfig{}, func(r *request) {
			r.URI, r.Robots.Origin = "https://example.net/private", "https://example.net"
			r.Robots.Decision, r.Robots.Reason, r.Robots.State, r.Robots.SHA256 = "allow", "robots_off", "unknown", ""
		}, "text"},
		{"no text", nil, enforce.PolicyConfig{}, func(r *request) { r.Robots.SHA256 = strings.Repeat("ab", 32) }, "text"},
		{"a later step", nil, enforce.PolicyConfig{}, func(r *request) {
			r.URI, r.Robots.Decision, r.Robots.Reason = "https://example.com/open", "deny", "rate_limited"
		}, "as before"},
		{"refused before a later step", nil, enforce.PolicyConfig{}, func(r *request) { r.Robots.Decision, r.Robots.Reason = "error", "timeout" }, "deny disallowed AcmeBot /private"},
		{"an order", nil, enforce.PolicyConfig{Mode: enforce.ModeOff}, func(r *request) {
			r.Robots.Reason, r.Robots.State, r.Robots.SHA256 = "kill_switch", "unknown", ""
		}, "as before"},
		{"an order behind the sender", []enforce.Agent{{Name: "OtherBot"}}, enforce.PolicyConfig{}, func(r *request) {
			r.Robots.Reason, r.Robots.State, r.Robots.SHA256 = "kill_switch", "unknown", ""
		}, "deny unidentified"},
		{"still being fetched", nil, enforce.PolicyConfig{}, func(r *request) { r.Robots.Reason, r.Robots.State, r.Robots.SHA256 = "pending", "unknown", "" }, "as before"},
		{"no robots.txt", nil, enforce.PolicyConfig{}, func(r *request) {
			r.Robots.Decision, r.Robots.Reason, r.Robots.State, r.Robots.SHA256 = "allow", "absent", "absent", ""
			r.Robots.Group, r.Robots.Rule, r.Robots.Line = "", "", 0
		}, "as before"},
		{"robots.txt is not shown", nil, enforce.PolicyConfig{Mode: enforce.ModeReport}, func(r *request) {
			r.Robots.Reason, r.Robots.State, r.Robots.SHA256 = "robots_forbidden", "absent", ""
		}, "allow absent AcmeBot"}, // without the option "forbidden disallow"
		{"unreachable", nil, enforce.PolicyConfig{Mode: enforce.ModeReport}, func(r *request) {
			r.Robots.Reason, r.Robots.State, r.Robots.Cause, r.Robots.SHA256 = "unreachable", "unreachable", "timeout", ""
		}, "allow (would deny) unreachable AcmeBot"},
		{"unreachable for long", nil, enforce.PolicyConfig{Deny: []string{"example.net"}}, func(r *request) {
			r.Robots.Decision, r.Robots.Reason, r.Robots.State, r.Robots.SHA256 = "allow", "unreachable_expired", "unreachable", ""
			r.Robots.Group, r.Robots.Rule, r.Robots.Line = "", "", 0
			r.Before = append(r.Before, answered(time.Minute, robotscache.Answer{State: "unreachable", Cause: "timeout", UnreachableSince: noon.Add(-time.Hour)}))
		}, "deny unreachable AcmeBot"}, // for an hour
		{"no longer excepted, a day after the answer", nil, enforce.PolicyConfig{}, func(r *request) {
			r.Robots.Decision, r.Robots.Reason, r.Robots.Exception, r.Robots.State, r.Robots.SHA256 = "allow", "exception", "x", "unknown", ""
			r.Before[0].At, r.Before[0].FreshUntil = noon.Add(-25*time.Hour), noon.Add(-2*time.Hour)
		}, "text"},
		{"no longer excepted, and another gateway asked", nil, enforce.PolicyConfig{}, func(r *request) {
			r.Robots.Decision, r.Robots.Reason, r.Robots.Exception, r.Robots.State, r.Robots.SHA256 = "allow", "exception", "x", "unknown", ""
			r.Before[0].Gateway = "gw2"
		}, "text"},
		{"no longer excepted, and the answer made no sense", nil, enforce.PolicyConfig{}, func(r *request) {
			r.Robots.Decision, r.Robots.Reason, r.Robots.Exception, r.Robots.State, r.Robots.SHA256 = "allow", "exception", "x", "unknown", ""
			r.Before[0].SHA256 = ""
		}, "text"},
		{"no longer excepted, and the site turns the gateway away", nil, enforce.PolicyConfig{}, func(r *request) {
			r.Robots.Decision, r.Robots.Reason, r.Robots.Exception, r.Robots.State, r.Robots.SHA256 = "allow", "exception", "x", "unknown", ""
			own := r.Before[0]
			own.FetchedAs = "AcmeBot"
			r.Before = append(r.Before, answered(time.Minute, robotscache.Answer{State: "absent", Cause: "status", Status: 403}), own)
		}, "deny disallowed AcmeBot /private"},
		{"a rule that looks at a query", nil, enforce.PolicyConfig{}, func(r *request) { r.URI = "https://example.com/open?REDACTED" }, "query"},
		{"the host before it", nil, enforce.PolicyConfig{Deny: []string{"*"}}, func(r *request) { r.URI = "https://example.com/open?REDACTED" }, "deny operator_deny AcmeBot"},
		{"bytes that are no UTF-8", nil, enforce.PolicyConfig{}, func(r *request) { r.URI = "https://example.com/\uFFFD" }, "url"},
		{"bad target", nil, enforce.PolicyConfig{}, func(r *request) { r.Robots.Reason = "bad_target" }, "as before"},
		{"no clock", nil, enforce.PolicyConfig{}, func(r *request) { r.Robots.DecidedAt = 0 }, "time"},
		{"no address", nil, enforce.PolicyConfig{}, func(r *request) { r.Client = "" }, "source"},
		{"a client from elsewhere", nil, enforce.PolicyConfig{}, func(r *request) { r.Client = "192.0.2.1" }, "deny client_not_allowed"},
		{"schema", nil, enforce.PolicyConfig{}, func(r *request) { r.Robots.Schema = 3 }, "schema"},
		{"a decision that does not exist", nil, enforce.PolicyConfig{}, func(r *request) { r.Robots.Decision = "maybe" }, "schema"},
		{"not ready", nil, enforce.PolicyConfig{}, func(r *request) { r.Robots.Reason = "not_ready" }, "gateway"},
		{"User-Agent left out by the filter", nil, enforce.PolicyConfig{}, func(r *request) { r.Headers = "{}" }, "as before"},
		{"User-Agent changed by the filter", nil, enforce.PolicyConfig{}, func(r *request) {
			r.Headers, r.Robots.UserAgent = `{"User-Agent":["REDACTED"]}`, `AcmeBot/1 \xff`
		}, "user_agent"},
		{"credentials, and no agent has any", nil, enforce.PolicyConfig{}, by("AcmeBot", "credential", "disallowed"), "deny disallowed x /private"},
		{"the agent of credentials", []enforce.Agent{acme, credential}, enforce.PolicyConfig{}, by("CredBot", "credential", "disallowed"), "as before"},
		{"it is gone", []enforce.Agent{acme, credential}, enforce.PolicyConfig{}, by("GoneBot", "credential", "disallowed"), "credentials"},
		{"one of its accounts is another's too", []enforce.Agent{
			{Name: "CredBot", Credentials: []string{"cred"}, UserAgents: []string{"CredBot"}},
			{Name: "CredBot2", Credentials: []string{"cred"}},
		}, enforce.PolicyConfig{}, by("CredBot", "credential", "disallowed"), "deny disallowed CredBot2 /private"},
		{"accounts of two agents", []enforce.Agent{
			{Name: "CredBot", Credentials: []string{"a", "b"}, UserAgents: []string{"x"}},
			{Name: "CredBot2", Credentials: []string{"b"}, From: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		}, enforce.PolicyConfig{}, by("CredBot", "credential", "disallowed"), "credentials"},
		{"credentials that nobody looked at", []enforce.Agent{acme, credential}, enforce.PolicyConfig{}, by("AcmeBot", "user_agent", "disallowed"), "credentials"},
		{"wrong credentials", []enforce.Agent{acme, credential}, enforce.PolicyConfig{}, by("", "", "credentials_wrong"), "credentials"},
		{"the agent of a certificate", []enforce.Agent{certified}, enforce.PolicyConfig{}, by("CertBot", "client_certificate", "disallowed"), "as before"},
		{"a certificate that nobody looked at", []enforce.Agent{acme, certified}, enforce.PolicyConfig{}, func(r *request) {
			r.TLS, r.URI = `{"client_common_name":"cert"}`, "http://example.com/"
		}, "credentials"},
		{"inside a tunnel", []enforce.Agent{acme}, enforce.PolicyConfig{}, func(r *request) { r.TLS = "{}" }, "as before"},
		{
			"inside a tunnel that is not looked into", nil,
			enforce.PolicyConfig{Connect: []enforce.ConnectRule{{Choice: enforce.ConnectTunnel}}},
			func(r *request) { r.TLS = "{}" }, "tunnel",
		},
		{"a tunnel", nil, enforce.PolicyConfig{Connect: []enforce.ConnectRule{{Choice: enforce.ConnectDeny}}}, func(r *request) {
			r.Method, r.URI, r.Robots.Decision, r.Robots.Reason = "CONNECT", "example.com:443", "allow", "intercepted"
		}, "deny connect_denied AcmeBot"},
		{"a tunnel of what?", nil, enforce.PolicyConfig{Connect: []enforce.ConnectRule{{Choice: enforce.ConnectTunnel}}}, func(r *request) {
			r.Method, r.URI, r.Robots.Decision, r.Robots.Reason = "CONNECT", "example.com:80", "allow", "intercepted"
		}, "tunnel"},
	} {
		r := disallowed()
		if tt.change != nil {
			tt.change(&r)
		}
		got, totals := run(t, Config{Policy: policy(t, tt.agents, tt.operator), Texts: newStored(), Redacted: "REDACTED"}, r)
		if got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
		var causes int64
		for _, n := range totals.NotComputed {
			causes += n
		}
		if totals.Lines != 1 || totals.Same+totals.Different+causes != 1 {
			t.Errorf("%s: inconsistent totals %+v", tt.name, totals)
		}
	}
}

// TestFormAlone checks that the same decision by another form of the path does not differ.
func TestFormAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		path, decision string
		reason         enforce.Reason
		form           enforce.PathForm
		want           string
		same           int64
	}{
		{"/x/../page", "allow", enforce.ReasonNoRule, enforce.PathBoth, "as before", 1},
		{"/x/../private/x", "deny", enforce.ReasonDisallowed, enforce.PathResolved, "allow no_rule AcmeBot", 0},
		{"/private/x", "deny", enforce.ReasonDisallowed, "", "as before", 1},
	} {
		r := disallowed()
		r.URI, r.Robots.Decision, r.Robots.Reason, r.Robots.Form = "https://example.com"+tt.path, tt.decision, tt.reason, tt.form
		if tt.decision == "allow" {
			r.Robots.Rule, r.Robots.Line = "", 0
		}
		got, totals := run(t, Config{Policy: policy(t, nil, enforce.PolicyConfig{Paths: enforce.PathsAsSent}), Texts: newStored()}, r)
		if got != tt.want || totals.Same != tt.same || totals.Different != 1-tt.same {
			t.Errorf("%s: got %s with totals %+v", tt.path, got, totals)
		}
	}
}

// TestTunnelsApart checks that lines about tunnels are counted separately.
func TestTunnelsApart(t *testing.T) {
	t.Parallel()
	r := disallowed()
	r.Method, r.URI, r.Robots = "CONNECT", "example.com:443", enforce.LogRecord{
		Schema: 2, DecidedAt: enforce.SecondsOf(noon), Decision: "deny", Reason: enforce.ReasonTunnelRestricted, Mode: "enforce", Agent: "AcmeBot", Origin: "https://example.com", State: "rules",
		SHA256: r.Robots.SHA256, Group: "*",
	}
	_, totals := run(t, Config{Policy: policy(t, nil, enforce.PolicyConfig{}), Texts: newStored()}, r)
	want := []Change{{"tunnel deny tunnel_restricted", "tunnel allow intercepted", 1}}
	if totals.Lines != 1 || totals.Tunnels != 1 || !slices.Equal(totals.Changes, want) {
		t.Errorf("totals = %+v", totals)
	}
}

// TestStoreThatFails checks that an error of the store is an error of the line, not a decision.
func TestStoreThatFails(t *testing.T) {
	t.Parallel()
	broken := newStored()
	broken.err = robotscache.ErrUnavailable
	got, totals := run(t, Config{Policy: policy(t, nil, enforce.PolicyConfig{}), Texts: broken}, disallowed())
	if !strings.HasPrefix(got, "error: reading ") || totals.Errors != 1 || totals.Different != 0 {
		t.Errorf("got %s with totals %+v, want an error of reading", got, totals)
	}
}

// TestCutText checks that a text of the maximum size counts as the beginning of a longer file.
func TestCutText(t *testing.T) {
	t.Parallel()
	long := "User-agent: *\nDisallow: /private\n" + strings.Repeat("#", robotstxt.MaxSize)
	long = long[:robotstxt.MaxSize-len("\nAllow: /pri")] + "\nAllow: /pri"
	sha := sha256.Sum256([]byte(long))
	s := newStored()
	s.bodies[sha] = long
	r := disallowed()
	r.Robots.SHA256 = fetch.Sum(sha).Hex()
	if got, _ := run(t, Config{Policy: policy(t, nil, enforce.PolicyConfig{}), Texts: s}, r); got != "as before" {
		t.Error(got)
	}
}

// TestCauseDocs checks that each cause has a row in docs/simulate.md.
func TestCauseDocs(t *testing.T) {
	t.Parallel()
	causes := map[string]bool{}
	for _, c := range Causes() {
		causes[string(c)] = true
	}
	testdocs.Same(t, "cause", causes, testdocs.Named(testdocs.Sections(t, "simulate.md")["What is not computed"]))
}
