//go:build slow

package audit

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// policies has two gateways in front of the same sites, which get the same requests.
type policies struct {
	t      *testing.T
	server *testorigin.Server
	sites  map[string]*testorigin.Site
	hash   string
	asked  int
	plain  map[int]bool // the numbers of requests by plain HTTP in tunnels
}

// policySites are the sites and their robots.txt.
var policySites = []struct {
	name, scheme string
	robots       testorigin.Behaviour
}{
	{"plain", "http", testorigin.OK("User-agent: *\nDisallow: /private\nAllow: /private/page\n\nUser-agent: AlphaBot\nDisallow: /open\n\nUser-agent: Googlebot\nDisallow: /\n")},
	{"report", "http", testorigin.OK(rig.Rules)},
	{"off", "http", testorigin.OK(rig.Rules)},
	{"except", "http", testorigin.OK(rig.Rules)},
	{"deny", "http", testorigin.OK(rig.Rules)},
	{"denied_by_both", "http", testorigin.OK(rig.Rules)},
	{"slowest", "http", testorigin.OK("User-agent: *\nCrawl-delay: 0.4\nDisallow: /private\n")},
	{"absent", "http", testorigin.Status(http.StatusNotFound)},
	{"forbidden", "http", testorigin.Status(http.StatusForbidden)},
	{"gone", "http", testorigin.Status(http.StatusServiceUnavailable)},
	{"closed", "http", testorigin.Refuse()},
	{"secure", "https", testorigin.OK(rig.TunnelRules)},
	{"tunnel", "https", testorigin.OK(rig.TunnelRules)},
	{"shut", "https", testorigin.OK(rig.TunnelRules)},
}

// onePolicy and otherPolicy are the lines of a site's robots block. Each %[n]s is a host, in the
// order of policySites.
const (
	onePolicy = `
		mode report %[2]s
		mode off %[3]s
		except %[4]s {
			path /private
			reason "ticket 7"
		}
		deny %[5]s %[6]s
		connect tunnel %[13]s
		connect deny %[14]s
		connect intercept
		agent AlphaBot {
			owner "team alpha"
		}
		agent BetaBot {
			mode report
		}
		agent CredBot {
			credential cred %[15]s
		}
		agent NearBot {
			user_agent NearBot
			from 127.0.0.0/8
		}
		agent FarBot {
			user_agent FarBot
			from 192.0.2.0/24
		}
		agent Googlebot-News
		agent TeamA {
			credential team %[15]s
			user_agent TeamA
		}
		agent TeamB {
			credential team %[15]s
			user_agent TeamB
		}`
	otherPolicy = `
		unidentified allow
		paths as_sent
		mode off %[2]s
		except %[3]s {
			agent AlphaBot NearBot
			reason "ticket 8"
		}
		except %[1]s {
			path /private
			agent CredBot
			until 2020-01-01
			reason "it is over"
		}
		except %[5]s {
			reason "the list of hosts goes first"
		}
		deny %[6]s %[9]s
		connect tunnel %[12]s
		connect intercept
		agent AlphaBot {
			token AlphaBot Googlebot
			mode report
		}
		agent CredBot {
			credential cred %[15]s
			user_agent CredBot
		}
		agent NearBot {
			user_agent NearBot
			from 192.0.2.0/24
		}
		agent FarBot {
			user_agent FarBot
			from 127.0.0.0/8
		}
		agent News {
			token Googlebot-News
			ignore_wildcard_group
		}
		agent TeamA {
			credential team %[15]s
			user_agent TeamA
		}`
)

func newPolicies(t *testing.T) *policies {
	t.Helper()
	p := &policies{t: t, server: testorigin.Start(t, testorigin.Config{}), sites: make(map[string]*testorigin.Site), plain: make(map[int]bool)}
	for _, s := range policySites {
		site := p.server.Site(t, testorigin.SiteConfig{Scheme: s.scheme})
		site.SetRobots(s.robots)
		site.SetPages(testorigin.OK("a page\n"))
		p.sites[s.name] = site
	}
	hash, err := exec.CommandContext(t.Context(), rig.Binary, "hash-password", "--plaintext", "right", "--algorithm", "bcrypt", "--bcrypt-cost", "10").Output()
	if err != nil {
		t.Fatal(err)
	}
	p.hash = strings.TrimSpace(string(hash))
	return p
}

// start starts a gateway under a policy.
func (p *policies) start(policy, engine string) *rig.Gateway {
	p.t.Helper()
	var args []any
	for _, s := range policySites {
		args = append(args, p.sites[s.name].Origin().Host)
	}
	site := fmt.Sprintf(policy+"%[16]s", append(args, p.hash, "")...)
	return rig.New(p.t, rig.Config{
		Engine: "fetch {\nforbidden disallow\n}\npace {\nrate off\nbackoff off\n" + engine + "\n}",
		Egress: "trust_ca " + rig.CAFile(p.t, p.server), Site: site,
	})
}

// header returns the fields of a request: its sender, and its number, by which the two logs are
// compared.
func (p *policies) header(fields string) string {
	p.asked++
	return fmt.Sprintf("%sX-Number: %d\r\nConnection: close\r\n", fields, p.asked)
}

// send sends all requests through a gateway, one after the other.
func (p *policies) send(g *rig.Gateway) {
	p.t.Helper()
	p.asked = 0
	account := func(user, password string) string {
		return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)) + "\r\n"
	}
	senders := []string{
		"User-Agent: AlphaBot/1\r\n", "User-Agent: BetaBot/1\r\n", "User-Agent: AlphaBot/1 BetaBot/1\r\n", "User-Agent: Nobody/1\r\n", "",
		"User-Agent: CredBot/1\r\n", "User-Agent: CredBot/1\r\n" + account("cred", "right"), "User-Agent: AlphaBot/1\r\n" + account("cred", "right"),
		"User-Agent: CredBot/1\r\n" + account("cred", "wrong"), "User-Agent: NearBot/1\r\n", "User-Agent: FarBot/1\r\n",
		"User-Agent: Googlebot-News/2\r\n", "User-Agent: TeamA/1\r\n" + account("team", "right"), "User-Agent: TeamB/1\r\n" + account("team", "right"),
		"User-Agent: Mozilla/5.0 (compatible; AlphaBot/1.0; +http://a.example)\r\n",
	}
	for _, s := range policySites {
		site := p.sites[s.name]
		if s.scheme == "https" {
			p.inTunnels(g, site, account)
			continue
		}
		for i, sender := range senders {
			for k, path := range []string{rig.PrivatePage, rig.OpenPage, "/a/../private/x", "/robots.txt"} {
				if s.name == "slowest" && k > 0 && i > 3 {
					continue // requested later, with a delay
				}
				p.ask(g, "GET", site.URL(path), sender)
			}
		}
		p.ask(g, "POST", site.URL("/robots.txt"), senders[0])
		p.plainInTunnels(g, site, account)
	}
	p.ask(g, "GET", "http://user:password@"+p.sites["plain"].Origin().Authority()+"/", senders[0])
	p.ask(g, "GET", "ftp://"+p.sites["plain"].Origin().Host+"/%2e%2e/x", senders[0])
	p.ask(g, "PUT", "ftp://"+p.sites["plain"].Origin().Host+"/x", senders[0])
}

func (p *policies) ask(g *rig.Gateway, method, rawURL, sender string) {
	body := ""
	if method != http.MethodGet {
		body = "Content-Length: 0\r\n"
	}
	w := g.Dial()
	_, _ = w.Ask(method, method+" "+rawURL+" HTTP/1.1\r\nHost: x\r\n"+p.header(sender)+body+"\r\n") // the log has the outcome
	_ = w.Close()
}

// inTunnels opens tunnels and sends requests inside the intercepted ones.
func (p *policies) inTunnels(g *rig.Gateway, site *testorigin.Site, account func(user, password string) string) {
	p.t.Helper()
	authority := site.Origin().Authority()
	for _, sender := range []string{
		"User-Agent: AlphaBot/1\r\n", "User-Agent: Free/1\r\n", "User-Agent: CredBot/1\r\n" + account("cred", "right"), account("cred", "wrong"), "",
		"User-Agent: NearBot/1\r\n",
	} {
		w := g.Dial()
		resp := w.Handshake(p.t, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n"+p.header(sender)+"\r\n")
		userAgent, _, _ := strings.Cut(sender, "\r\n")
		inside := []string{p.header(userAgent + "\r\n"), p.header("User-Agent: AlphaBot/1\r\n"), p.header("User-Agent: CredBot/1\r\n")}
		if !strings.HasPrefix(sender, "User-Agent") {
			inside[0] = strings.TrimPrefix(inside[0], userAgent+"\r\n")
		}
		if resp.StatusCode == http.StatusOK {
			inner, err := w.Over(p.t, &tls.Config{InsecureSkipVerify: true})
			for _, fields := range inside {
				if err == nil {
					_, _ = inner.Ask("GET", "GET "+rig.PrivatePage+" HTTP/1.1\r\nHost: "+authority+"\r\n"+strings.Replace(fields, "Connection: close\r\n", "", 1)+"\r\n")
				}
			}
		}
		_ = w.Close()
	}
}

// plainInTunnels sends plain HTTP in tunnels.
func (p *policies) plainInTunnels(g *rig.Gateway, site *testorigin.Site, account func(user, password string) string) {
	p.t.Helper()
	authority := site.Origin().Authority()
	for _, sender := range []string{"", account("cred", "right"), account("team", "right")} {
		w := g.Dial()
		resp := w.Handshake(p.t, "CONNECT "+authority+" HTTP/1.1\r\nHost: "+authority+"\r\n"+p.header(sender)+"\r\n")
		for _, userAgent := range []string{"AlphaBot", "CredBot", "TeamB", "Nobody", "NearBot"} {
			fields := p.header("User-Agent: " + userAgent + "/1\r\n")
			p.plain[p.asked] = true
			if resp.StatusCode == http.StatusOK {
				_, _ = w.Ask("GET", "GET "+rig.PrivatePage+" HTTP/1.1\r\nHost: "+authority+"\r\n"+strings.Replace(fields, "Connection: close\r\n", "", 1)+"\r\n")
			}
		}
		_ = w.Close()
	}
}

// numbered reads a log, by the numbers of the requests.
func numbered(t *testing.T, file string) (lines map[int]enforce.LogRecord, numbers []int) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines = make(map[int]enforce.LogRecord)
	s := bufio.NewScanner(f)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		var l struct {
			Request struct {
				Headers map[string][]string `json:"headers"`
			} `json:"request"`
			Robots *enforce.LogRecord `json:"robots"`
		}
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		n := 0
		if number := l.Request.Headers["X-Number"]; l.Robots != nil && len(number) == 1 {
			if _, err := fmt.Sscan(number[0], &n); err != nil {
				t.Fatal(err)
			}
			lines[n] = *l.Robots
		}
		numbers = append(numbers, n)
	}
	return lines, numbers
}

// TestSimulate sends the same requests through two gateways with different policies. Each log must
// yield the other gateway's decisions when simulated under the other policy, and its own decisions
// under its own policy.
func TestSimulate(t *testing.T) {
	t.Parallel()
	p := newPolicies(t)
	one := p.start(onePolicy, "crawl_delay 0s 100ms refuse")
	other := p.start(otherPolicy, "crawl_delay 0s 100ms clamp")
	for _, g := range []*rig.Gateway{one, other} {
		p.send(g)
		t.Cleanup(g.Stop)
	}
	for _, tt := range []struct {
		name     string
		log, by  *rig.Gateway
		computed float64 // least share of the lines
	}{
		{"the first log", one, one, 0.8},
		{"the second log", other, other, 0.8},
		{"the first log by the second policy", one, other, 0.6},
		{"the second log by the first policy", other, one, 0.6},
	} {
		p.compare(tt.name, tt.log, tt.by, tt.computed, "--gateway", "unix/"+tt.log.AdminSocket())
	}
	one.Stop()
	other.Stop()
	p.compare("with the store", one, other, 0.6, "--store", one.Store())
}

// compare simulates the log of one gateway under the policy of another.
func (p *policies) compare(name string, log, by *rig.Gateway, least float64, args ...string) {
	t := p.t
	t.Helper()
	r := rig.Simulate(t, append(args, "--config", filepath.Join(by.Dir, "Caddyfile"), log.AccessLog())...)
	lines, numbers := numbered(t, log.AccessLog())
	want, _ := numbered(t, by.AccessLog())
	computed, differ, sendings := 0, 0, 0
	for i, n := range numbers {
		if n == 0 {
			continue // the gateway's own pages
		}
		l := r.Lines[i+1]
		if l.Type == "not_computed" {
			continue
		}
		there, ok := want[n]
		got := lines[n]
		if l.Type == "difference" {
			differ++
			got = l.New
		} else {
			there.Form = got.Form // docs/simulate.md does not count the form of the path
		}
		computed++
		if there.Decision == enforce.OutcomeError && got.Decision == enforce.OutcomeAllow && there.Agent == got.Agent {
			sendings++ // it passed, and then its site did not answer
			continue
		}
		if refused := there.Reason == enforce.ReasonAgentMismatch || there.Reason == enforce.ReasonUnidentified; refused &&
			p.plain[n] && l.Type == "difference" && got.Reason == enforce.ReasonCredentialsMissing {
			there.Reason = got.Reason // docs/simulate.md, "What is computed"
		}
		if !ok || rig.Decided(got) != rig.Decided(there) {
			t.Errorf("%s, line %d, %s %s: %s, want %s (it was %s)", name, i+1, l.Method, l.URL, rig.Decided(got), rig.Decided(there), rig.Decided(lines[n]))
		}
	}
	t.Logf("%s: %d of %d lines computed, %d differ, %d not answered; %v", name, computed, len(lines), differ, sendings, r.Totals.NotComputed)
	if float64(computed) < least*float64(len(lines)) || len(lines) < 500 || r.Totals.Errors != 0 {
		t.Errorf("%s: %d of %d lines computed, %d errors: %v", name, computed, len(lines), r.Totals.Errors, r.Totals.NotComputed)
	}
	if same := log == by; same != (differ == 0) || same != (r.Status == 0) {
		t.Errorf("%s: %d differ, status %d", name, differ, r.Status)
	}
}

// checkSimulation checks that no decision of a day differs under the policies that were in force.
func (d *day) checkSimulation(agents string) {
	t := d.t
	t.Helper()
	dir := t.TempDir()
	digests, lines := []string{}, map[string]*bytes.Buffer{}
	var answers bytes.Buffer // the lines about robots.txt so far; they precede the lines of each configuration
	for _, file := range rig.LogFiles(t, d.logs) {
		for line := range bytes.Lines(rig.Unpacked(t, file)) {
			var l struct {
				Robots  struct{ Config string } `json:"robots"`
				Answers json.RawMessage         `json:"robots_txt"`
			}
			if err := json.Unmarshal(line, &l); err != nil {
				t.Fatal(err)
			}
			if l.Answers != nil {
				answers.Write(line)
				for _, of := range lines {
					of.Write(line)
				}
				continue
			}
			if lines[l.Robots.Config] == nil {
				digests = append(digests, l.Robots.Config)
				lines[l.Robots.Config] = bytes.NewBuffer(bytes.Clone(answers.Bytes()))
			}
			lines[l.Robots.Config].Write(line)
		}
	}
	digests = slices.DeleteFunc(digests, func(s string) bool { return s == "" })
	if len(digests) != 2 {
		t.Fatalf("the day had the configurations %q, want 2", digests)
	}
	for i, config := range []rig.Config{d.config(""), d.config(agents)} {
		log, caddyfile := filepath.Join(dir, "access.log"), filepath.Join(dir, "Caddyfile")
		if err := errors.Join(os.WriteFile(log, lines[digests[i]].Bytes(), 0o600), os.WriteFile(caddyfile, []byte(d.g.Caddyfile(config)), 0o600)); err != nil {
			t.Fatal(err)
		}
		r := rig.Simulate(t, "--store", d.g.Store(), "--config", caddyfile, log)
		t.Logf("simulated: %+v", r.Totals)
		for n, l := range r.Lines {
			if l.Type == "difference" {
				t.Errorf("configuration %d, line %d, %s %s: %s -> %s", i+1, n, l.Method, l.URL, rig.Decided(l.Old), rig.Decided(l.New))
			}
		}
		if r.Totals.Errors > 0 || r.Totals.Lines == 0 || float64(r.Totals.Same) < 0.6*float64(r.Totals.Lines) {
			t.Errorf("configuration %d: %+v", i+1, r.Totals)
		}
	}
}
