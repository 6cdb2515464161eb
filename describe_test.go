package crawlgate

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// describe returns the names of a collector's metrics. A description shows its name in its text only.
func describe(c prometheus.Collector) map[string]bool {
	descs := make(chan *prometheus.Desc, 16)
	c.Describe(descs)
	close(descs)
	names := make(map[string]bool)
	for d := range descs {
		_, rest, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ := strings.Cut(rest, `"`)
		names[name] = true
	}
	return names
}
