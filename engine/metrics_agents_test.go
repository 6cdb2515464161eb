package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/crawlgate/crawlgate/enforce"
)

// agentSite returns a site with agents, each "name/owner".
func agentSite(t *testing.T, names ...string) *SitePolicy {
	t.Helper()
	var c enforce.IdentifierConfig
	for _, both := range names {
		name, owner, _ := strings.Cut(both, "/")
		c.Agents = append(c.Agents, enforce.Agent{Name: name, Owner: owner})
	}
	id, _, err := enforce.NewIdentifier(c)
	if err != nil {
		t.Fatal(err)
	}
	return &SitePolicy{Identifier: id}
}

// alone is a collector of the metrics by agent only.
type alone struct{ *agentMetrics }

func (alone) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{agentDecisionsDesc, agentEarlyDesc, agentHeldDesc, agentReceivedDesc, agentSignedDesc, agentRejectedDesc} {
		ch <- d
	}
}

func (m alone) Collect(ch chan<- prometheus.Metric) { m.collect(ch) }

// collected returns the counters of m by "name agent/owner decision reason".
func collected(t *testing.T, m *agentMetrics) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(alone{m})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, f := range families {
		for _, metric := range f.GetMetric() {
			label := map[string]string{}
			for _, l := range metric.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			words := []string{strings.TrimPrefix(f.GetName(), "crawlgate_"), label["agent"] + "/" + label["owner"], label["decision"], label["reason"] + label["result"] + label["status"]}
			found[strings.Join(strings.Fields(strings.Join(words, " ")), " ")] = metric.GetCounter().GetValue()
		}
	}
	return found
}

// TestAgentMetrics checks that each agent is counted separately. The same name with another owner
// is another agent. A sender without a block counts as "other", even beside an agent of that name.
func TestAgentMetrics(t *testing.T) {
	t.Parallel()
	m := new(agentMetrics)
	m.follow([]*SitePolicy{agentSite(t, "acmebot/search", "other/other"), agentSite(t, "acmebot/ads")})
	refused, sent := enforce.Decision{Reason: enforce.ReasonDisallowed}, enforce.Decision{Allowed: true, Reason: enforce.ReasonNoRule, Wait: 1500 * time.Millisecond}
	m.count(&refused, &enforce.Agent{Name: "acmebot", Owner: "search"}, true, 0)
	m.count(&sent, &enforce.Agent{Name: "acmebot", Owner: "search"}, false, 10)
	m.count(&sent, &enforce.Agent{Name: "acmebot", Owner: "search"}, false, 20)
	m.count(&sent, &enforce.Agent{Name: "acmebot", Owner: "ads"}, false, 3)
	for _, s := range []enforce.Signature{{Key: "k"}, {Key: "k"}, {Unsigned: enforce.UnsignedNoKey}} {
		m.countSignature(&enforce.Agent{Name: "acmebot", Owner: "ads"}, s, 403)
	}
	m.count(&refused, nil, false, 0)
	m.count(&refused, &enforce.Agent{Name: "other", Owner: "other"}, true, 0)
	want := map[string]float64{
		"agent_decisions_total acmebot/search deny disallowed": 1, "agent_decisions_total acmebot/search allow no_rule": 2,
		"early_requests_total acmebot/search": 1, "agent_held_seconds_total acmebot/search": 3, "agent_received_bytes_total acmebot/search": 30,
		"agent_decisions_total acmebot/ads allow no_rule": 1,
		"agent_signatures_total acmebot/ads signed":       2, "agent_signatures_total acmebot/ads no_key": 1, "agent_signed_rejected_total acmebot/ads 403": 2,
		"early_requests_total acmebot/ads": 0, "agent_held_seconds_total acmebot/ads": 1.5, "agent_received_bytes_total acmebot/ads": 3,
		"agent_decisions_total other/other deny disallowed": 2,
		"early_requests_total other/other":                  1, "agent_held_seconds_total other/other": 0, "agent_received_bytes_total other/other": 0,
	}
	if got := collected(t, m); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestAgentMetricsOverReloads checks that after reloads with new names the metrics cover only the
// current configuration. Agents that stay keep their counts, and requests of a removed agent count
// as "other".
func TestAgentMetricsOverReloads(t *testing.T) {
	t.Parallel()
	m := new(agentMetrics)
	d := enforce.Decision{Reason: enforce.ReasonDisallowed}
	const reloads = 2000
	for i := range reloads {
		name, team := fmt.Sprintf("bot-%d", i), fmt.Sprintf("team %d", i)
		m.follow([]*SitePolicy{agentSite(t, "steady/search", name+"/"+team)})
		m.count(&d, &enforce.Agent{Name: "steady", Owner: "search"}, false, 0)
		m.count(&d, &enforce.Agent{Name: name, Owner: team}, false, 0)
		m.count(&d, &enforce.Agent{Name: name, Owner: "before"}, false, 0) // a request of the configuration before
		if got := collected(t, m)["agent_decisions_total "+name+"/"+team+" deny disallowed"]; got != 1 {
			t.Fatalf("%s has %v requests, want 1", name, got)
		}
	}
	got := collected(t, m)
	if len(got) != 3*4 || got["agent_decisions_total steady/search deny disallowed"] != reloads || got["agent_decisions_total other/other deny disallowed"] != reloads {
		t.Errorf("%d counters, want 12: %v", len(got), slices.Sorted(maps.Keys(got)))
	}
}

// BenchmarkCountDecision measures the metrics of a request.
func BenchmarkCountDecision(b *testing.B) {
	id, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{{Name: "acmebot", Owner: "Search team"}}})
	if err != nil {
		b.Fatal(err)
	}
	byAgent.follow([]*SitePolicy{{Identifier: id}})
	sender, _ := id.Named("acmebot")
	d := enforce.Decision{Allowed: true, Reason: enforce.ReasonNoRule}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			CountDecision(d, "GET", sender.Config, false, 1000)
		}
	})
	b.Run("together", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				CountDecision(d, "GET", sender.Config, false, 1000)
			}
		})
	})
}
