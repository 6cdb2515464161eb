package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/evidence"
	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestHeadsOfOthers checks which gateways' checkpoints a gateway gets, in which order, and how
// many.
func TestHeadsOfOthers(t *testing.T) {
	t.Parallel()
	p := func(name string, checkpoints ...string) process {
		for i := range checkpoints {
			checkpoints[i] = name
		}
		return process{note: note{Self: Self{Name: name}, Checkpoints: checkpoints}}
	}
	large := membership{}
	for i := range 40 {
		large[fmt.Sprint(i)] = p(fmt.Sprintf("gw%02d", i), make([]string, 20)...)
	}
	for _, tt := range []struct {
		name, own string
		in        membership
		first     string
		n         int
	}{
		{"none", "b", membership{}, "", 0},
		{"its own", "b", membership{"1": p("b", "x"), "2": p("b", "y")}, "", 0},
		{"those that follow are first", "b", membership{"1": p("a", "x"), "2": p("b", "y"), "3": p("c", "z"), "4": p("d", "v", "w")}, "c", 4},
		{"after the last the first", "d", membership{"1": p("a", "x"), "2": p("b", "y"), "4": p("d", "v", "w")}, "a", 2},
		{"a large fleet", "gw30", large, "gw31", maxPeerCheckpoints},
	} {
		got := tt.in.checkpoints(tt.own)
		if len(got) != tt.n || tt.n > 0 && got[0] != tt.first || slices.Contains(got, tt.own) {
			t.Errorf("%s: got checkpoints %v", tt.name, got)
		}
	}
}

// TestHeadsReachOthers checks that checkpoints reach other gateways through Redis, up to the
// maximum, and stay known while Redis is down.
func TestHeadsReachOthers(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	one, two := join(t, s, "gw1", new(gateway)), join(t, s, "gw2", new(gateway))
	notes := []string{strings.Repeat("x", evidence.MaxPeerNote+1)}
	for i := range 2 * maxCheckpoints {
		notes = append(notes, fmt.Sprint("note ", i))
	}
	one.Publish(notes)
	var checkpoints []string
	redistest.Eventually(t, "gw2 knows the checkpoints", func() bool {
		two.Gateways(t.Context()) // reads them now
		checkpoints = two.Checkpoints()
		return len(checkpoints) > 0
	})
	if len(checkpoints) != maxCheckpoints || checkpoints[0] != "note 0" || len(one.Checkpoints()) != 0 {
		t.Errorf("checkpoints at gw2 = %v, at gw1 = %v, want the newest maxCheckpoints and none", checkpoints, one.Checkpoints())
	}
	s.Kill()
	if again := two.Checkpoints(); !slices.Equal(again, checkpoints) {
		t.Errorf("without redis, checkpoints = %v, want the same as before", again)
	}
}
