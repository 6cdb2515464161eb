//go:build slow

package operate

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// watched matches the metrics that examples/monitoring/rules.yml uses.
var watched = regexp.MustCompile(`(?m)^(crawlgate_(?:decisions_total|tunnel_decisions_total|agent_decisions_total|early_requests_total|store_up|shared_clock_up|shared_clock_wanted|fleet_up|fleet_expected|` +
	`fleet_gateways|fleet_orders_version|fleet_orders_pending|fleet_actions_pending|dropped_total|handshake_failures_total|fetch_queue_seconds_bucket|pace_wait_seconds_bucket|fetches_total|evidence_up|` +
	`evidence_checkpoint_age_seconds|evidence_unsealed_lines|evidence_kept|evidence_unwitnessed_total|evidence_lost_total|log_up|log_lost_total|texts_dropped_total|ca_not_after_seconds|exception_ends_seconds|budget_left|budget_limit)(?:\{.*\})?|` +
	`caddy_config_last_reload_successful|caddy_admin_http_request_errors_total\{.*path="/load".*\}) (\S+)$`)

// scrape has the metrics of a gateway at one moment, or is nil if the gateway did not answer.
type scrape map[string]float64

// scraped returns a gateway's metrics. Times count from now, because promtool's clock begins at 0.
func scraped(g *rig.Gateway) scrape {
	g.T.Helper()
	a, err := g.TryAdmin(g.T.Context(), "/metrics")
	if err != nil {
		return nil
	}
	found := scrape{"up": 1}
	for _, m := range watched.FindAllStringSubmatch(a.Body, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			g.T.Fatal(err)
		}
		if strings.Contains(m[1], "_ends_seconds") || strings.Contains(m[1], "_not_after_seconds") {
			v -= float64(time.Now().Unix())
		}
		found[m[1]] = v
	}
	return found
}

// phase is a time of constant load: each of its minutes has the same requests.
type phase struct {
	comment string
	minutes int
	alerts  []string  // the alerts at its end and their gateways: "CrawlgateDown gw2"
	after   [2]scrape // of each gateway
}

// recording is the history of two gateways.
type recording struct {
	book   *runbook
	before [2]scrape
	phases []phase
}

// record adds a phase that has ended, and follows the runbook at each gateway with a new alert.
func (r *recording) record(gateways [2]*rig.Gateway, comment string, minutes int, alerts []string) {
	p := phase{comment: comment, minutes: minutes, alerts: alerts}
	for i, g := range gateways {
		p.after[i] = scraped(g)
	}
	for _, alert := range alerts {
		name, gateway, _ := strings.Cut(alert, " ")
		r.book.follow(name, gateways[strings.Index("gw1 gw2", gateway)/4])
	}
	r.phases = append(r.phases, p)
}

// series returns the recording of one gateway in promtool's format.
func (r *recording) series(gateway int) string {
	names := map[string]bool{}
	for _, p := range r.phases {
		for name := range p.after[gateway] {
			names[name] = true
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(names)) {
		labels := "{"
		if strings.Contains(name, "{") {
			labels = ","
		}
		fmt.Fprintf(&b, "      - {series: '%s%sjob=\"crawlgate\",instance=\"gw%d:2019\"}', values: '%s'}\n",
			strings.TrimSuffix(name, "}"), labels, gateway+1, r.values(gateway, name))
	}
	return b.String()
}

// values returns the samples of a metric, one a minute.
func (r *recording) values(gateway int, name string) string {
	var b strings.Builder
	counter := strings.Contains(name, "_total") || strings.Contains(name, "_bucket")
	last := r.before[gateway]
	v := last[name]
	for _, p := range r.phases {
		s := p.after[gateway]
		now, there := s[name]
		_, was := last[name]
		slope := 0.0
		switch {
		case counter:
			if slope = now - last[name]; slope < 0 { // the counter restarted when its log was reloaded
				v, slope = 0, now
			}
			v += slope
		case strings.Contains(name, "_age_seconds") && s["crawlgate_evidence_unsealed_lines{log=\"access\"}"] > 0:
			v, slope = now, 60
		default:
			v = now
		}
		switch {
		case there || name == "up":
			fmt.Fprintf(&b, "%g+%gx%d ", v, slope, p.minutes-1)
			v += slope * float64(p.minutes-1)
		case was:
			fmt.Fprintf(&b, "stale _x%d ", p.minutes-1)
		default:
			fmt.Fprintf(&b, "_x%d ", p.minutes)
		}
		last = s
	}
	return strings.TrimSpace(b.String())
}

// ruleTests returns the text of rules_test.yml.
func (r *recording) ruleTests() string {
	var b strings.Builder
	b.WriteString("# Written by TestRecordedAlerts of integration/operate with -update: the metrics of two gateways. What came in a phase\n" +
		"# comes in each minute of it here.\nrule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n" +
		r.series(0) + r.series(1) + "    promql_expr_test:\n")
	end := -1
	for _, p := range r.phases {
		end += p.minutes
		fmt.Fprintf(&b, "      # %s\n      - expr: count by (alertname, instance) (ALERTS{alertstate=\"firing\"})\n        eval_time: %dm\n        exp_samples:", p.comment, end)
		if len(p.alerts) == 0 {
			b.WriteString(" []")
		}
		for _, alert := range p.alerts {
			name, gateway, _ := strings.Cut(alert, " ")
			fmt.Fprintf(&b, "\n          - {labels: '{alertname=\"%s\",instance=\"%s:2019\"}', value: 1}", name, gateway)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// TestRecordedAlerts takes two gateways through a good time and through failures, and tests the
// alert rules on their metrics with promtool. No alert fires in the good time, and each fires in
// the failures. With -update it writes the recording.
func TestRecordedAlerts(t *testing.T) {
	rig.LoadsMachine(t)
	promtool := rig.Need(t, "promtool")
	c := startChaosFleet(t)
	r := recording{book: newRunbook(t, c)}
	r.before = [2]scrape{scraped(c.first), scraped(c.second)}
	c.good()
	r.record(c.both, "A good day.", 90, nil)
	c.trouble()
	standing := []string{"CrawlgateBudgetNear gw1", "CrawlgateCAEnds gw1", "CrawlgateExceptionEnds gw1", "CrawlgateLogNotKept gw1"}
	r.record(c.both, "Sites fail, or have a long Crawl-delay; a client lacks the CA; it and an exception end soon; its log is not kept for long, and has no witness. Long texts, and a crowd that gives up, at the second. Both refuse a configuration.", 60,
		slices.Concat(standing, []string{
			"CrawlgateEarly gw1", "CrawlgateErrors gw1", "CrawlgateEvidenceUnwitnessed gw1", "CrawlgatePaceWait gw1", "CrawlgateReloadFailed gw1", "CrawlgateUnreachable gw1", "CrawlgateUntrusted gw1",
			"CrawlgateDropped gw2", "CrawlgateErrors gw2", "CrawlgateFetchQueue gw2", "CrawlgateReloadFailed gw2", "CrawlgateTextsDropped gw2",
		}))
	c.second.Kill()
	c.emptyRedis()
	rig.Eventually(t, "the second gateway to be missed", func() bool { return c.first.Metric("crawlgate_fleet_gateways") == 1 })
	standing = append(standing, "CrawlgateDown gw2")
	r.record(c.both, "The second gateway is killed, and Redis emptied.", 30, slices.Concat(standing, []string{"CrawlgateFleetFewer gw1", "CrawlgateFleetReset gw1"}))
	c.outage()
	r.record(c.both, "Then descriptors run out at the first, its evidence cannot be kept, Redis is killed, a stop is given, and its log stalls.", 30,
		slices.Concat(standing, []string{
			"CrawlgateEvidenceDown gw1", "CrawlgateEvidenceOld gw1", "CrawlgateFetchLocal gw1", "CrawlgateFleetDown gw1", "CrawlgateLogLost gw1", "CrawlgateLogStalled gw1",
			"CrawlgateOrdersPending gw1", "CrawlgateSharedClockDown gw1", "CrawlgateStoreDown gw1",
		}))
	r.book.whole()

	dir := t.TempDir()
	if *testdocs.Update {
		dir = testdocs.Path("examples", "monitoring")
	}
	rules, err := os.ReadFile(testdocs.Path("examples", "monitoring", "rules.yml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"rules.yml": string(rules), "rules_test.yml": r.ruleTests()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), promtool, "test", "rules", "rules_test.yml")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}

// silentWitness is an option of a sealed log. Nothing listens at its address; its key is that of
// RFC 8032's first test.
const silentWitness = "witness http://127.0.0.1:9 witness.example+82bca4dd+BNdamAGCsQq31Uv+08lkBzoO4XLz2qYjJa8CGmj3B1Ea"

// chaosFleet is two gateways of a fleet. The first has Redis as its store and a sealed log, the
// second a file as its store and little space.
type chaosFleet struct {
	t             *testing.T
	redis         *redistest.Server
	server        *testorigin.Server
	log           *rig.SealedLog
	first, second *rig.Gateway
	both          [2]*rig.Gateway
	traffic       *traffic
}

func startChaosFleet(t *testing.T) *chaosFleet {
	t.Helper()
	c := &chaosFleet{t: t, redis: redistest.Start(t), server: testorigin.Start(t, testorigin.Config{}), log: rig.NewSealedLog(t)}
	address := c.redis.URL()
	config := c.log.Config("")
	fleet := fmt.Sprintf("fleet redis %s {\nexpect 2\n}", address)
	config.Engine = fmt.Sprintf("gateway gw1.acme.example\n%s\npace {\nrate off\nwait 20s\nshared redis %s\n}\n%s", "store redis "+address, address, fleet)
	config.Egress = "trust_ca " + rig.CAFile(t, c.server)
	config.Stdout = pipeCollector(t).stdout
	config.Admin = rig.FreePort(t)
	c.first = rig.New(t, config)
	c.second = rig.New(t, rig.Config{
		Engine: fmt.Sprintf("gateway gw2.acme.example\nstore file {\nretain_max 16MiB\n}\nfetch {\nparallel 1\n}\n%s\n%s", rig.PaceOff, fleet),
	})
	c.both = [2]*rig.Gateway{c.first, c.second}
	c.traffic = newTraffic(t, c.first, c.server)
	c.good()
	rig.Eventually(t, "the fleet", func() bool {
		return c.first.Metric("crawlgate_fleet_gateways") == 2 && c.second.Metric("crawlgate_fleet_gateways") == 2 && c.first.Metric("crawlgate_shared_clock_up") == 1
	})
	for _, words := range [][]string{{"deny", "host", "one.example"}, {"undeny", "host", "one.example"}, {"deny", "host", "two.example"}} {
		if err := c.robots(words...); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// robots runs a command at the first gateway.
func (c *chaosFleet) robots(words ...string) error {
	c.t.Helper()
	out, err := rig.RunBinary(c.t, slices.Concat([]string{"robots"}, words, []string{"--gateway", c.first.Config.Admin})...)
	if err != nil {
		return fmt.Errorf("%q: %w: %s", words, err, out)
	}
	return nil
}

// emptyRedis empties Redis, waits until the first gateway has written its orders there again, and
// seals its log without a witness.
func (c *chaosFleet) emptyRedis() {
	config := c.first.Config
	config.Global = strings.Replace(config.Global, silentWitness, "", 1)
	if err := c.first.Reload(config); err != nil {
		c.t.Fatal(err)
	}
	before := c.first.Metric("crawlgate_fleet_orders_version")
	c.redis.Say("FLUSHALL")
	rig.Eventually(c.t, "the orders to be in Redis again", func() bool {
		v := c.first.Metric("crawlgate_fleet_orders_version")
		return v > 0 && v < before
	})
}

// good requests permitted and disallowed pages from both gateways.
func (c *chaosFleet) good() {
	for _, g := range c.both {
		c.ordinary(g, 20)
	}
	rig.Eventually(c.t, "the log to be sealed", func() bool { return c.first.Metric("crawlgate_evidence_unsealed_lines") == 0 })
}

func (c *chaosFleet) ordinary(g *rig.Gateway, times int) {
	for range times {
		for _, page := range []string{rig.OpenPage, rig.PrivatePage} {
			if a := rig.Get(c.t, g.Client("Tester/1.0"), c.traffic.good.URL(page)); a.Status != http.StatusOK && a.Status != http.StatusForbidden {
				c.t.Fatalf("%s: %d", page, a.Status)
			}
		}
	}
}

// trouble adds sites and clients that fail, and a configuration in which something ends soon.
func (c *chaosFleet) trouble() {
	config := c.first.Config
	config.Global = c.log.Config(silentWitness).Global
	config.Site = fmt.Sprintf("except shop.example {\nuntil %s\nreason test\n}", time.Now().AddDate(0, 0, 1).Format(time.DateOnly))
	config.Site += "\nagent budgetbot {\nbudget {\nrequests 3/day\n}\n}\nunidentified allow"
	config.Global += "\npki {\nca robots {\nintermediate_lifetime 12h\nrenewal_window_ratio 1\nmaintenance_interval 500ms\n}\n}"
	config.Global = strings.Replace(config.Global, "roll_keep 1000", "roll_keep 1\nroll_interval 24h\nroll_keep_for 8760h", 1)
	if err := c.first.Reload(config); err != nil {
		c.t.Fatal(err)
	}
	for range 3 {
		rig.Get(c.t, c.first.Client("budgetbot/1.0"), c.traffic.good.URL(rig.OpenPage))
	}
	slow := c.server.Site(c.t, testorigin.SiteConfig{})
	slow.SetRobots(testorigin.OK("User-agent: *\nCrawl-delay: 11\n"))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() { _, _ = rig.TryGet(c.t.Context(), c.first.Client("Tester/1.0"), slow.URL("/")) }) // the host's clock has the outcome
	}
	wg.Go(c.fillTexts)
	c.crowd()
	for range 3 {
		c.traffic.once()
	}
	wg.Wait()
	rig.Eventually(c.t, "the new intermediate", func() bool {
		return scraped(c.first)["crawlgate_ca_not_after_seconds{certificate=\"intermediate\"}"] < 86400
	})
	rig.Eventually(c.t, "the log to be sealed, and found not to be kept", func() bool {
		return c.first.Metric("crawlgate_evidence_unsealed_lines")+c.first.Metric("crawlgate_evidence_kept") == 0
	})
	c.refused()
}

// refused gives the first gateway a configuration that cannot be loaded, and the second a Caddyfile
// with an error.
func (c *chaosFleet) refused() {
	config := c.first.Config
	config.Egress += "\ntrust_ca " + filepath.Join(c.t.TempDir(), "nowhere.pem")
	if err := c.first.Reload(config); err == nil {
		c.t.Error("the first gateway accepts a configuration with a missing file")
	}
	curl := exec.CommandContext(c.t.Context(), "curl", "-sS", "--unix-socket", c.second.AdminSocket(), "-H", "Content-Type: text/caddyfile", "--data-binary", "{\nnonsense\n}", "http://localhost/load")
	if out, err := curl.CombinedOutput(); err != nil || !strings.Contains(string(out), "error") {
		c.t.Errorf("%v: %s", err, out)
	}
}

// fillTexts makes the second gateway fetch more and longer texts than it can keep and parse.
func (c *chaosFleet) fillTexts() {
	random := rand.New(rand.NewPCG(1, 2))
	client := c.second.Client("Tester/1.0")
	var wg sync.WaitGroup
	for range 60 {
		text := make([]byte, 370<<10)
		for i := range text {
			text[i] = byte(random.Uint32())
		}
		site := c.server.Site(c.t, testorigin.SiteConfig{})
		site.SetRobots(testorigin.OK(fmt.Sprintf("User-agent: *\n# %s\n", base64.StdEncoding.EncodeToString(text))))
		wg.Go(func() { _, _ = rig.TryGet(c.t.Context(), client, site.URL("/")) }) // some time out
	}
	wg.Wait()
}

// crowd makes more clients of the second gateway wait for one robots.txt than may wait.
func (c *chaosFleet) crowd() {
	site := c.server.Site(c.t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.HangBeforeHead())
	request := "GET " + site.URL("/") + " HTTP/1.1\r\nHost: x\r\nUser-Agent: Tester/1.0\r\n\r\n"
	var crowd []*rig.Wire
	for range 4200 {
		w := c.second.Dial()
		if _, err := io.WriteString(w, request); err != nil {
			c.t.Fatal(err)
		}
		crowd = append(crowd, w)
	}
	rig.Eventually(c.t, "the crowd to be too large", func() bool { return c.second.Metric("crawlgate_dropped_total") > 0 })
	gone := 0
	for some := range slices.Chunk(crowd, 600) { // a busy machine cannot write all lines at once in time
		for _, w := range some {
			w.Close()
		}
		gone += len(some)
		rig.Eventually(c.t, "their lines", func() bool {
			log, err := os.ReadFile(c.second.AccessLog())
			if err != nil {
				c.t.Fatal(err)
			}
			return bytes.Count(log, []byte(`"uri":"`+site.URL("/")+`"`)) >= gone
		})
	}
}

// outage takes the descriptors, the state of the evidence, and Redis from the first gateway.
func (c *chaosFleet) outage() {
	c.ordinary(c.first, 50) // beside these, one request refused for lack of descriptors is no wave of unreachable sites
	w := c.first.Dial()
	defer w.Close()
	ask := func() (rig.Answer, error) {
		page := c.server.Site(c.t, testorigin.SiteConfig{}).URL(rig.OpenPage)
		return w.Ask(http.MethodGet, "GET "+page+" HTTP/1.1\r\nHost: x\r\nUser-Agent: Tester/1.0\r\n\r\n")
	}
	if _, err := ask(); err != nil { // connects
		c.t.Fatal(err)
	}
	c.first.LimitDescriptors(3)
	if _, err := ask(); err != nil {
		c.t.Fatal(err)
	}
	c.first.LimitDescriptors(4096)
	if err := os.Rename(filepath.Join(c.log.State(), "1"), filepath.Join(c.log.State(), "1.away")); err != nil {
		c.t.Fatal(err)
	}
	c.redis.Kill()
	rig.Eventually(c.t, "Redis and the evidence to be missed", func() bool {
		_, _ = ask() // asks the store
		g := c.first
		return g.Metric("crawlgate_fleet_up")+g.Metric("crawlgate_shared_clock_up")+g.Metric("crawlgate_store_up")+g.Metric("crawlgate_evidence_up") == 0
	})
	if c.robots("deny", "agent", "newsbot") == nil {
		c.t.Error("a stop without Redis reports success")
	}
	config := c.first.Config
	config.Global += "\nlog collected {\noutput stdout\ninclude http.log.access\n}"
	if err := c.first.Reload(config); err != nil {
		c.t.Fatal(err)
	}
	stalls(c.t, c.first, c.traffic.good)
}
