package redisclock

import (
	"context"
	"time"

	"github.com/redis/rueidis"
)

// live connects, and from then on says once a heartbeat that the gateway is
// alive. It is also what finds out that Redis is back.
func (k *Clock) live(ctx context.Context) {
	tick := time.NewTicker(k.config.Heartbeat)
	defer tick.Stop()
	for ctx.Err() == nil {
		if k.connect() {
			k.beat(ctx)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// connect makes the client, which needs Redis to be there once; later it
// reconnects by itself.
func (k *Clock) connect() bool {
	if k.client.Load() != nil {
		return true
	}
	c, err := rueidis.NewClient(k.option)
	if err != nil {
		k.away(err)
		return false
	}
	k.client.Store(&c)
	return true
}

func (k *Clock) beat(ctx context.Context) {
	bounded, cancel := context.WithTimeout(ctx, k.config.Timeout)
	defer cancel()
	before := time.Now()
	now, err := k.heartbeat(bounded, k.connection())
	if err != nil {
		if ctx.Err() == nil {
			k.away(err)
		}
		return
	}
	k.here(now, before, time.Now())
}

// here notes an answer of Redis.
func (k *Clock) here(now census, asked, answered time.Time) {
	k.mu.Lock()
	old, joined := k.state.Load(), k.joined
	next := &state{up: true, here: old.here, away: old.away, joined: old.joined, told: old.told, used: old.used, census: now}
	if !old.up {
		next.here = answered
	}
	if old.watch.fits(now.time, asked, answered) {
		next.watch = old.watch
	}
	next.watch = next.watch.saw(now.time, asked, answered)
	_, next.joins = next.watch.local(now.since)
	if now.alone {
		next.joins = next.joins.Add(joinBeats * k.config.Heartbeat)
	}
	if !next.shares(answered) && now.count <= old.census.count {
		// The others may not have come back yet, and turns are dealt out still.
		next.census.count, next.census.rank = old.census.count, old.census.rank
	}
	join := !old.joined && next.shares(answered)
	if join {
		next.joined, next.told, next.used = true, false, true
	}
	k.state.Store(next)
	k.mu.Unlock()
	k.config.Counted(now.count, now.rank)
	if !join {
		return
	}
	k.config.Changed(true, nil)
	if joined != nil {
		joined()
	}
}

// away notes that Redis does not answer. What is known of the gateways stays.
func (k *Clock) away(why error) {
	k.mu.Lock()
	old, now := k.state.Load(), time.Now()
	next := *old
	next.up, next.joined, next.told = false, false, true
	if old.shares(now) {
		next.away = now
	}
	k.state.Store(&next)
	k.mu.Unlock()
	if !old.told {
		k.config.Changed(false, why)
	}
}

// listen takes the blocks and the late requests that other gateways tell.
func (k *Clock) listen(ctx context.Context) {
	pause := time.NewTicker(k.config.Heartbeat)
	defer pause.Stop()
	for ctx.Err() == nil {
		if c := k.connection(); c != nil {
			// It ends with the connection, and always with an error.
			_ = c.Receive(ctx, c.B().Subscribe().Channel(k.channel(), k.lateChannel()).Build(), k.heard)
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

func (k *Clock) heard(m rueidis.PubSubMessage) {
	if m.Channel == k.lateChannel() {
		k.heardLate(m.Message)
		return
	}
	told, err := readMessage(m.Message)
	if err != nil || told.from == k.config.Name {
		return // not one of ours: only gateways write to the channel
	}
	k.mu.Lock()
	blocked := k.blocked
	k.mu.Unlock()
	if blocked != nil {
		blocked(told.key, told.pause, told.strikes)
	}
}

func (k *Clock) heardLate(text string) {
	told, err := readLate(text)
	if err != nil || told.from == k.config.Name {
		return // as above
	}
	k.mu.Lock()
	late := k.late
	k.mu.Unlock()
	if late != nil {
		_, at := k.state.Load().watch.local(told.began)
		late(told.key, at)
	}
}
