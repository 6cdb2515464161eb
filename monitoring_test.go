package crawlgate

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/internal/testdocs"
)

func monitoring(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("examples", "monitoring", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var (
	alertName   = regexp.MustCompile(`(?m)^ +- alert: (\w+)$`)
	testedAlert = regexp.MustCompile(`labels: '\{alertname="(\w+)",instance="gw\d:2019"\}'`)
	promql      = regexp.MustCompile("(?s)```promql\n.*?```")
	metricName  = regexp.MustCompile(`\bcrawlgate_[a-z_]+`)
)

// alerts returns the names of the rules.
func alerts(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	for _, m := range alertName.FindAllStringSubmatch(monitoring(t, "rules.yml"), -1) {
		names[m[1]] = true
	}
	if len(names) < 15 {
		t.Fatalf("found %d alerts, want at least 15", len(names))
	}
	return names
}

// TestRunbook checks that each alert has a section of the runbook, which its runbook_url names, and
// each section an alert.
func TestRunbook(t *testing.T) {
	inDocs := map[string]bool{}
	sections, pages := testdocs.Runbook(t)
	for name := range sections {
		inDocs[name] = true
	}
	rules := monitoring(t, "rules.yml")
	testdocs.Same(t, "alert", alerts(t), inDocs)
	for _, rule := range strings.Split(rules, "- alert: ")[1:] {
		name, _, _ := strings.Cut(rule, "\n")
		for _, want := range []string{
			"severity: ", "summary: ", "description: ", "/docs/" + pages[name] + "#" + strings.ToLower(name) + "\n",
		} {
			if !strings.Contains(rule, want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
}

// TestRunbookSections checks that each section first says what the alert means, and then how to
// inspect it and what to do.
func TestRunbookSections(t *testing.T) {
	form := regexp.MustCompile(`(?s)^\n\*\*Means\*\* \((critical|warning|info)\): (\p{Lu}[^*]*[.])\n\n\*\*See\*\*: .*\x60\x60\x60sh\n.*\n\n\*\*Do\*\*: .*\n$`)
	leftOver := regexp.MustCompile(`\bN\b|\{\{`)
	sections, _ := testdocs.Runbook(t)
	for name, section := range sections {
		m := form.FindStringSubmatch(section + "\n")
		if m == nil || leftOver.MatchString(m[2]) {
			t.Errorf("the section of %s does not have the required form", name)
			continue
		}
		_, rule, _ := strings.Cut(monitoring(t, "rules.yml"), "- alert: "+name+"\n")
		if rule, _, _ = strings.Cut(rule, "- alert: "); !strings.Contains(rule, "severity: "+m[1]+"\n") {
			t.Errorf("the rule %s does not have the severity %s of the runbook", name, m[1])
		}
	}
}

// TestMonitoredMetrics checks that the metrics in the rules, the dashboard and the expressions of
// the docs exist.
func TestMonitoredMetrics(t *testing.T) {
	known := testdocs.Named(testdocs.Text(t, "metrics-reference.md"))
	texts := map[string]string{"rules.yml": monitoring(t, "rules.yml"), "dashboard.json": monitoring(t, "dashboard.json")}
	for _, page := range append([]string{"metrics.md"}, testdocs.RunbookPages...) {
		texts[page] = strings.Join(promql.FindAllString(testdocs.Text(t, page), -1), "")
	}
	for file, text := range texts {
		if text == "" {
			t.Errorf("%s has no expression", file)
		}
		for _, name := range metricName.FindAllString(text, -1) {
			if !known[strings.TrimSuffix(name, "_bucket")] {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
}

// TestAlerts tests the rules with promtool: each alert must fire in the recording, and none on its
// good day.
func TestAlerts(t *testing.T) {
	folder := filepath.Join("examples", "monitoring")
	promtool(t, folder, "check", "config", "prometheus.yml")
	promtool(t, folder, "test", "rules", "rules_test.yml")
	tested := map[string]bool{}
	for _, m := range testedAlert.FindAllStringSubmatch(monitoring(t, "rules_test.yml"), -1) {
		tested[m[1]] = true
	}
	for name := range alerts(t) {
		if !tested[name] {
			t.Errorf("no test expects %s to fire", name)
		}
	}
}

// promtool runs a promtool command in a folder.
func promtool(t *testing.T, folder string, args ...string) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
			t.Fatal(err)
		}
		t.Skip("promtool is not installed")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = folder
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", args, err, out)
	}
}

// tryRules runs the given tests of the rules with promtool.
func tryRules(t *testing.T, tests string) {
	t.Helper()
	folder := t.TempDir()
	for name, text := range map[string]string{"rules.yml": monitoring(t, "rules.yml"), "test.yml": "rule_files: [rules.yml]\nevaluation_interval: 1m\ntests:\n" + tests} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	promtool(t, folder, "test", "rules", "test.yml")
}

// TestEarlyInAQuietHour checks that a crawler that sends a request every five minutes, half of them
// too early, raises no alert, and that one that sends fifty times as many does.
func TestEarlyInAQuietHour(t *testing.T) {
	tryRules(t, `  - interval: 5m
    input_series:
      - {series: 'crawlgate_agent_decisions_total{agent="quiet",owner="dora",decision="deny",reason="backoff",instance="gw1:2019"}', values: '0+1x24'}
      - {series: 'crawlgate_early_requests_total{agent="quiet",owner="dora",instance="gw1:2019"}', values: '0 0 1 1 2 2 3 3 4 4 5 5 6 6 7 7 8 8 9 9 10 10 11 11 12'}
      - {series: 'crawlgate_agent_decisions_total{agent="busy",owner="dora",decision="deny",reason="backoff",instance="gw1:2019"}', values: '0+50x24'}
      - {series: 'crawlgate_early_requests_total{agent="busy",owner="dora",instance="gw1:2019"}', values: '0+25x24'}
    promql_expr_test:
      - expr: count by (agent) (ALERTS{alertname="CrawlgateEarly",alertstate="firing"})
        eval_time: 1h
        exp_samples:
          - {labels: '{agent="busy"}', value: 1}
`)
}

// TestFirstRefusedReload checks that the first file that /load cannot adapt raises an alert,
// although its counter begins with it, and that a counter that does not change raises none.
func TestFirstRefusedReload(t *testing.T) {
	tryRules(t, `  - interval: 30s
    input_series:
      - {series: 'caddy_admin_http_request_errors_total{handler="load",method="POST",path="/load",job="crawlgate",instance="gw1:2019"}', values: '_x40 1x40'}
      - {series: 'caddy_admin_http_request_errors_total{handler="load",method="POST",path="/load",job="crawlgate",instance="gw2:2019"}', values: '2x80'}
    promql_expr_test:
      - expr: count by (instance) (ALERTS{alertname="CrawlgateReloadFailed",alertstate="firing"})
        eval_time: 24m
        exp_samples:
          - {labels: '{instance="gw1:2019"}', value: 1}
      - expr: count by (instance) (ALERTS{alertname="CrawlgateReloadFailed",alertstate="firing"})
        eval_time: 27m
        exp_samples: []
`)
}

// TestDashboardForm checks that panels have unique ids and do not overlap, and that the data source
// is a variable.
func TestDashboardForm(t *testing.T) {
	type source struct{ Type, UID string }
	var d struct {
		SchemaVersion int
		Panels        []struct {
			ID          int
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Datasource  source
			Targets     []struct {
				RefID, Expr string
				Datasource  source
			}
		}
	}
	if err := json.Unmarshal([]byte(monitoring(t, "dashboard.json")), &d); err != nil {
		t.Fatal(err)
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if p.ID == 0 || ids[p.ID] || p.GridPos.X+p.GridPos.W > 24 || p.GridPos.W < 1 || p.GridPos.H < 1 {
			t.Errorf("panel %q has the id %d and the position %+v, want a unique id and a position on the grid", p.Title, p.ID, p.GridPos)
		}
		ids[p.ID] = true
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				cell := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[cell]; ok {
					t.Fatalf("panel %q overlaps %q", p.Title, other)
				}
				taken[cell] = p.Title
			}
		}
		if p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
			t.Errorf("panel %q has %d targets and the data source %+v, want a target and the variable", p.Title, len(p.Targets), p.Datasource)
		}
		for _, target := range p.Targets {
			if target.Datasource != (source{"prometheus", "${datasource}"}) || target.RefID == "" || !strings.Contains(target.Expr, `instance=~"$instance"`) {
				t.Errorf("panel %q has an incomplete target %+v", p.Title, target)
			}
		}
	}
	if d.SchemaVersion < 39 || len(ids) < 20 {
		t.Errorf("the dashboard has schema %d and %d panels, want at least 39 and 20", d.SchemaVersion, len(ids))
	}
}

// TestOwnFaultsAlert checks that causes of failed fetches on the gateway's own side raise an alert,
// and that faults of sites do not.
func TestOwnFaultsAlert(t *testing.T) {
	_, rule, _ := strings.Cut(monitoring(t, "rules.yml"), "- alert: CrawlgateFetchLocal")
	rule, _, _ = strings.Cut(rule, "- alert: ")
	matchers := regexp.MustCompile(`crawlgate_fetches_total\{cause=~?"([^"]+)"\}`).FindAllStringSubmatch(rule, -1)
	if len(matchers) != 3 {
		t.Fatalf("found %d selectors of causes, want 3, in%s", len(matchers), rule)
	}
	for _, matcher := range matchers {
		selected := regexp.MustCompile("^(?:" + matcher[1] + ")$")
		for _, cause := range []fetch.Cause{
			fetch.CauseStatus, fetch.CauseRedirects, fetch.CauseSoft404, fetch.CauseDNS, fetch.CauseConnect, fetch.CauseTLS, fetch.CauseTimeout,
			fetch.CauseReset, fetch.CauseTruncated, fetch.CauseEncoding, fetch.CauseProtocol, fetch.CauseForbiddenAddress,
			fetch.CauseForbiddenPort, fetch.CauseOwnListener, fetch.CauseFTP, fetch.CauseLocal, fetch.CauseUpstream, fetch.CauseCanceled,
		} {
			if out := (fetch.Outcome{Cause: cause}); out.Ours() != selected.MatchString(string(cause)) {
				t.Errorf("cause %s: Ours() = %v, but the selector %s differs", cause, out.Ours(), matcher[0])
			}
		}
	}
}
