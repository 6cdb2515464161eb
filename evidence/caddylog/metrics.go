package caddylog

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics reads the state of the sealed logs at each collection. The operator chooses the names of
// the logs, so their number is bounded.
type metrics struct {
	up, lines, unsealed, checkpoint, witness, unwitnessed, lost, oldest, kept *prometheus.Desc
}

// Metrics returns the collector of the metrics of all sealed logs.
func Metrics() prometheus.Collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("crawlgate_evidence_"+name, help, append([]string{"log"}, labels...), nil)
	}
	return &metrics{
		up:          desc("up", "1 while a sealed access log is written and sealed, 0 while it cannot be."),
		lines:       desc("lines_total", "Lines written into a sealed log."),
		unsealed:    desc("unsealed_lines", "Lines that no checkpoint covers yet."),
		checkpoint:  desc("checkpoint_age_seconds", "Age of the newest checkpoint."),
		witness:     desc("witness_age_seconds", "Time since a witness cosigned a checkpoint.", "witness"),
		unwitnessed: desc("unwitnessed_total", "Checkpoints that no witness cosigned."),
		lost:        desc("lost_total", "Lines that could not be written, as on a full disk."),
		oldest:      desc("oldest_line_seconds", "Unix time of the oldest line that is kept, updated every 10 minutes; absent if the times are neither numbers nor RFC 3339."),
		kept:        desc("kept", "1 while files are kept for as long as roll_keep_for says, 0 while roll_keep drops them before."),
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.lines, m.unsealed, m.checkpoint, m.witness, m.unwitnessed, m.lost, m.oldest, m.kept} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	if kept := keptLogs.Load(); kept != nil {
		for _, l := range *kept {
			ch <- prometheus.MustNewConstMetric(m.kept, prometheus.GaugeValue, oneIf(l.kept), l.Name)
			if !l.oldest.IsZero() {
				ch <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, float64(l.oldest.Unix()), l.Name)
			}
		}
	}
	for _, s := range Statuses() {
		send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{s.Name}, labels...)...)
		}
		send(m.up, prometheus.GaugeValue, oneIf(s.Error == ""))
		send(m.lines, prometheus.CounterValue, float64(s.Lines))
		send(m.unsealed, prometheus.GaugeValue, float64(s.Unsealed))
		send(m.checkpoint, prometheus.GaugeValue, time.Since(s.Time).Seconds())
		send(m.lost, prometheus.CounterValue, float64(s.Lost))
		send(m.unwitnessed, prometheus.CounterValue, float64(s.Unwitnessed))
		for name, w := range s.Witnesses {
			if !w.Time.IsZero() {
				send(m.witness, prometheus.GaugeValue, time.Since(w.Time).Seconds(), name)
			}
		}
	}
}

func oneIf(b bool) float64 { return map[bool]float64{true: 1}[b] }
