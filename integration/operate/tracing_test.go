//go:build slow

package operate

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/integration/rig"
	"github.com/crawlgate/crawlgate/internal/testorigin"
)

// exportedSpan is a span as OpenTelemetry's console exporter prints it.
type exportedSpan struct {
	Name        string
	SpanContext struct{ TraceID, SpanID string }
	Parent      struct{ TraceID, SpanID string }
	Attributes  []struct {
		Key   string
		Value struct{ Value any }
	}
}

// TestTracing lets Caddy trace the requests of a crawler that is traced itself. The steps of each
// request are children of its span, in the crawler's trace. The origin gets no trace headers of any
// form.
func TestTracing(t *testing.T) {
	t.Parallel()
	const trace = "0af7651916cd43dd8448eb211c80319c"
	site := testorigin.Start(t, testorigin.Config{}).Site(t, testorigin.SiteConfig{})
	site.SetRobots(testorigin.OK("User-agent: *\nDisallow: /private\nCrawl-delay: 0.2\n"))
	stdout := filepath.Join(rig.TempDir(t), "spans")
	g := rig.New(t, rig.Config{
		Around: "tracing {\nspan crawl\n}", Stdout: stdout,
		Env: []string{"OTEL_TRACES_EXPORTER=console", "OTEL_PROPAGATORS=tracecontext,baggage,b3,b3multi,jaeger,ottrace,xray"},
	})
	client := g.Client("Tester/1.0")
	for _, path := range []string{"/page", "/page", "/private"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site.URL(path)+"?token=hidden", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("User-Agent", "Tester/1.0")
		req.Header.Set("Traceparent", "00-"+trace+"-b7ad6b7169203331-01")
		req.Header.Set("Tracestate", "inside=1")
		req.Header.Set("Baggage", "user=inside")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	g.Stop()

	for _, e := range site.Exchanges() {
		for name := range e.Header {
			lower := strings.ToLower(name)
			if strings.Contains(lower, "trace") || strings.Contains(lower, "b3") || lower == "baggage" || strings.HasPrefix(lower, "uber") || strings.HasPrefix(lower, "ot-") {
				t.Errorf("%s: the origin got %s: %q", e.Target, name, e.Header[name])
			}
		}
	}
	spans := readSpans(t, stdout)
	var requests []string
	names := map[string][]string{} // the names of a span's children
	for _, s := range spans {
		if s.SpanContext.TraceID != trace {
			continue // the check that the gateway has started
		}
		if s.Name == "crawl" {
			requests = append(requests, s.SpanContext.SpanID)
		}
		names[s.Parent.SpanID] = append(names[s.Parent.SpanID], s.Name)
	}
	want := [][]string{{"decide", "wait", "dial"}, {"decide", "wait", "dial"}, {"decide"}}
	if len(requests) != len(want) {
		t.Fatalf("%d traced requests, want %d: %+v", len(requests), len(want), spans)
	}
	for i, id := range requests {
		if !slices.Equal(names[id], want[i]) {
			t.Errorf("request %d has the steps %v, want %v", i, names[id], want[i])
		}
	}
	content, err := os.ReadFile(stdout)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"robots.decision", "robots.reason", "robots.origin", "robots.address", "robots.wait_ms", `"fetch"`} {
		if !strings.Contains(string(content), text) {
			t.Errorf("no span has %s", text)
		}
	}
	for _, s := range spans {
		for _, a := range s.Attributes {
			if v, ok := a.Value.Value.(string); ok && strings.HasPrefix(a.Key, "robots.") && strings.Contains(v, "hidden") {
				t.Errorf("span %s has the secret %s=%s", s.Name, a.Key, v)
			}
		}
	}
}

// readSpans reads the output of the console exporter, in the order in which the spans ended.
func readSpans(t *testing.T, file string) (spans []exportedSpan) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	d := json.NewDecoder(f)
	for {
		var s exportedSpan
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) {
			return spans
		}
		if err != nil {
			t.Fatal(err)
		}
		spans = append(spans, s)
	}
}
