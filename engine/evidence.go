package engine

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/crawlgate/crawlgate/evidence/caddylog"
	"github.com/crawlgate/crawlgate/evidence/sealer"
)

// EvidenceMissing gives why no request may pass: the operator wants none that is not in a sealed
// access log, and a log cannot be written or sealed. It takes no lock.
func EvidenceMissing() error { return caddylog.Refused() }

// SealedLogs tells of the access logs that are sealed.
func SealedLogs() []sealer.Status { return caddylog.Statuses() }

// checkpointInterval is how often the sealed logs are asked for their newest checkpoints, and told of those
// of other gateways.
const checkpointInterval = 2 * time.Second

// exchangeCheckpoints has the newest checkpoints of the logs here known to the other gateways, and theirs
// written into the logs here. It knows of the others what the heartbeats brought last: neither
// Redis nor a disk holds anything else up.
func (s *fleetState) exchangeCheckpoints(ctx context.Context) {
	tick := time.NewTicker(checkpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.fleet.Publish(caddylog.Checkpoints())
		caddylog.RecordPeerCheckpoints(s.fleet.Checkpoints())
	}
}

// evidenceMetrics asks the sealed logs whenever metrics are asked for. The names of logs are the
// operator's.
type evidenceMetrics struct {
	up, lines, unsealed, checkpoint, witness, unwitnessed, lost, oldest, kept *prometheus.Desc
}

func newEvidenceMetrics() *evidenceMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("crawlgate_evidence_"+name, help, append([]string{"log"}, labels...), nil)
	}
	return &evidenceMetrics{
		up:          desc("up", "1 while an access log is written and sealed, 0 while it cannot be."),
		lines:       desc("lines_total", "Lines that were written into a sealed log."),
		unsealed:    desc("unsealed_lines", "Lines that no checkpoint covers yet."),
		checkpoint:  desc("checkpoint_age_seconds", "Age of the newest checkpoint."),
		witness:     desc("witness_age_seconds", "Time since a witness cosigned a checkpoint.", "witness"),
		unwitnessed: desc("unwitnessed_total", "Checkpoints that no witness cosigned."),
		lost:        desc("lost_total", "Lines that could not be written."),
		oldest:      desc("oldest_line_seconds", "Unix time of the oldest line that is kept."),
		kept:        desc("kept", "1 while files are kept for as long as roll_keep_for says, 0 if roll_keep drops them before."),
	}
}

// Describe implements prometheus.Collector.
func (m *evidenceMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.lines, m.unsealed, m.checkpoint, m.witness, m.unwitnessed, m.lost, m.oldest, m.kept} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *evidenceMetrics) Collect(ch chan<- prometheus.Metric) {
	if kept := keptLogs.Load(); kept != nil {
		for _, l := range *kept {
			ch <- prometheus.MustNewConstMetric(m.kept, prometheus.GaugeValue, float64(count(l.kept)), l.Name)
			if !l.oldest.IsZero() {
				ch <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, float64(l.oldest.Unix()), l.Name)
			}
		}
	}
	for _, s := range SealedLogs() {
		send := func(desc *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{s.Name}, labels...)...)
		}
		send(m.up, prometheus.GaugeValue, float64(count(s.Error == "")))
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
