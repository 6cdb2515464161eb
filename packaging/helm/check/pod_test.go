package check

import (
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// checkPod checks the restrictions of Kubernetes' profile "restricted", a read-only root file
// system, probes that do not use the proxy's port, mounts that change with their source, and the
// spread of gateways over nodes.
func checkPod(t *testing.T, set *appsv1.StatefulSet) {
	t.Helper()
	pod := &set.Spec.Template.Spec
	if p := pod.SecurityContext; !*p.RunAsNonRoot || *p.RunAsUser != 65532 || p.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is not restricted: %+v", p)
	}
	volumes := map[string]bool{"data": true}
	for _, v := range pod.Volumes {
		volumes[v.Name] = true
	}
	for _, container := range pod.Containers {
		for _, mount := range container.VolumeMounts {
			if mount.SubPath != "" || !volumes[mount.Name] {
				t.Errorf("%s mounts a subpath or an unknown volume: %+v", container.Name, mount)
			}
		}
		if c := container.SecurityContext; container.Name != "shipper" &&
			(*c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || len(c.Capabilities.Drop) != 1 || c.Capabilities.Drop[0] != "ALL") {
			t.Errorf("the security context of %s is not restricted: %+v", container.Name, c)
		}
	}
	for _, probe := range []*corev1.Probe{pod.Containers[0].StartupProbe, pod.Containers[0].ReadinessProbe, pod.Containers[0].LivenessProbe} {
		if probe.HTTPGet.Path != "/health" || probe.HTTPGet.Port.StrVal != "metrics" {
			t.Errorf("probe %+v, want /health at the port of the metrics", probe.HTTPGet)
		}
	}
	for _, spread := range pod.TopologySpreadConstraints {
		if !selects(t, spread.LabelSelector, set.Spec.Template.Labels) {
			t.Errorf("the spread constraint selects %v, want the gateways", spread.LabelSelector)
		}
	}
}

// statefulSet returns the StatefulSet that the chart renders for the values, and its Caddyfile.
func statefulSet(t *testing.T, values string) (set appsv1.StatefulSet, caddyfile string) {
	t.Helper()
	for _, document := range render(t, values) {
		if strings.Contains(document, "\nkind: StatefulSet\n") {
			if err := yaml.Unmarshal([]byte(document), &set); err != nil {
				t.Fatal(err)
			}
		}
		if strings.Contains(document, "\n  Caddyfile: ") {
			var config corev1.ConfigMap
			if err := yaml.Unmarshal([]byte(document), &config); err != nil {
				t.Fatal(err)
			}
			caddyfile = config.Data["Caddyfile"]
		}
	}
	return set, caddyfile
}

// TestRestarts checks that a changed Caddyfile changes the pod, which restarts it, only if no
// container reloads it.
func TestRestarts(t *testing.T) {
	for values, want := range map[string]bool{"{}": false, "reload: {image: ''}": true} {
		before, _ := statefulSet(t, values)
		after, _ := statefulSet(t, values+"\nsite: mode report")
		if got := !reflect.DeepEqual(before.Spec.Template, after.Spec.Template); got != want {
			t.Errorf("with %s a changed Caddyfile restarts the pod: %v, want the opposite", values, got)
		}
		if got := len(before.Spec.Template.Spec.Containers) == 1; got != want {
			t.Errorf("with %s no container reloads: %v, want the opposite", values, got)
		}
	}
}

// TestScaling checks that only an autoscaler sets the number of pods if there is one, and that
// gateways always know the least number.
func TestScaling(t *testing.T) {
	set, caddyfile := statefulSet(t, several)
	if set.Spec.Replicas == nil || *set.Spec.Replicas != 3 || !strings.Contains(caddyfile, "expect 3\n") {
		t.Errorf("%v replicas, want 3 and `expect 3` in\n%s", set.Spec.Replicas, caddyfile)
	}
	set, caddyfile = statefulSet(t, several+"autoscaled: true")
	if set.Spec.Replicas != nil || !strings.Contains(caddyfile, "expect 3\n") {
		t.Errorf("autoscaled: %v replicas, want none and `expect 3` in\n%s", set.Spec.Replicas, caddyfile)
	}
	spread := func(values string) int {
		set, _ := statefulSet(t, values)
		return len(set.Spec.Template.Spec.TopologySpreadConstraints)
	}
	if spread("") != 2 || spread("topologySpreadConstraints: []") != 0 {
		t.Error("pods are not spread by default, or are spread although it is disabled")
	}
}

// TestStopping checks that a pod has as much time to stop as its Caddyfile takes.
func TestStopping(t *testing.T) {
	for values, grace := range map[string]string{"{}": "40s", "terminationGracePeriodSeconds: 120": "100s"} {
		if _, caddyfile := statefulSet(t, values); !strings.Contains(caddyfile, "shutdown_delay 10s\n\tgrace_period "+grace+"\n") {
			t.Errorf("with %s the Caddyfile has other times to stop:\n%s", values, caddyfile)
		}
	}
}
