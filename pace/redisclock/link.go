package redisclock

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/redis/rueidis"
)

// aliveHeartbeats is how many heartbeats a gateway may miss before it counts no more.
const aliveHeartbeats = 5

// state is what the clock knows of Redis and the gateways. It is replaced, never changed.
type state struct {
	up        bool      // Redis answers
	since     time.Time // since when that is so
	reported  bool      // that Redis is away has been reported
	gateways  int
	roundTrip time.Duration // of the last heartbeat
}

// live connects, and from then on reports once a heartbeat that the gateway is alive. It is also
// what finds out that Redis is back.
func (k *Clock) live(ctx context.Context) {
	tick := time.NewTicker(k.config.Heartbeat)
	defer tick.Stop()
	for ctx.Err() == nil {
		if c, err := k.link.Connect(); err != nil {
			k.setDown(err)
		} else {
			k.heartbeat(ctx, c)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

func (k *Clock) heartbeat(ctx context.Context, c rueidis.Client) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	args := []string{k.config.Name, micros(aliveHeartbeats * k.config.Heartbeat)}
	asked := time.Now()
	n, err := heartbeatScript.Exec(bounded, c, []string{k.key("gateways")}, args).AsInt64()
	if err == nil {
		k.setUp(int(n), time.Since(asked))
	} else if ctx.Err() == nil {
		k.setDown(fmt.Errorf("sending a heartbeat to redis: %w", err))
	}
}

// setUp records an answer of Redis.
func (k *Clock) setUp(count int, roundTrip time.Duration) {
	k.mu.Lock()
	old, back := k.state.Load(), k.back
	next := &state{up: true, since: old.since, gateways: count, roundTrip: roundTrip}
	if !old.up {
		next.since = time.Now()
	}
	if time.Since(next.since) < aliveHeartbeats*k.config.Heartbeat {
		next.gateways = max(count, old.gateways) // others may not have come back yet
	}
	k.state.Store(next)
	k.mu.Unlock()
	k.config.Counted(count)
	if old.up {
		return
	}
	k.config.Changed(true, nil)
	if back != nil {
		back()
	}
}

// setDown records that Redis does not answer. The last known number of gateways stays.
func (k *Clock) setDown(why error) {
	k.mu.Lock()
	old := k.state.Load()
	next := *old
	next.up, next.reported = false, true
	if old.up {
		next.since = time.Now()
	}
	k.state.Store(&next)
	k.mu.Unlock()
	if !old.reported {
		k.config.Changed(false, why)
	}
}

// receive passes on a block that another gateway has announced.
func (k *Clock) receive(text string) {
	var block message
	if json.Unmarshal([]byte(text), &block) != nil || block.From == k.config.Name {
		return // not one of ours: only gateways write to the channel
	}
	k.mu.Lock()
	blocked := k.blocked
	k.mu.Unlock()
	if blocked != nil {
		blocked(block.Key, block.Pause, block.Strikes)
	}
}

// message tells other gateways of a block, or without a pause of its end.
type message struct {
	From    string        `json:"from"`
	Key     string        `json:"key"`
	Pause   time.Duration `json:"pause,omitempty"`
	Strikes int           `json:"strikes,omitempty"`
}

// String is the form that is sent.
func (m message) String() string {
	text, _ := json.Marshal(m) // strings and numbers: it cannot fail
	return string(text)
}

// LastMembership is what a gateway should remember of the others over a restart, for a start while
// Redis is away ([Config.Gateways]). It is a value.
type LastMembership struct {
	// Gateways is how many there were.
	Gateways int `json:"gateways"`

	fewer time.Time // since when there are fewer; zero if there are not
}

// fewerFor is how long there must be fewer gateways before that is believed. The gateways of a
// fleet that is shut down one by one must not each come back as the only one.
const fewerFor = time.Hour

// Counted is the membership after a count.
func (m LastMembership) Counted(gateways int, now time.Time) LastMembership {
	switch {
	case gateways >= m.Gateways:
		return LastMembership{Gateways: gateways}
	case m.fewer.IsZero():
		m.fewer = now
	case now.Sub(m.fewer) >= fewerFor:
		return LastMembership{Gateways: gateways}
	}
	return m
}
