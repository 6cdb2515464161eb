package redisclock

import (
	"testing"
	"time"
)

func TestTallyBelievesFewerGatewaysAfterAWhileOnly(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var tally Tally
	for i, step := range []struct {
		after           time.Duration
		gateways, rank  int
		want, wantPlace int
	}{
		{0, 1, 0, 1, 0},
		{time.Second, 3, 2, 3, 2},
		{2 * time.Second, 3, 1, 3, 1}, // one came back under another name
		{10 * time.Second, 2, 1, 3, 1},
		{11 * time.Second, 1, 0, 3, 1}, // the fleet is shut down
		{59 * time.Minute, 2, 0, 3, 1},
		{60 * time.Minute, 3, 0, 3, 0}, // all back: the hour begins anew
		{61 * time.Minute, 2, 1, 3, 0},
		{120 * time.Minute, 2, 1, 3, 0},
		{121 * time.Minute, 2, 1, 2, 1},
		{122 * time.Minute, 4, 3, 4, 3},
	} {
		tally = tally.Counted(step.gateways, step.rank, start.Add(step.after))
		if tally.Gateways != step.want || tally.Rank != step.wantPlace {
			t.Fatalf("step %d: %+v, want %d and rank %d", i, tally, step.want, step.wantPlace)
		}
	}
}
