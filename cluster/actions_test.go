package cluster

import (
	"context"
	"fmt"
	"testing"

	"github.com/crawlgate/crawlgate/pace/redisclock/redistest"
)

// TestActWaitsForTheFirstExchange checks that a gateway whose link is up when it joins, because its
// store uses the same Redis, does not perform earlier actions, and knows which of them are late.
func TestActWaitsForTheFirstExchange(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	s.Say(`XADD {crawlgate}:fleet:actions 1-1 action '{"id":"a","from":"other","kind":"purge","value":"old"}'`)
	s.Say(`XADD {crawlgate}:fleet:actions 1-2 action '{"id":"b","from":"other","kind":"unblock","value":"late"}'`)
	for last, want := range map[string]string{"": "[]", "1-1": "[late unblock late]"} {
		g := &gateway{last: last}
		f := &Fleet{config: Config{Local: g, Failed: func(err error) { t.Error(err) }}, link: linkTo(t, s.URL()), note: note{Done: map[string]ack{}}}
		if err := f.link.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.act(t.Context())
		f.sync(t.Context())
		f.act(t.Context())
		if acted, _ := g.done(); len(acted) > 0 {
			t.Errorf("last %q: the gateway performed %q before it knew the time of Redis", last, acted)
		}
		f.link.Announce(func() string { return "{}" })
		if err := f.link.Beat(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.act(t.Context())
		if acted, _ := g.done(); fmt.Sprint(acted) != want {
			t.Errorf("last %q: it did %q, want %s", last, acted, want)
		}
	}
}

// TestTellAfterALateCall checks that an action is sent even if another call, for example of the
// clocks, was late just before.
func TestTellAfterALateCall(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	f := join(t, s, "gw", new(gateway))
	for range 10 {
		f.link.Fail(context.DeadlineExceeded)
		if r := f.Tell(t.Context(), Purge, "x", 0); r.NotDelivered {
			t.Fatalf("Tell = %+v, want it delivered", r)
		}
	}
	if n := s.Say("XLEN {crawlgate}:fleet:actions"); n != ":10\r\n" {
		t.Errorf("redis has %q actions, want :10", n)
	}
}
