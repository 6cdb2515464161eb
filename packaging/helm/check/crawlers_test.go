package check

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"
)

// policies renders the chart in the namespace crawlgate, and returns its NetworkPolicies by
// namespace and name.
func policies(t *testing.T, set string) map[string]*networkingv1.NetworkPolicy {
	t.Helper()
	out, err := helm(t, "template", "crawlgate", chart, "--namespace", "crawlgate", "--set", set)
	if err != nil {
		t.Fatalf("helm template: %v\n%s", err, out)
	}
	all := map[string]*networkingv1.NetworkPolicy{}
	for document := range strings.SplitSeq(out, "\n---\n") {
		if p := policy(t, document); p.Kind == "NetworkPolicy" {
			all[p.Namespace+"/"+p.Name] = p
		}
	}
	return all
}

func policy(t *testing.T, document string) *networkingv1.NetworkPolicy {
	t.Helper()
	p := new(networkingv1.NetworkPolicy)
	if err := yaml.Unmarshal([]byte(document), p); err != nil {
		t.Fatalf("yaml.Unmarshal: %v in\n%s", err, document)
	}
	return p
}

// pod is one end of a connection. One outside the cluster has no namespace.
type pod struct{ namespace, labels string }

func (p pod) set(t *testing.T) labels.Set {
	t.Helper()
	set, err := labels.ConvertSelectorToLabelsMap(p.labels)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

var (
	crawler      = pod{"crawlers", "app=newsbot,team=news"}
	nextCrawler  = pod{"crawlgate", "app=newsbot"}
	umbrella     = pod{"crawlgate", "app.kubernetes.io/name=newsbot,app.kubernetes.io/instance=crawlgate"}
	gatewayPod   = pod{"crawlgate", "app.kubernetes.io/name=crawlgate,app.kubernetes.io/instance=crawlgate"}
	otherGateway = pod{"crawlgate", "app.kubernetes.io/name=crawlgate,app.kubernetes.io/instance=other"}
	resolver     = pod{"kube-system", "k8s-app=kube-dns"}
	otherSystem  = pod{"kube-system", "k8s-app=metrics"}
	otherProxy   = pod{"tools", "app=squid"}
	queue        = pod{"tools", "app=queue"}
	internet     = pod{}
)

// selects reports whether the selector of a policy or a peer matches a pod. A nil selector matches
// all.
func selects(t *testing.T, selector *metav1.LabelSelector, set labels.Set) bool {
	t.Helper()
	if selector == nil {
		return true
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	return s.Matches(set)
}

// among reports whether a pod is one of the peers of a policy's rule. No peers mean all.
func among(t *testing.T, p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, to pod) bool {
	t.Helper()
	for _, peer := range peers {
		if peer.IPBlock != nil {
			t.Fatalf("the peers of %s have addresses, which this test cannot judge", p.Name)
		}
		near := to.namespace == p.Namespace
		if peer.NamespaceSelector != nil {
			near = to.namespace != "" && selects(t, peer.NamespaceSelector, labels.Set{corev1.LabelMetadataName: to.namespace})
		}
		if near && selects(t, peer.PodSelector, to.set(t)) {
			return true
		}
	}
	return len(peers) == 0
}

// open reports whether a rule's ports include a port. No ports mean all.
func open(ports []networkingv1.NetworkPolicyPort, protocol corev1.Protocol, number int, name string) bool {
	for _, port := range ports {
		its := corev1.ProtocolTCP
		if port.Protocol != nil {
			its = *port.Protocol
		}
		if its == protocol && (port.Port == nil || port.Port.IntValue() == number || name != "" && port.Port.StrVal == name) {
			return true
		}
	}
	return len(ports) == 0
}

// leaves reports whether policies permit a pod to send to another one.
func leaves(t *testing.T, all map[string]*networkingv1.NetworkPolicy, from, to pod, protocol corev1.Protocol, number int) bool {
	t.Helper()
	held := false
	for _, p := range all {
		if p.Namespace != from.namespace || p.Spec.PolicyTypes[0] != networkingv1.PolicyTypeEgress || !selects(t, &p.Spec.PodSelector, from.set(t)) {
			continue
		}
		held = true
		for _, rule := range p.Spec.Egress {
			if among(t, p, rule.To, to) && open(rule.Ports, protocol, number, "") {
				return true
			}
		}
	}
	return !held
}

// TestCrawlers checks which pods crawlers can reach under the chart's policies, and that gateways
// can reach everything.
func TestCrawlers(t *testing.T) {
	const enabled = "crawlers.networkPolicy.enabled=true"
	const alone = enabled + ",crawlers.namespaces={crawlers}"
	for _, tt := range []struct {
		name, set string
		from, to  pod
		protocol  corev1.Protocol
		port      int
		want      bool
	}{
		{"without it all is open", "", crawler, internet, "TCP", 443, true},
		{"the gateway", alone, crawler, gatewayPod, "TCP", 3128, true},
		{"the gateway by UDP", alone, crawler, gatewayPod, "UDP", 3128, false},
		{"metrics of the gateway", alone, crawler, gatewayPod, "TCP", 9180, false},
		{"the admin endpoint", alone, crawler, gatewayPod, "TCP", 2019, false},
		{"a gateway of others", alone, crawler, otherGateway, "TCP", 3128, false},
		{"another pod at the gateway's port", alone, crawler, otherProxy, "TCP", 3128, false},
		{"a site", alone, crawler, internet, "TCP", 443, false},
		{"a site by http", alone, crawler, internet, "TCP", 80, false},
		{"a site by QUIC", alone, crawler, internet, "UDP", 443, false},
		{"a resolver outside", alone, crawler, internet, "UDP", 53, false},
		{"the resolver", alone, crawler, resolver, "UDP", 53, true},
		{"the resolver by TCP", alone, crawler, resolver, "TCP", 53, true},
		{"the resolver at another port", alone, crawler, resolver, "TCP", 443, false},
		{"the resolver by QUIC", alone, crawler, resolver, "UDP", 443, false},
		{"beside the resolver", alone, crawler, otherSystem, "UDP", 53, false},
		{"no resolver", alone + ",crawlers.networkPolicy.dns=null", crawler, resolver, "UDP", 53, false},
		{"other namespaces are not held", alone, nextCrawler, internet, "TCP", 443, true},
		{"the gateway's way out", alone, gatewayPod, internet, "TCP", 443, true},

		{"the same namespace: the gateway", enabled, nextCrawler, gatewayPod, "TCP", 3128, true},
		{"the same namespace: a site", enabled, nextCrawler, internet, "TCP", 443, false},
		{"the same namespace and release: a site", enabled, umbrella, internet, "TCP", 443, false},
		{"the same namespace: the gateway's way out", enabled, gatewayPod, internet, "TCP", 443, true},
		{"the same namespace: another gateway's way out", enabled, otherGateway, internet, "TCP", 443, true},

		{"by label", alone + ",crawlers.podSelector.matchLabels.team=news", crawler, internet, "TCP", 443, false},
		{"by label, another pod", alone + ",crawlers.podSelector.matchLabels.team=art", crawler, internet, "TCP", 443, true},
		{"by label in the gateway's namespace", enabled + ",crawlers.podSelector.matchLabels.app=newsbot", nextCrawler, internet, "TCP", 443, false},
		{"what else they need", alone + ",crawlers.networkPolicy.egress[0].to[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=tools," +
			"crawlers.networkPolicy.egress[0].to[0].podSelector.matchLabels.app=queue,crawlers.networkPolicy.egress[0].ports[0].port=5672", crawler, queue, "TCP", 5672, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := leaves(t, policies(t, tt.set), tt.from, tt.to, tt.protocol, tt.port); got != tt.want {
				t.Errorf("%+v to %+v %s %d: permitted = %v, want the opposite", tt.from, tt.to, tt.protocol, tt.port, got)
			}
		})
	}
}

// TestCrawlersComeIn checks that the gateway accepts crawlers of other namespaces that its chart
// restricts, and no other pods.
func TestCrawlersComeIn(t *testing.T) {
	for _, tt := range []struct {
		set  string
		from pod
		want bool
	}{
		{"", crawler, false},
		{"", nextCrawler, true},
		{"crawlers.networkPolicy.enabled=true,crawlers.namespaces={crawlers}", crawler, true},
		{"crawlers.networkPolicy.enabled=true,crawlers.namespaces={crawlers}", otherProxy, false},
		{"crawlers.networkPolicy.enabled=true,crawlers.namespaces={crawlers},crawlers.podSelector.matchLabels.team=art", crawler, false},
		{"crawlers.namespaces={crawlers}", crawler, true},
	} {
		p := policies(t, tt.set)["/crawlgate"]
		if p == nil {
			t.Fatal("the gateway has no policy")
		}
		p.Namespace = "crawlgate"
		got := false
		for _, rule := range p.Spec.Ingress {
			got = got || among(t, p, rule.From, tt.from) && open(rule.Ports, corev1.ProtocolTCP, 3128, "proxy")
		}
		if got != tt.want {
			t.Errorf("%s: permitted from %+v = %v, want the opposite", tt.set, tt.from, got)
		}
	}
}

// TestMonitoring checks that only the pods of networkPolicy.monitoring can reach the metrics.
func TestMonitoring(t *testing.T) {
	const set = "metrics.serviceMonitor.enabled=true,networkPolicy.monitoring[0].namespaceSelector.matchLabels.kubernetes\\.io/metadata\\.name=tools"
	for from, want := range map[pod]bool{queue: true, nextCrawler: false, crawler: false} {
		p := policies(t, set)["/crawlgate"]
		p.Namespace = "crawlgate"
		got := false
		for _, rule := range p.Spec.Ingress {
			got = got || among(t, p, rule.From, from) && open(rule.Ports, corev1.ProtocolTCP, 9180, "metrics")
		}
		if got != want {
			t.Errorf("permitted from %+v = %v, want the opposite", from, got)
		}
	}
}

// TestShownValues renders the values in the pages of docs/, and decodes the result.
func TestShownValues(t *testing.T) {
	read := func(path string) string {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	var known map[string]any
	if err := yaml.Unmarshal([]byte(read(chart+"/values.yaml")), &known); err != nil {
		t.Fatal(err)
	}
	rendered := map[string]int{}
	for _, page := range []string{"kubernetes.md", "egress.md"} {
		for _, block := range strings.Split(read("../../../docs/"+page), "\n```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			var shown map[string]any
			if err := yaml.Unmarshal([]byte(block), &shown); err != nil {
				t.Errorf("values in %s: %v in\n%s", page, err, block)
			}
			isValues := true
			for name := range shown {
				_, isValue := known[name]
				isValues = isValues && isValue
			}
			if isValues {
				for _, document := range render(t, block) {
					decode(t, document)
				}
				rendered[page]++
			}
		}
	}
	if rendered["kubernetes.md"] != 5 || rendered["egress.md"] != 1 {
		t.Errorf("rendered values by page: %v, want 5 of kubernetes.md and 1 of egress.md", rendered)
	}
}

// TestShownCheck types the command of docs/kubernetes.md that checks the Caddyfile before an upgrade, for good values
// and for a mistake.
func TestShownCheck(t *testing.T) {
	page, err := os.ReadFile("../../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "So check first:\n\n  ```sh\n")
	command, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("the page has no command")
	}
	need(t, "helm")
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, target := range map[string]string{"crawlgate": gateway(t), "packaging": root + "/packaging"} {
		if err := os.Symlink(target, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		values, says string
		ok           bool
	}{
		{everything, `"newsbot"`, true},
		{"console: {enabled: true, existingSecret: console}\nsite: client 10.0.0.0/8", "unknown option", false},
	} {
		if err := os.WriteFile(folder+"/values.yaml", []byte(tt.values), 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), "sh", "-c", command)
		cmd.Dir = folder
		cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if !strings.Contains(string(out), tt.says) || (err == nil) != tt.ok {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// TestCrawlersExample compares the manifest of examples/egress with the chart's output for the same values.
func TestCrawlersExample(t *testing.T) {
	text, err := os.ReadFile("../../../examples/egress/networkpolicy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var example networkingv1.NetworkPolicy
	if err := yaml.UnmarshalStrict(text, &example); err != nil {
		t.Fatal(err)
	}
	rendered := policies(t, "crawlers.networkPolicy.enabled=true,crawlers.namespaces={crawlers}")[example.Namespace+"/"+example.Name]
	if rendered == nil || !reflect.DeepEqual(rendered.Spec, example.Spec) {
		t.Errorf("the chart gives %+v, but the example has %+v", rendered, example.Spec)
	}
}
