package integration

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// watched are the metrics that examples/monitoring/rules.yml looks at.
var watched = regexp.MustCompile(`(?m)^(crawlgate_(?:decisions_total|store_up|shared_clock_up|shared_clock_wanted|fleet_up|fleet_expected|` +
	`fleet_gateways|dropped_total|handshake_failures_total|fetch_queue_seconds_bucket|pace_wait_seconds_bucket|fetches_total|evidence_up|` +
	`evidence_checkpoint_age_seconds|evidence_unsealed_lines)(?:\{.*\})?) (\S+)$`)

// recorded are the metrics of a gateway at one moment.
func (g *gateway) recorded() map[string]float64 {
	g.t.Helper()
	found := map[string]float64{}
	for _, m := range watched.FindAllStringSubmatch(g.admin("/metrics").body, -1) {
		v, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			g.t.Fatal(err)
		}
		found[m[1]] = v
	}
	return found
}

// recording has metrics before, in the middle of and after a time: a good one up to middle, then one of failures.
type recording struct{ before, middle, after map[string]float64 }

// series writes the recording for promtool. What came in a phase comes in each minute of it. The good one lasts 90 minutes.
func (r *recording) series(failures bool) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(r.after)) {
		middle, known := r.middle[name]
		label := strings.TrimSuffix(name, "}") + `,job="crawlgate",instance="gw1:2019"}`
		if !strings.Contains(name, "{") {
			label = name + `{job="crawlgate",instance="gw1:2019"}`
		}
		good, bad := middle-r.before[name], r.after[name]-middle
		values := fmt.Sprintf("%g+%gx90", middle, good)
		begin := middle + 91*good
		switch {
		case !strings.Contains(name, "_total") && !strings.Contains(name, "_bucket"): // a gauge
			values, begin, bad = fmt.Sprintf("%gx90", middle), r.after[name], 0
		case !known:
			values, begin = "_x90", bad
		}
		if failures {
			values += fmt.Sprintf(" %g+%gx30", begin, bad)
		}
		if known || failures {
			fmt.Fprintf(&b, "      - {series: '%s', values: '%s'}\n", label, values)
		}
	}
	return b.String()
}

// recordedAlerts are those that the failures of TestRecordedAlerts bring.
var recordedAlerts = []string{
	"CrawlgateErrors", "CrawlgateFleetDown", "CrawlgateSharedClockDown", "CrawlgateStoreDown", "CrawlgateUnreachable", "CrawlgateUntrusted",
}

// madeUp are the alerts that no gateway here was brought to, with series for them.
var madeUp = map[string]string{
	"CrawlgateDown":          `up{job="crawlgate"} 1x90 0x30`,
	"CrawlgateFetchLocal":    `crawlgate_fetches_total{cause="local"} _x110 1x10`,
	"CrawlgateDropped":       `crawlgate_dropped_total{what="queue"} 4x110 5x10`,
	"CrawlgateFetchQueue":    `crawlgate_fetch_queue_seconds_bucket{le="5"} 0+10x120; crawlgate_fetch_queue_seconds_bucket{le="20"} 0+20x120; crawlgate_fetch_queue_seconds_bucket{le="+Inf"} 0+20x120`,
	"CrawlgatePaceWait":      `crawlgate_pace_wait_seconds_bucket{le="10"} 0+10x120; crawlgate_pace_wait_seconds_bucket{le="30"} 0+20x120; crawlgate_pace_wait_seconds_bucket{le="+Inf"} 0+20x120`,
	"CrawlgateCAEnds":        `crawlgate_ca_not_after_seconds{certificate="root"} 2000000x120; crawlgate_ca_not_after_seconds{certificate="intermediate"} 600000x120`,
	"CrawlgateExceptionEnds": `crawlgate_exception_ends_seconds 200000x120`,
	"CrawlgateEvidenceDown":  `crawlgate_evidence_up{log="access"} 1x90 0x30`,
	"CrawlgateEvidenceOld":   `crawlgate_evidence_checkpoint_age_seconds{log="access"} 2x90 30+60x30; crawlgate_evidence_unsealed_lines{log="access"} 0x90 8x30`,
	"CrawlgateFleetFewer":    `crawlgate_fleet_gateways 3x90 2x30; crawlgate_fleet_expected 3x120; crawlgate_fleet_up 1x120`,
	"CrawlgateTextsDropped":  `crawlgate_texts_dropped_total{early="true"} _x110 7x10`,
}

// ruleTests writes rules_test.yml.
func (r *recording) ruleTests() string {
	var b strings.Builder
	b.WriteString("# Written by TestRecordedAlerts of integration/ with -update-docs.\nrule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n")
	add := func(comment, series, at string, want ...string) {
		fmt.Fprintf(&b, "  # %s\n  - interval: 1m\n    input_series:\n%s    promql_expr_test:\n"+
			"      - expr: count by (alertname) (ALERTS{alertstate=\"firing\"})\n        eval_time: %s\n        exp_samples:", comment, series, at)
		if len(want) == 0 {
			b.WriteString(" []")
		}
		for _, name := range want {
			fmt.Fprintf(&b, "\n          - {labels: '{alertname=\"%s\"}', value: 1}", name)
		}
		b.WriteString("\n")
	}
	add("A good day, recorded.", r.series(false), "90m")
	add("Recorded: Redis killed, sites that break off or answer 503, a client without the CA.", r.series(true), "104m", recordedAlerts...)
	for _, name := range slices.Sorted(maps.Keys(madeUp)) {
		var series strings.Builder
		for one := range strings.SplitSeq(madeUp[name], "; ") {
			metric, values, _ := strings.Cut(one, " ")
			fmt.Fprintf(&series, "      - {series: '%s', values: '%s'}\n", metric, values)
		}
		add("Made up, not recorded.", series.String(), "119m", name)
	}
	return b.String()
}

// TestRecordedAlerts takes a gateway through a good time and through failures, and holds that its metrics are the series
// on which the alert rules are tested: with -update-docs it writes them.
func TestRecordedAlerts(t *testing.T) {
	t.Parallel()
	redis, server := startRedis(t), testorigin.Start(t, testorigin.Config{})
	address := "redis://127.0.0.1:" + redis.port
	config := newSealedLog(t).config("")
	config.Engine = fmt.Sprintf("gateway gw1.acme.example\n%s\npace {\nrate off\nshared redis %s\n}\nfleet redis %s {\nexpect 1\n}", redis.store(), address, address)
	config.Egress = "trust_ca " + caFile(t, server)
	g := startGateway(t, config)
	f := newTraffic(t, g, server)
	good := func() {
		for range 20 {
			for _, page := range []string{openPage, privatePage} {
				if a := get(t, g.client("Tester/1.0"), f.good.URL(page)); a.status != http.StatusOK && a.status != http.StatusForbidden {
					t.Fatalf("%s: %d", page, a.status)
				}
			}
		}
		eventually(t, "the log to be sealed", func() bool { return g.metric("crawlgate_evidence_unsealed_lines") == 0 })
	}
	good()
	eventually(t, "the fleet", func() bool { return g.metric("crawlgate_fleet_up") == 1 && g.metric("crawlgate_shared_clock_up") == 1 })
	var r recording
	r.before = g.recorded()
	good()
	r.middle = g.recorded()
	redis.stop()
	for range 3 {
		f.once()
	}
	eventually(t, "Redis to be missed", func() bool {
		_, _ = tryGet(t.Context(), g.client("Tester/1.0"), server.Site(t, testorigin.SiteConfig{}).URL(openPage)) // asks the store
		return g.metric("crawlgate_fleet_up")+g.metric("crawlgate_shared_clock_up")+g.metric("crawlgate_store_up") == 0
	})
	eventually(t, "the log to be sealed", func() bool { return g.metric("crawlgate_evidence_unsealed_lines") == 0 })
	r.after = g.recorded()

	file := testdocs.Path("examples", "monitoring", "rules_test.yml")
	if *testdocs.Update {
		if err := os.WriteFile(file, []byte(r.ruleTests()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name := range r.after {
		if metric, _, _ := strings.Cut(name, "{"); !strings.Contains(string(text), metric) {
			t.Errorf("%s is not in rules_test.yml", metric)
		}
	}
}
