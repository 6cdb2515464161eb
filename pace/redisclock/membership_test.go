package redisclock

import (
	"testing"
	"time"
)

func TestLastMembershipBelievesFewerGatewaysAfterAWhileOnly(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var last LastMembership
	for i, step := range []struct {
		after          time.Duration
		gateways, want int
	}{
		{0, 1, 1},
		{time.Second, 3, 3},
		{10 * time.Second, 2, 3},
		{11 * time.Second, 1, 3}, // the fleet is shut down
		{59 * time.Minute, 2, 3},
		{60 * time.Minute, 3, 3}, // all are back, so a new hour begins
		{61 * time.Minute, 2, 3},
		{120 * time.Minute, 2, 3},
		{121 * time.Minute, 2, 2},
		{122 * time.Minute, 4, 4},
	} {
		last = last.Counted(step.gateways, start.Add(step.after))
		if last.Gateways != step.want {
			t.Fatalf("step %d: %d gateways, want %d", i, last.Gateways, step.want)
		}
	}
}
