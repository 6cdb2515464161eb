//go:build slow

package robots

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// robotsCase is an answer for robots.txt and its meaning for a crawler.
type robotsCase struct {
	name      string
	scheme    string
	behaviour testorigin.Behaviour
	meaning   testorigin.Meaning
	rules     []byte      // for MeansRules
	cause     fetch.Cause // the cause in the log; "" for any that fits the meaning
}

// TestRFC9309_2_3_1_Statuses answers robots.txt with every status of HTTP.
func TestRFC9309_2_3_1_Statuses(t *testing.T) {
	t.Parallel()
	var cases []robotsCase
	for status := 100; status <= 599; status++ {
		b := testorigin.Respond(testorigin.Response{Status: status, Body: []byte(rig.Rules)})
		c := robotsCase{name: fmt.Sprint(status), behaviour: b, rules: b.Rules}
		c.meaning, c.cause = meaningOf(status)
		cases = append(cases, c)
	}
	checkRobotsCases(t, testorigin.Start(t, testorigin.Config{}), cases, "")
}

// meaningOf returns the meaning in docs/status-table.md of an answer without Location.
func meaningOf(status int) (testorigin.Meaning, fetch.Cause) {
	switch {
	case status < 200 && status != http.StatusSwitchingProtocols: // an interim answer without a final one
		return testorigin.MeansUnreachable, fetch.CauseReset
	case status < 200, status == 206, status == 304, status == 407: // the request was not for another protocol, a part, a comparison or a proxy
		return testorigin.MeansUnreachable, fetch.CauseProtocol
	case status < 300:
		return testorigin.MeansRules, ""
	case status < 400:
		return testorigin.MeansAbsent, fetch.CauseRedirects
	case status == 429, status == 430, status >= 500:
		return testorigin.MeansUnreachable, fetch.CauseStatus
	default:
		return testorigin.MeansAbsent, fetch.CauseStatus
	}
}

// TestRFC9309_2_3_1_2_Redirects uses redirects with usable and unusable targets.
func TestRFC9309_2_3_1_2_Redirects(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	other := server.Site(t, testorigin.SiteConfig{Scheme: "https"})
	other.SetRobots(testorigin.OK(rig.Rules))
	other.SetPath("/broken", testorigin.Status(http.StatusBadGateway))
	other.SetPath("/missing", testorigin.Status(http.StatusNotFound))
	to := func(name, location string, meaning testorigin.Meaning, cause fetch.Cause) robotsCase {
		b := testorigin.Redirect(http.StatusMovedPermanently, location)
		return robotsCase{name: name, behaviour: b, meaning: meaning, rules: []byte(rig.Rules), cause: cause}
	}
	cases := []robotsCase{
		to("another host and scheme", other.URL("/robots.txt"), testorigin.MeansRules, ""),
		to("a 404 elsewhere", other.URL("/missing"), testorigin.MeansAbsent, fetch.CauseStatus),
		to("a 502 elsewhere", other.URL("/broken"), testorigin.MeansUnreachable, fetch.CauseStatus),
		to("a loop", "/robots.txt", testorigin.MeansAbsent, fetch.CauseRedirects),
		to("an empty Location", "", testorigin.MeansAbsent, fetch.CauseRedirects),
		to("a file", "file:///etc/passwd", testorigin.MeansAbsent, fetch.CauseRedirects),
		to("a script", "javascript:alert(1)", testorigin.MeansAbsent, fetch.CauseRedirects),
		to("mail", "mailto:bots@example.com", testorigin.MeansAbsent, fetch.CauseRedirects),
		to("ftp", "ftp://127.0.0.1/robots.txt", testorigin.MeansAbsent, fetch.CauseRedirects),
		to("credentials", "http://user:password@127.0.0.1/robots.txt", testorigin.MeansUnreachable, fetch.CauseRedirects),
		to("an address as one number", "http://2130706433/robots.txt", testorigin.MeansUnreachable, fetch.CauseRedirects),
		to("an octal address", "http://0177.0.0.1/robots.txt", testorigin.MeansUnreachable, fetch.CauseRedirects),
		to("a control byte", "http://127.0.0.1/\trobots.txt", testorigin.MeansUnreachable, fetch.CauseRedirects),
		to("no URL", "http://[::1/", testorigin.MeansUnreachable, fetch.CauseRedirects),
		to("a mistyped scheme", "htps://127.0.0.1/robots.txt", testorigin.MeansUnreachable, fetch.CauseRedirects),
		to("no scheme", "www.example.com:443/robots.txt", testorigin.MeansUnreachable, fetch.CauseRedirects),
		to("no host", "http:///robots.txt", testorigin.MeansUnreachable, fetch.CauseRedirects),
		// These gateways must not reach 10.0.0.0/8.
		to("a forbidden address", "http://10.0.0.1/robots.txt", testorigin.MeansUnreachable, fetch.CauseForbiddenAddress),
	}
	for _, status := range []int{301, 302, 303, 307, 308} {
		b := testorigin.Redirect(status, other.URL("/robots.txt"))
		cases = append(cases, robotsCase{name: fmt.Sprint(status), behaviour: b, meaning: testorigin.MeansRules, rules: []byte(rig.Rules)})
	}
	checkRobotsCases(t, server, cases, "")
}

// TestRFC9309_2_3_1_2_FiveRedirects checks the limit: five redirects are followed; six mean that
// there is no robots.txt.
func TestRFC9309_2_3_1_2_FiveRedirects(t *testing.T) {
	t.Parallel()
	server := testorigin.Start(t, testorigin.Config{})
	g := rig.New(t, rig.Config{})
	for hops := 1; hops <= 7; hops++ {
		site := server.Site(t, testorigin.SiteConfig{})
		site.SetRobotsChain(hops, testorigin.OK(rig.Rules))
		want := http.StatusForbidden
		if hops > 5 {
			want = http.StatusOK
		}
		if a := g.MustFetch("Tester/1.0", site.URL(rig.PrivatePage)); a.Status != want {
			t.Errorf("%d redirects: status %d, want %d: %s", hops, a.Status, want, a.Body)
		}
	}
}

// TestRFC9309_2_3_1_4_Failures uses each way in which a fetch can fail, and answers that only look
// like a failure.
func TestRFC9309_2_3_1_4_Failures(t *testing.T) {
	t.Parallel()
	var cases []robotsCase
	for _, scheme := range []string{"http", "https"} {
		for _, b := range testorigin.Catalogue(scheme, rig.Rules) {
			c := robotsCase{name: scheme + " " + b.Name, scheme: scheme, behaviour: b, meaning: b.Meaning, rules: b.Rules}
			c.cause = causes[b.Name]
			switch {
			case b.Name == "status 206", b.Name == "status 304":
				c.meaning, c.cause = testorigin.MeansUnreachable, fetch.CauseProtocol
			case strings.HasSuffix(b.Name, " bomb"): // only the first 500 KiB are read
				c.meaning = testorigin.MeansRules
			}
			cases = append(cases, c)
		}
	}
	checkRobotsCases(t, testorigin.Start(t, testorigin.Config{}), cases, "fetch {\ntimeout 8s\n}")
}

// causes maps the failures of the catalogue, by name, to their causes.
var causes = map[string]fetch.Cause{
	"redirect loop":           fetch.CauseRedirects,
	"refuse connections":      fetch.CauseConnect,
	"reset before the head":   fetch.CauseReset,
	"close before the head":   fetch.CauseReset,
	"hang before the head":    fetch.CauseTimeout,
	"drip-feed":               fetch.CauseTimeout,
	"no last chunk":           fetch.CauseTruncated,
	"broken chunk":            fetch.CauseTruncated,
	"invalid gzip":            fetch.CauseEncoding,
	"invalid br":              fetch.CauseEncoding,
	"unknown coding":          fetch.CauseEncoding,
	"expired certificate":     fetch.CauseTLS,
	"self-signed certificate": fetch.CauseTLS,
}

// TestRFC9309_2_3_1_4_UnresolvableName requests a host under .onion, which resolvers refuse by
// themselves (RFC 7686).
func TestRFC9309_2_3_1_4_UnresolvableName(t *testing.T) {
	t.Parallel()
	g := rig.New(t, rig.Config{})
	a := g.MustFetch("Tester/1.0", "http://crawlgate.onion/")
	if a.Status != http.StatusForbidden || a.Header.Get("Retry-After") == "" {
		t.Errorf("status %d, Retry-After %q: %s", a.Status, a.Header.Get("Retry-After"), a.Body)
	}
	if l := g.Logs(1)[0]; l.Robots.Reason != enforce.ReasonUnreachable || l.Robots.State != "unreachable" {
		t.Errorf("the log line is %+v", l.Robots)
	}
}

// checkRobotsCases starts an origin for each case and crawls all of them through one gateway.
func checkRobotsCases(t *testing.T, server *testorigin.Server, cases []robotsCase, engine string) {
	t.Helper()
	g := rig.New(t, rig.Config{Engine: engine, Egress: "trust_ca " + rig.CAFile(t, server)})
	sites := make([]*testorigin.Site, len(cases))
	turns := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i, c := range cases {
		sites[i] = server.Site(t, testorigin.SiteConfig{Scheme: c.scheme})
		sites[i].SetRobots(c.behaviour)
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			for _, page := range []string{rig.OpenPage, rig.PrivatePage} {
				c.checkAnswer(t, g, sites[i], page)
			}
		})
	}
	wg.Wait()
	g.Stop()
	logged := make(map[string][]enforce.LogRecord)
	for _, l := range g.ReadLogs() {
		logged[l.Request.URI] = append(logged[l.Request.URI], l.Robots)
	}
	for i, c := range cases {
		for _, page := range []string{rig.OpenPage, rig.PrivatePage} {
			records := logged[sites[i].URL(page)]
			if len(records) != 1 {
				t.Errorf("%s: %d log lines for %s, want 1", c.name, len(records), page)
				continue
			}
			c.checkRecord(t, page, records[0])
		}
		for _, e := range sites[i].PageExchanges() {
			if e.Method != "" && !strings.HasPrefix(e.Path, "/hop/") && !c.allows(e.Target) {
				t.Errorf("%s: %s reached the origin", c.name, e.Target)
			}
		}
	}
}

// allows reports whether a crawler may fetch a page by the case alone.
func (c *robotsCase) allows(page string) bool {
	switch c.meaning {
	case testorigin.MeansRules:
		return robotstxt.Parse(c.rules).Match([]string{"Tester"}, page).Allowed
	case testorigin.MeansAbsent:
		return true
	default:
		return false
	}
}

func (c *robotsCase) checkAnswer(t *testing.T, g *rig.Gateway, site *testorigin.Site, page string) {
	t.Helper()
	a, err := g.Fetch("Tester/1.0", site.URL(page))
	switch {
	case err != nil:
		t.Errorf("%s: GET %s: %v", c.name, page, err)
	case c.allows(page) && a.Status != http.StatusOK, !c.allows(page) && a.Status != http.StatusForbidden:
		t.Errorf("%s: %s: status %d, want allowed %t: %.300s", c.name, page, a.Status, c.allows(page), a.Body)
	case c.meaning == testorigin.MeansUnreachable && a.Header.Get("Retry-After") == "":
		t.Errorf("%s: %s: a refusal without a robots.txt has no Retry-After: %v", c.name, page, a.Header)
	}
}

func (c *robotsCase) checkRecord(t *testing.T, page string, r enforce.LogRecord) {
	t.Helper()
	var reason enforce.Reason
	line := 0
	switch c.meaning {
	case testorigin.MeansRules:
		m := robotstxt.Parse(c.rules).Match([]string{"Tester"}, page)
		reason, line = enforce.ReasonNoRule, m.Line
		if !m.Allowed {
			reason = enforce.ReasonDisallowed
		}
	case testorigin.MeansAbsent:
		reason = enforce.ReasonAbsent
	default:
		reason = enforce.ReasonUnreachable
	}
	if r.Reason != reason || r.State != c.meaning.String() || r.Line != line {
		t.Errorf("%s: %s: the log line is %+v, want reason %s, state %s, line %d", c.name, page, r, reason, c.meaning, line)
	}
	if c.meaning == testorigin.MeansRules && r.Cause != "" || c.meaning != testorigin.MeansRules && r.Cause == "" ||
		c.cause != "" && r.Cause != string(c.cause) {
		t.Errorf("%s: %s: the log has the cause %q, want %q", c.name, page, r.Cause, c.cause)
	}
}
