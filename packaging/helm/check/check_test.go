// Package check compares the output of the Helm chart with the types of Kubernetes. It is a
// separate module, so that only these tests depend on those types.
package check

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	trustv1alpha1 "github.com/cert-manager/trust-manager/pkg/apis/trust/v1alpha1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const chart = "../crawlgate"

// need finds a program. If it is missing, the test is skipped on a laptop and fails in CI.
func need(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err == nil {
		return path
	}
	if os.Getenv("CRAWLGATE_REQUIRE_ALL") == "1" {
		t.Fatalf("%s is required and missing: %v", name, err)
	}
	t.Skipf("%s is not installed", name)
	return ""
}

func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), need(t, "helm"), args...)
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+t.TempDir(), "HELM_CONFIG_HOME="+t.TempDir(), "HELM_DATA_HOME="+t.TempDir())
	var out, faults strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &faults
	if err := cmd.Run(); err != nil {
		return out.String() + faults.String(), err
	}
	return out.String(), nil
}

// renderings are values for the chart, and the kinds of objects that each gives.
var renderings = []struct {
	name, values, kinds string
}{
	{"defaults", "", "ConfigMap NetworkPolicy Service Service StatefulSet"},
	{"everything", everything, "Bundle ConfigMap ConfigMap NetworkPolicy NetworkPolicy NetworkPolicy PodDisruptionBudget PrometheusRule Service Service ServiceMonitor StatefulSet"},
	{"clients", "site: clients 10.0.0.0/8 100.64.0.0/10", "ConfigMap NetworkPolicy Service Service StatefulSet"},
	{"several", several, "ConfigMap NetworkPolicy PodDisruptionBudget Service Service StatefulSet"},
	{"autoscaled from one", strings.Replace(several, "replicas: 3", "autoscaled: true", 1), "ConfigMap NetworkPolicy PodDisruptionBudget Service Service StatefulSet"},
	{"a Caddyfile", "caddyfile: |\n  {\n  \tadmin unix//run/crawlgate/admin.sock|0660\n  }\n", "ConfigMap NetworkPolicy Service Service StatefulSet"},
	{"a Caddyfile without reloads", "caddyfile: ':3128'\nreload: {image: ''}", "ConfigMap NetworkPolicy Service Service StatefulSet"},
	{"several without a budget", several + "podDisruptionBudget: {maxUnavailable: null}", "ConfigMap NetworkPolicy Service Service StatefulSet"},
	{
		"crawlers", "crawlers: {networkPolicy: {enabled: true}, namespaces: [crawlers, crawlgate, default]}",
		"ConfigMap NetworkPolicy NetworkPolicy NetworkPolicy NetworkPolicy Service Service StatefulSet",
	},
	{
		"the certificate for crawlers", "crawlers: {namespaces: [crawlers, more], ca: {root: '-----BEGIN CERTIFICATE-----'}}",
		"ConfigMap ConfigMap ConfigMap NetworkPolicy Service Service StatefulSet",
	},
	{"a page that only shows", "console: {enabled: true}", "ConfigMap NetworkPolicy Service Service StatefulSet"},
	{"least", "networkPolicy: {enabled: false}\nreload: {image: ''}\ntopologySpreadConstraints: []", "ConfigMap Service Service StatefulSet"},
}

const several = `
replicas: 3
redis: {existingSecret: redis}
ca: {existingSecret: ca}
`

const everything = several + `
autoscaled: true
imagePullSecrets: [{name: pull}]
engine: |
  cache {
    max_size 64MiB
  }
  pace {
    rate 2/s
  }
site: |
  agent newsbot {
    token acme-news
  }
log: |
  output robots_evidence {
    file /data/log/access.log {
      roll_keep 1000000
      roll_keep_for 8760h
    }
  }
console: {enabled: true, existingSecret: console}
persistence: {storageClass: fast, retention: {whenDeleted: Retain, whenScaled: Delete}}
networkPolicy: {monitoring: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]}
crawlers:
  namespaces: [crawlers, more]
  networkPolicy: {enabled: true}
  ca:
    trustManager: true
    root: |
      -----BEGIN CERTIFICATE-----
      -----END CERTIFICATE-----
metrics:
  serviceMonitor: {enabled: true, labels: {release: prometheus}}
  prometheusRule: {enabled: true, labels: {release: prometheus}}
  dashboard: {enabled: true}
serviceAccountName: crawlgate
priorityClassName: high
podLabels: {team: search}
podAnnotations: {a: b}
extraEnv: [{name: GOGC, value: "100"}, {name: TOKEN, valueFrom: {secretKeyRef: {name: token, key: token}}}]
extraVolumes: [{name: partners, configMap: {name: partners}}]
extraVolumeMounts: [{name: partners, mountPath: /etc/partners, readOnly: true}]
extraContainers: [{name: shipper, image: "shipper:1"}]
`

// render renders the chart, and returns its objects as text.
func render(t *testing.T, values string) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte(values), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := helm(t, "template", "crawlgate", chart, "--namespace", "crawlgate", "--values", file)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, out)
	}
	documents := strings.Split(out, "\n---\n")
	for i := range documents {
		documents[i] += "\n"
	}
	return documents
}

// object returns a value of the type of a kind.
func object(kind string) any {
	switch kind {
	case "ConfigMap":
		return new(corev1.ConfigMap)
	case "Service":
		return new(corev1.Service)
	case "StatefulSet":
		return new(appsv1.StatefulSet)
	case "NetworkPolicy":
		return new(networkingv1.NetworkPolicy)
	case "PodDisruptionBudget":
		return new(policyv1.PodDisruptionBudget)
	case "ServiceMonitor":
		return new(monitoringv1.ServiceMonitor)
	case "PrometheusRule":
		return new(monitoringv1.PrometheusRule)
	case "Bundle":
		return new(trustv1alpha1.Bundle)
	}
	return nil
}

// TestChart renders the chart, decodes every object strictly, and makes the gateway adapt the
// Caddyfile.
func TestChart(t *testing.T) {
	if out, err := helm(t, "lint", "--strict", chart); err != nil {
		t.Fatalf("helm lint: %v\n%s", err, out)
	}
	for _, tt := range renderings {
		t.Run(tt.name, func(t *testing.T) {
			var kinds []string
			for _, document := range render(t, tt.values) {
				kinds = append(kinds, decode(t, document))
			}
			slices.Sort(kinds)
			if got := strings.Join(kinds, " "); got != tt.kinds {
				t.Errorf("kinds %s, want %s", got, tt.kinds)
			}
		})
	}
}

// decode decodes an object, checks it, and returns its kind.
func decode(t *testing.T, document string) string {
	t.Helper()
	var head struct {
		Kind string `json:"kind"`
	}
	if err := yaml.Unmarshal([]byte(document), &head); err != nil {
		t.Fatalf("yaml.Unmarshal: %v in\n%s", err, document)
	}
	v := object(head.Kind)
	if v == nil {
		t.Fatalf("no type for the kind %s of\n%s", head.Kind, document)
	}
	if err := yaml.UnmarshalStrict([]byte(document), v); err != nil {
		t.Fatalf("%s: %v in\n%s", head.Kind, err, document)
	}
	switch v := v.(type) {
	case *corev1.ConfigMap:
		if text, ok := v.Data["Caddyfile"]; ok {
			adapt(t, text)
		}
		if text, ok := v.Data["crawlgate.json"]; ok && !json.Valid([]byte(text)) {
			t.Errorf("the dashboard is not valid JSON: %.100q", text)
		}
	case *appsv1.StatefulSet:
		checkPod(t, v)
	case *monitoringv1.PrometheusRule:
		if len(v.Spec.Groups) == 0 || len(v.Spec.Groups[0].Rules) == 0 {
			t.Error("the PrometheusRule has no rules")
		}
	}
	return head.Kind
}

// adapt makes the binary of CRAWLGATE_BIN, or one that it builds, read the Caddyfile.
func adapt(t *testing.T, text string) {
	t.Helper()
	folder := t.TempDir()
	users := filepath.Join(folder, "users")
	file := filepath.Join(folder, "Caddyfile")
	for name, text := range map[string]string{
		users: "dora $2a$14$gM89t0Hf62dKTbFSyQ382OSlE0TtJ1TZMkvw8.LiXCd7JbH4IW2K2\n",
		file:  strings.ReplaceAll(text, "/etc/crawlgate/console/users", users),
	} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), gateway(t), "adapt", "--config", file, "--adapter", "caddyfile")
	if out, err := cmd.CombinedOutput(); err != nil || strings.Contains(string(out), `"level":"warn"`) {
		t.Errorf("adapt: %v\n%s\nof\n%s", err, out, text)
	}
}

func gateway(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CRAWLGATE_BIN"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "crawlgate")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", path, "./cmd/crawlgate")
	cmd.Dir = "../../.."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building crawlgate: %v\n%s", err, out)
	}
	return path
}

// TestValues checks that values.yaml has each value that the schema permits. `helm lint` checks
// that it has no other.
func TestValues(t *testing.T) {
	type node struct {
		Properties           map[string]*node
		AdditionalProperties any
	}
	var schema node
	var values map[string]any
	for name, v := range map[string]any{"values.schema.json": &schema, "values.yaml": &values} {
		text, err := os.ReadFile(filepath.Join(chart, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, v); err != nil {
			t.Fatal(err)
		}
	}
	delete(schema.Properties, "global")                             // of Helm
	delete(schema.Properties["crawlers"].Properties, "podSelector") // of Kubernetes
	delete(schema.Properties["persistence"].Properties, "retention")
	var check func(path string, schema *node, values map[string]any)
	check = func(path string, schema *node, values map[string]any) {
		if len(schema.Properties) > 0 && schema.AdditionalProperties != false {
			t.Errorf("the schema permits any value in %s", path)
		}
		for name, below := range schema.Properties {
			value, ok := values[name]
			if !ok {
				t.Errorf("values.yaml lacks %s.%s", path, name)
			}
			if len(below.Properties) > 0 {
				check(path+"."+name, below, value.(map[string]any))
			}
		}
	}
	check("", &schema, values)
}

// TestValuesRefused checks that mistakes in the values are refused.
func TestValuesRefused(t *testing.T) {
	for _, tt := range []struct{ set, want string }{
		{"replicas=2", "several replicas need clocks in Redis"},
		{"replicas=0", "replicas"},
		{"autoscaled=true", "several replicas need clocks in Redis"},
		{"caddyfile=:3128", "add `admin unix//run/crawlgate/admin.sock|0660`"},
		{"imagee.tag=1", "imagee"},
		{"metrics.port=3128", "port"},
		{"metrics.port=9181", "port"},
		{"metrics.serviceMonitor.enabled=true", "networkPolicy.monitoring"},
		{"terminationGracePeriodSeconds=20", "terminationGracePeriodSeconds"},
		{"crawlers.ca.trustManager=true", "crawlers.ca.root"},
		{"crawlers.ca.root=/etc/ca.crt", "root"},
		{"topologySpreadConstraints[0].maxSkew=1", "topologySpreadConstraints"},
		{"persistence.size=", "size"},
		{"crawlers.namespaces={Crawlers}", "namespaces"},
		{"crawlers.podSelector.app=newsbot", "podSelector"},
		{"crawlers.networkPolicy.egress[0].ports[0].port=5672", "egress"},
		{"crawlers.enabled=true", "crawlers"},
	} {
		if out, err := helm(t, "template", "cg", chart, "--set", tt.set); err == nil || !strings.Contains(out, tt.want) {
			t.Errorf("helm template --set %s: got error %v and output %s", tt.set, err, out)
		}
	}
}
