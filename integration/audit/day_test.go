//go:build slow

package audit

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// day is a day of a company's traffic in short: many ordinary requests, and some of every other
// kind. All pass one gateway, whose access log Caddy rotates and packs.
type day struct {
	t      *testing.T
	g      *rig.Gateway
	logs   string // folder
	server *testorigin.Server
	script *rand.Rand

	ordinary []*testorigin.Site // with real files
	slow     []*testorigin.Site // with a Crawl-delay
	dripping []*testorigin.Site // whose robots.txt takes long
	special  map[string]*testorigin.Site
	asked    atomic.Int64
	agents   string         // of the second half
	answers  map[string]int // lines about a robots.txt, by the hash of its text
}

// slowDelay is the Crawl-delay of the slow sites.
const slowDelay = 500 * time.Millisecond

// auditRequests returns the number of ordinary requests of a day.
func auditRequests(t *testing.T) int {
	t.Helper()
	s := os.Getenv("CRAWLGATE_AUDIT_REQUESTS")
	if s == "" {
		return 3000
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1000 {
		t.Fatalf("CRAWLGATE_AUDIT_REQUESTS=%q: want a number from 1000", s)
	}
	return n
}

func newDay(t *testing.T) *day {
	t.Helper()
	d := &day{
		t: t, logs: rig.TempDir(t), server: testorigin.Start(t, testorigin.Config{}),
		script: rand.New(rand.NewPCG(6, 3)), special: make(map[string]*testorigin.Site),
	}
	files, err := filepath.Glob(testdocs.Path("robotstxt", "testdata", "wild", "*.txt"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files of the corpus, error %v, want at least 20", len(files), err)
	}
	for _, file := range files[:20] {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s := d.site("http", testorigin.OK(string(text)))
		d.ordinary = append(d.ordinary, s)
	}
	for range 3 {
		text := fmt.Sprintf("User-agent: *\nCrawl-delay: %g\nDisallow: /private\n", slowDelay.Seconds())
		d.slow = append(d.slow, d.site("http", testorigin.OK(text)))
	}
	for _, name := range []string{"report", "off", "except", "deny", "changing", "killed", "hostile"} {
		d.special[name] = d.site("http", testorigin.OK(rig.Rules))
	}
	d.special["choosy"] = d.site("http", testorigin.OK("User-agent: *\nContent-Usage: train-ai=n\nAllow: /\n"))
	d.special["liberal"] = d.site("http", testorigin.OK("User-agent: *\nDisallow:\n"))
	d.special["absent"] = d.site("http", testorigin.Status(http.StatusNotFound))
	d.special["forbidden"] = d.site("http", testorigin.Status(http.StatusForbidden))
	d.special["gone"] = d.site("http", testorigin.Status(http.StatusServiceUnavailable))
	d.special["slower"] = d.site("http", testorigin.OK("User-agent: *\nCrawl-delay: 4\n"))
	d.special["slowest"] = d.site("http", testorigin.OK("User-agent: *\nCrawl-delay: 60\n"))
	d.special["closed"] = d.site("http", testorigin.Refuse())
	for _, name := range []string{"secure", "tunnel", "shut"} {
		d.special[name] = d.site("https", testorigin.OK(rig.TunnelRules))
	}
	d.special["self-signed"] = d.site("https", testorigin.BadCertificate(testorigin.CertificateSelfSigned, rig.Rules))
	for range 80 { // 16 fetches begin in a second, and each has 4 s
		d.dripping = append(d.dripping, d.site("http", testorigin.Drip(rig.Rules+strings.Repeat("# and so on\n", 100), 100*time.Millisecond)))
	}
	d.special["alert"] = d.site("https", testorigin.HandshakeAlert())
	d.special["plain"] = d.site("https", testorigin.HandshakePlain())
	return d
}

func (d *day) site(scheme string, robots testorigin.Behaviour) *testorigin.Site {
	s := d.server.Site(d.t, testorigin.SiteConfig{Scheme: scheme})
	s.SetRobots(robots)
	s.SetPages(testorigin.OK("a page\n"))
	return s
}

func (d *day) host(name string) string { return d.special[name].Origin().Host }

// config returns the gateway's configuration, with agents for the second half of the day.
func (d *day) config(agents string) rig.Config {
	return rig.Config{
		Global: fmt.Sprintf("log day {\noutput file %s {\nroll_size 1MiB\nroll_keep 1000\n}\nformat json\ninclude http.log.access\n}",
			filepath.Join(d.logs, "access.log")),
		Engine: `fetch {
			timeout 4s
			parallel 4
			retry 1s 2s
			unreachable_for 4s
			forbidden disallow
		}
		pace {
			rate off
			concurrency 8
			queue 12
			wait 1s
			crawl_delay 0s 5s refuse
		}`,
		Around: "request_body {\nmax_size 4KiB\n}",
		Egress: "trust_ca " + rig.CAFile(d.t, d.server) + "\nresponse_header_timeout 4s",
		Site: fmt.Sprintf("mode report %s\nmode off %s\nexcept %s *.invalid 10.0.0.1 127.0.0.1 {\nreason \"ticket 7\"\n}\ndeny %s\nconnect tunnel %s\nconnect deny %s\nconnect intercept\n%s",
			d.host("report"), d.host("off"),
			strings.Join([]string{d.host("except"), d.host("closed"), d.host("self-signed"), d.host("alert"), d.host("plain")}, " "),
			d.host("deny"), d.host("tunnel"), d.host("shut"), agents),
	}
}

// get requests a page and ignores the answer, which the log records.
func (d *day) get(c *http.Client, rawURL string) int {
	a, err := rig.TryGet(d.t.Context(), c, rawURL)
	d.asked.Add(1)
	if err != nil {
		return 0
	}
	return a.Status
}

// many calls ask n times, from several goroutines.
func (d *day) many(n int, ask func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { ask(i) })
	}
	group.Wait()
}

// crawlOrdinary sends n requests to the ordinary sites, for paths that their rules match and for
// others.
func (d *day) crawlOrdinary(n int) {
	const workers = 6 // fewer than the requests that a host may have at once
	paths := make([][]string, len(d.ordinary))
	for i, s := range d.ordinary {
		text := rig.Get(d.t, d.g.Client("Reader/1.0"), s.URL("/robots.txt")).Body
		d.asked.Add(1)
		paths[i] = append(pathsIn(text), "/", "/page", "/a/b?c=d&e=%2F", "/~user/", "/%7Euser/x.html")
	}
	plan := make([]string, n)
	for i := range plan {
		s := d.script.IntN(len(d.ordinary))
		plan[i] = d.ordinary[s].URL(paths[s][d.script.IntN(len(paths[s]))])
	}
	clients := make([]*http.Client, 0, workers)
	for i := range workers {
		clients = append(clients, d.g.Client([]string{"AcmeBot/1.0", "Googlebot/2.1", "bingbot/2.0"}[i%3]))
	}
	var next atomic.Int64
	d.many(workers, func(w int) {
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			d.get(clients[w], plan[i])
		}
	})
}

// pathsIn returns targets made from the rules of a file.
func pathsIn(text string) (paths []string) {
	for line := range strings.Lines(text) {
		_, rule, ok := strings.Cut(strings.TrimSpace(line), ":")
		rule = strings.NewReplacer("*", "x", "$", "", "\\", "").Replace(strings.TrimSpace(rule))
		if ok && strings.HasPrefix(rule, "/") && len(rule) < 200 && !strings.ContainsAny(rule, " #%\"<>^`{|}\t") && len(paths) < 40 {
			paths = append(paths, rule, rule+"x")
		}
	}
	return paths
}

// crawlSlow requests each slow site several times in a row, from two agents in turn. Each request
// but the first is held.
func (d *day) crawlSlow(each int) {
	one, other := d.g.Client("AcmeBot/1.0"), d.g.Client("OtherBot/1.0")
	d.many(len(d.slow), func(i int) {
		for n := range each {
			d.get([]*http.Client{one, other}[n%2], d.slow[i].URL(fmt.Sprintf("/page/%d", n)))
		}
	})
}

// bySite sends the requests whose decision depends on the state of a site or on the operator.
func (d *day) bySite(c *http.Client) {
	for _, name := range []string{"report", "off", "except", "deny", "changing", "liberal", "absent", "forbidden", "gone", "slowest", "closed"} {
		d.get(c, d.special[name].URL(rig.PrivatePage))
		d.get(c, d.special[name].URL(rig.OpenPage))
		d.get(c, d.special[name].URL("/robots.txt"))
	}
	d.special["absent"].SetPath("/sold", testorigin.Status(http.StatusPaymentRequired))
	d.get(c, d.special["absent"].URL("/sold"))
	d.special["changing"].SetRobots(testorigin.OK("User-agent: *\nDisallow: /open\n"))
	d.robots("refresh", d.special["changing"].Origin().String())
	d.get(c, d.special["changing"].URL(rig.PrivatePage))
	d.get(c, d.special["changing"].URL(rig.OpenPage))
	rig.Eventually(d.t, "an unreachable site counts as absent", func() bool {
		return d.get(c, d.special["gone"].URL(rig.OpenPage)) == http.StatusOK
	})
}

// odd sends requests that cannot be answered as usual.
func (d *day) odd() {
	at := func(name string) string { return d.special[name].Origin().Authority() }
	d.special["except"].SetPath("/upgrade", testorigin.Raw("another protocol",
		[]byte("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")))
	for _, raw := range []string{
		"GET http://user:password@127.0.0.1/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
		"GET http://10.0.0.1/ HTTP/1.1\r\nHost: 10.0.0.1\r\nUser-Agent: AcmeBot/1\r\n\r\n",
		"GET http://" + d.host("except") + ":22/ HTTP/1.1\r\nHost: x\r\nUser-Agent: AcmeBot/1\r\n\r\n",
		"GET http://" + d.g.Addr + "/ HTTP/1.1\r\nHost: x\r\nUser-Agent: AcmeBot/1\r\n\r\n",
		"GET http://no-such-name.invalid/ HTTP/1.1\r\nHost: x\r\nUser-Agent: AcmeBot/1\r\n\r\n",
		"GET http://" + at("except") + "/upgrade HTTP/1.1\r\nHost: x\r\nUser-Agent: AcmeBot/1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		"GET " + d.special["self-signed"].URL("/") + " HTTP/1.1\r\nHost: x\r\nUser-Agent: AcmeBot/1\r\n\r\n",
		"GET " + d.special["alert"].URL("/") + " HTTP/1.1\r\nHost: x\r\nUser-Agent: AcmeBot/1\r\n\r\n",
		"GET " + d.special["plain"].URL("/") + " HTTP/1.1\r\nHost: x\r\nUser-Agent: AcmeBot/1\r\n\r\n",
		"POST http://" + at("except") + "/ HTTP/1.1\r\nHost: x\r\nUser-Agent: AcmeBot/1\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
		"POST http://" + at("except") + "/ HTTP/1.1\r\nHost: x\r\nUser-Agent: AcmeBot/1\r\nTransfer-Encoding: chunked\r\n\r\n2000\r\n" +
			strings.Repeat("x", 0x2000) + "\r\n0\r\n\r\n",
		"GET http://" + at("absent") + "/ HTTP/1.1\r\nHost: x\r\n\r\n", // no User-Agent
	} {
		_, _ = d.g.Dial().Ask(strings.Fields(raw)[0], raw) // whatever it says
		d.asked.Add(1)
	}
}

// broken requests pages of a site that breaks off its answers in all ways.
func (d *day) broken(c *http.Client) {
	site := d.special["hostile"]
	behaviours := []testorigin.Behaviour{
		testorigin.ResetAtOnce(), testorigin.NotHTTP(), testorigin.EndlessHead(), testorigin.ShortBody("half", 2),
		testorigin.BrokenChunk("chunk"), testorigin.HangBeforeHead(),
	}
	for i, b := range behaviours {
		path := fmt.Sprintf("/broken/%d", i)
		site.SetPath(path, b)
		d.get(c, site.URL(path))
	}
	ctx, leave := context.WithTimeout(d.t.Context(), 300*time.Millisecond)
	defer leave()
	_, _ = rig.TryGet(ctx, c, site.URL("/broken/5")) // the client gives up
	d.asked.Add(1)
}

// crowded sends more requests than a host may have at once.
func (d *day) crowded(c *http.Client) {
	hang := fmt.Sprintf("/broken/%d", 5)
	d.many(40, func(int) { d.get(c, d.special["hostile"].URL(hang)) }) // 8 are sent, 12 may wait
	d.many(3, func(i int) { d.get(c, d.special["slower"].URL(fmt.Sprintf("/%d", i))) })
	d.many(12, func(i int) { d.get(c, d.slow[0].URL(fmt.Sprintf("/crowd/%d", i))) })
	site := d.special["hostile"]
	site.SetPath("/busy", testorigin.Status(http.StatusTooManyRequests))
	d.get(c, site.URL("/busy"))
	d.get(c, site.URL("/after"))
}

// inTunnels sends requests through CONNECT.
func (d *day) inTunnels() {
	t := d.t
	// The CONNECT is accepted, because plain HTTP may follow, and the tunnel is refused when TLS
	// begins.
	shut := d.g.Dial()
	_ = shut.Connect(t, d.special["shut"].Origin().Authority(), "AcmeBot/1.0").Body.Close()
	_, _ = shut.Write([]byte(rig.ClientHello(t, "example.com")))
	_ = shut.Close()
	d.asked.Add(1)
	for _, tt := range []struct{ site, agent string }{{"secure", "AcmeBot/1.0"}, {"secure", "Free/1.0"}, {"tunnel", "Free/1.0"}, {"tunnel", "AcmeBot/1.0"}} {
		w := d.g.Dial()
		authority := d.special[tt.site].Origin().Authority()
		resp := w.Connect(t, authority, tt.agent)
		d.asked.Add(1)
		if resp.StatusCode != http.StatusOK {
			continue
		}
		inner, err := w.Over(t, &tls.Config{RootCAs: d.server.CAPool(), ServerName: d.host(tt.site), InsecureSkipVerify: true})
		if err != nil {
			t.Errorf("TLS in a tunnel to %s: %v", tt.site, err)
			continue
		}
		for _, host := range []string{authority, "other.example"} {
			_, _ = inner.Ask("GET", "GET "+rig.PrivatePage+" HTTP/1.1\r\nHost: "+host+"\r\nUser-Agent: "+tt.agent+"\r\n\r\n")
			if tt.site == "secure" {
				d.asked.Add(1)
			}
		}
		_ = w.Close()
	}
}

// byAgent sends requests that the gateway refuses for their agent.
func (d *day) byAgent() {
	free := d.special["absent"].URL("/x")
	authorization := func(password string) string {
		return "Proxy-Authorization: Basic " + base64.StdEncoding.EncodeToString([]byte("cred:"+password)) + "\r\n"
	}
	for _, fields := range []string{
		"User-Agent: AlphaBot/1\r\n", "User-Agent: AlphaBot/1 BetaBot/1\r\n", "User-Agent: Nobody/1\r\n", "User-Agent: CredBot/1\r\n",
		"User-Agent: CredBot/1\r\n" + authorization("right"), "User-Agent: CredBot/1\r\n" + authorization("wrong"),
		"User-Agent: AlphaBot/1\r\n" + authorization("right"), "User-Agent: FarBot/1\r\n", "User-Agent: Trainer/1\r\n",
	} {
		for _, url := range []string{free, d.special["report"].URL(rig.PrivatePage), d.special["choosy"].URL("/"), d.special["gone"].URL("/x")} {
			_, _ = d.g.Dial().Ask("GET", "GET "+url+" HTTP/1.1\r\nHost: x\r\n"+fields+"\r\n")
			d.asked.Add(1)
		}
	}
	// A blind tunnel does not show which of two agents with one account it belongs to.
	resp := d.g.Dial().Handshake(d.t, "CONNECT "+d.special["tunnel"].Origin().Authority()+" HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic "+
		base64.StdEncoding.EncodeToString([]byte("team:right"))+"\r\n\r\n")
	_ = resp.Body.Close()
	d.asked.Add(1)
	w := d.g.Dial()
	if resp := w.Connect(d.t, d.special["secure"].Origin().Authority(), ""); resp.StatusCode == http.StatusOK {
		if inner, err := w.Over(d.t, &tls.Config{InsecureSkipVerify: true}); err == nil {
			_, _ = inner.Ask("GET", "GET / HTTP/1.1\r\nHost: "+d.special["secure"].Origin().Authority()+"\r\nUser-Agent: Nobody/1\r\n\r\n")
			d.asked.Add(1)
		}
	}
	d.asked.Add(1)
}

// robots runs a command for the running gateway.
func (d *day) robots(args ...string) {
	d.t.Helper()
	if out, err := d.g.Robots(args[0], args[1:]...); err != nil {
		d.t.Fatalf("robots %q: %v: %s", args, err, out)
	}
}

// stopped sends requests that a stop covers.
func (d *day) stopped(c *http.Client) {
	d.robots("deny", "host", d.host("killed"), "--reason", "a complaint")
	d.get(c, d.special["killed"].URL(rig.OpenPage))
	d.robots("undeny", "host", d.host("killed"))
	d.get(c, d.special["killed"].URL(rig.OpenPage))
}

// run plays the whole day and stops the gateway at its end.
func (d *day) run() {
	t := d.t
	d.g = rig.New(t, d.config(""))
	c := d.g.Client("AcmeBot/1.0")
	var group sync.WaitGroup
	group.Go(func() { d.crawlOrdinary(auditRequests(t)) })
	group.Go(func() { d.crawlSlow(16) })
	group.Go(func() {
		d.bySite(c)
		d.odd()
		d.inTunnels()
		d.stopped(c)
		d.broken(c)
		// More fetches at once than may begin in time.
		d.many(len(d.dripping), func(i int) { d.get(c, d.dripping[i].URL(rig.OpenPage)) })
	})
	group.Wait()
	d.crowded(c)
	hash, err := exec.CommandContext(t.Context(), rig.Binary, "hash-password", "--plaintext", "right", "--algorithm", "bcrypt", "--bcrypt-cost", "10").Output()
	if err != nil {
		t.Fatal(err)
	}
	d.agents = fmt.Sprintf("agent AlphaBot {\nowner \"team <alpha>\"\nbudget {\nrequests 900000/day\n}\n}\nagent BetaBot\nagent Trainer {\nowner trainers\npurpose train-ai\npreferences deny\n}\nagent CredBot {\ncredential cred %[1]s\n}\nagent FarBot {\nuser_agent FarBot\nfrom 192.0.2.0/24\n}\n"+
		"agent TeamA {\ncredential team %[1]s\nuser_agent TeamA\n}\nagent TeamB {\ncredential team %[1]s\nuser_agent TeamB\n}",
		strings.TrimSpace(string(hash)))
	if err := d.g.Reload(d.config(d.agents)); err != nil {
		t.Fatal(err)
	}
	d.byAgent()
}

// dayReasons are the reasons that every day must have.
var dayReasons = []enforce.Reason{
	enforce.ReasonAllowedByRule, enforce.ReasonNoRule, enforce.ReasonRobotsTxt, enforce.ReasonAbsent, enforce.ReasonUnreachableExpired,
	enforce.ReasonUnrestricted, enforce.ReasonIntercepted, enforce.ReasonException, enforce.ReasonRobotsOff,
	enforce.ReasonDisallowed, enforce.ReasonUnreachable, enforce.ReasonPending, enforce.ReasonRobotsForbidden, enforce.ReasonTunnelRestricted,
	enforce.ReasonConnectDenied, enforce.ReasonKillSwitch, enforce.ReasonOperatorDeny, enforce.ReasonUnidentified,
	enforce.ReasonCredentialsMissing, enforce.ReasonCredentialsWrong, enforce.ReasonAgentMismatch, enforce.ReasonUserAgentConflict,
	enforce.ReasonAmbiguousAgent, enforce.ReasonForbiddenAddress, enforce.ReasonForbiddenPort, enforce.ReasonOwnListener,
	enforce.ReasonBadTarget, enforce.ReasonMisdirected, enforce.ReasonRateLimited, enforce.ReasonConcurrency, enforce.ReasonQueueFull,
	enforce.ReasonBackoff, enforce.ReasonCrawlDelay,
	enforce.ReasonCanceled, "dns", "connection_refused", "tls_certificate", "tls_alert", "tls",
	"timeout", "reset", "incomplete", "transfer_coding", "header_size",
	"protocol", "upgrade", "client_body",
	"client_too_large",
}
