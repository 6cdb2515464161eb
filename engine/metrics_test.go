package engine

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"golang.org/x/time/rate"

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testdocs"
	"github.com/crawlgate/crawlgate/origin"
)

// TestMetricsRegisterAnew registers the metrics like a reload: a new configuration has a new
// registry, and two gateways in one configuration share it.
func TestMetricsRegisterAnew(t *testing.T) {
	t.Parallel()
	before := decisions(t, prometheus.NewRegistry())
	first, second := prometheus.NewRegistry(), prometheus.NewRegistry()
	CountDecision(enforce.Decision{Reason: enforce.ReasonDisallowed}, "GET", nil, false, 0)
	for _, registry := range []*prometheus.Registry{first, first, second} {
		decisions(t, registry)
	}
	CountDecision(enforce.Decision{Reason: enforce.ReasonDisallowed}, "GET", nil, false, 0)
	for _, registry := range []*prometheus.Registry{first, second} {
		if n := decisions(t, registry) - before; n != 2 {
			t.Errorf("the registry has %v decisions, want 2", n)
		}
	}
}

// TestTunnelsAreNotDecisions checks that a CONNECT counts in its own metric and not as a request.
// An intercepted tunnel counts nowhere else, but its requests do.
func TestTunnelsAreNotDecisions(t *testing.T) {
	registry := prometheus.NewRegistry()
	before, tunnelsBefore := decisions(t, registry), tunnels(t, registry)
	CountDecision(enforce.Decision{Allowed: true, Reason: enforce.ReasonIntercepted, PathVisible: true}, "CONNECT", nil, false, 0)
	CountDecision(enforce.Decision{Reason: enforce.ReasonTunnelRestricted, State: fetch.StateRules}, "CONNECT", nil, false, 0)
	if n := decisions(t, registry) - before; n != 0 {
		t.Errorf("%v decisions about requests, want 0", n)
	}
	got := tunnels(t, registry)
	for labels, n := range tunnelsBefore {
		if got[labels] -= n; got[labels] == 0 {
			delete(got, labels)
		}
	}
	if want := map[string]float64{"allow seen intercepted": 1, "deny unseen tunnel_restricted": 1}; !maps.Equal(got, want) {
		t.Errorf("the tunnels are %v, want %v", got, want)
	}
}

// tunnels returns the numbers of CONNECT requests by their labels.
func tunnels(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "crawlgate_tunnel_decisions_total" {
				labels := make([]string, 0, 3)
				for _, l := range m.GetLabel() { // by name: decision, inside, reason
					labels = append(labels, l.GetValue())
				}
				got[strings.Join(labels, " ")] = m.GetCounter().GetValue()
			}
		}
	}
	return got
}

// decisions returns the number of decisions in a registry with the metrics.
func decisions(t *testing.T, registry *prometheus.Registry) (total float64) {
	t.Helper()
	if err := RegisterMetrics(registry); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "crawlgate_decisions_total" {
			for _, metric := range f.GetMetric() {
				total += metric.GetCounter().GetValue()
			}
		}
	}
	return total
}

// descriptions returns the descriptions of all collectors.
func descriptions() (list []*prometheus.Desc) {
	descs := make(chan *prometheus.Desc)
	go func() {
		collectors.Describe(descs)
		close(descs)
	}()
	for d := range descs {
		list = append(list, d)
	}
	return list
}

// TestMetricLabelsAreClosed checks that no collector has a label whose values a client or a site
// can choose.
func TestMetricLabelsAreClosed(t *testing.T) {
	t.Parallel()
	closed := map[string]bool{
		"decision": true, "reason": true, "state": true, "source": true, "outcome": true, "cause": true, "what": true,
		"operation": true, "explicit": true, "kind": true, "result": true, "early": true, "inside": true,
		"log": true, "witness": true, "agent": true, "owner": true, // the operator's names
		"version": true, "caddy": true, "go": true, "certificate": true, // the build; root and intermediate
		"purpose": true, "value": true, // the operator's names, and y, n and unknown
		"status": true, // 401 and 403
	}
	for _, d := range descriptions() {
		for _, label := range labelsOf(d) {
			if !closed[label] {
				t.Errorf("%v has the label %q, whose values may be unbounded", d, label)
			}
		}
	}
}

// variableLabels finds the labels of a description, which only its text has.
var variableLabels = regexp.MustCompile(`variableLabels: \{([^}]*)\}`)

func labelsOf(d *prometheus.Desc) []string {
	m := variableLabels.FindStringSubmatch(d.String())
	if m == nil || m[1] == "" {
		return nil
	}
	return strings.Split(m[1], ",")
}

// TestUTF16IsLogged checks that the log reports a robots.txt in UTF-16. It allows everything,
// because it has no readable line (RFC 9309 section 2.3).
func TestUTF16IsLogged(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	o := &cacheObserver{logger: zap.New(core)}
	for body, want := range map[string]int{"User-agent: *\n": 0, "\xff\xfeU\x00s\x00": 1, "": 0} {
		o.Fetched(fetch.Key{Origin: origin.Origin{}}, fetch.Outcome{Kind: fetch.KindRules, Body: []byte(body)}, 0)
		if got := logs.TakeAll(); len(got) != want || want > 0 && got[0].Level != zap.WarnLevel {
			t.Errorf("%q: %d log lines, want %d", body, len(got), want)
		}
	}
}

// TestTextsDropped checks that texts that were dropped early are counted, with one warning an hour.
func TestTextsDropped(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zap.InfoLevel)
	fetcher := new(currentFetcher)
	fetcher.Store(new(Engine))
	o := &cacheObserver{logger: zap.New(core), fetcher: fetcher, full: rate.Sometimes{Interval: time.Hour}}
	before := dropped(t)
	o.textsDropped(3, false)
	o.textsDropped(0, true)
	if n := logs.Len(); n != 0 {
		t.Errorf("%d log lines about texts that were dropped on time, want 0", n)
	}
	o.textsDropped(2, true)
	o.textsDropped(2, true)
	if got, want := dropped(t), map[string]float64{"false": before["false"] + 3, "true": before["true"] + 4}; !maps.Equal(got, want) {
		t.Errorf("the metric has %v, want %v", got, want)
	}
	if got := logs.TakeAll(); len(got) != 1 || got[0].Level != zap.WarnLevel || got[0].ContextMap()["retain_max"] != int64(4<<30) {
		t.Errorf("the warnings are %+v, want one with retain_max", got)
	}
}

// dropped returns the number of texts that the store has dropped, by whether that was early.
func dropped(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := collectors.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "crawlgate_texts_dropped_total" {
				counted[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			}
		}
	}
	return counted
}

// TestMetricsAreDocumented generates docs/metrics-reference.md from the help texts of the
// collectors.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	shown := regexp.MustCompile(`^Desc\{fqName: ("crawlgate_[a-z_0-9]+"), help: ("(?:[^"\\]|\\.)+"), unit: "", constLabels: \{\}, variableLabels: \{([a-z,]*)\}\}$`)
	named := regexp.MustCompile(`\bcrawlgate_[a-z_]+`)
	rows := make(map[string]string)
	for _, d := range descriptions() { // only their text has the name and the labels
		m := shown.FindStringSubmatch(d.String())
		if m == nil {
			t.Errorf("the description %s has an unknown form", d)
			continue
		}
		name, _ := strconv.Unquote(m[1])
		help, _ := strconv.Unquote(m[2])
		labels := ""
		if m[3] != "" {
			labels = "`" + strings.ReplaceAll(m[3], ",", "`, `") + "`"
		}
		rows[name] = fmt.Sprintf("| `%s` | %s | %s |\n", name, labels, named.ReplaceAllString(strings.TrimSuffix(help, "."), "`$0`"))
	}
	var page strings.Builder
	page.WriteString(`# Every metric

You find the labels and the meaning of each metric of the gateway. This page is generated from the code: it has the help texts that
` + "`/metrics`" + ` shows. [Metrics](metrics.md) says how to scrape them, and what to watch.

A name that ends in ` + "`_total`" + ` is a counter. Durations of single events (` + "`fetch_seconds`, `fetch_queue_seconds`, `pace_wait_seconds`" + `) are histograms.
All others are gauges.

| metric | labels | meaning |
|---|---|---|
`)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		page.WriteString(rows[name])
	}
	page.WriteString(`
## Next

* [Metrics](metrics.md): how to scrape them, and five queries
* [Runbook](runbook.md): what to do when an alert fires
`)
	testdocs.Generated(t, "metrics-reference.md", page.String())
}
