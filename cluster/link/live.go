package link

import (
	"context"
	"strings"
	"time"

	"github.com/redis/rueidis"
)

// patience is how many heartbeats in a row may fail, or follow another caller's failed call, before
// a new client is made.
const patience = 3

// Turns is the order of gateways, which is the same for all of them. The zero value is for a
// gateway that does not know it.
type Turns struct {
	Place, Of int       // from 0
	Kept      time.Time // the order stays until then, because Redis was away; zero if it never was
	placed    time.Time // when Redis assigned the place
	clock     int64
	heard     time.Time
}

// Time returns the time since 1970 by the clock of the Redis that has the order.
func (t Turns) Time() time.Duration {
	return time.Duration(t.clock)*time.Millisecond + time.Since(t.heard)
}

// known returns the number of gateways among which this one knows its place, see heartbeat.lua.
// Gateways may come and go without a change of their number, so after some time it asks again.
func (t Turns) known(sharing bool, now time.Time, again time.Duration) int {
	switch {
	case !sharing || t.Of > 0 && now.Before(t.Kept):
		return -1
	case now.Sub(t.placed) >= again:
		return 0
	}
	return t.Of
}

// after returns the order after an answer. Redis read its clock at some time during the call, so a
// slow call does not replace a reading that is only seconds older.
func (t Turns) after(place, of int, clock int64, asked, now time.Time) Turns {
	if place >= 0 {
		t.Place, t.Of, t.placed = place, of, now
	}
	if took := now.Sub(asked); took < 10*time.Millisecond || now.Sub(t.heard) > 10*time.Second {
		t.clock, t.heard = clock, asked.Add(took/2)
	}
	return t
}

// live sends heartbeats. It also notices when Redis is back.
func (l *Link) live(ctx context.Context) {
	tick := time.NewTicker(l.every)
	defer tick.Stop()
	for misses := 0; ctx.Err() == nil; {
		before := l.State()
		err := l.Beat(ctx)
		if err != nil && before.Up {
			err = l.Beat(ctx) // a late one is not reported; the error is in the state
		}
		if misses++; err == nil && before.Up {
			misses = 0
		}
		demoted := IsReadOnly(err) || !before.Up && IsReadOnly(before.Why)
		if (misses >= patience || demoted) && l.renew(ctx) {
			misses = 0
		}
		l.mu.Lock()
		watchers := l.watchers
		l.mu.Unlock()
		for _, w := range watchers {
			s := l.State()
			news := s.Up != w.told.Up || !s.Since.Equal(w.told.Since)
			w.told = s
			w.f(s, news)
		}
		select {
		case <-tick.C:
		case <-l.wake:
		case <-ctx.Done():
		}
	}
}

// renew makes a new client, uses it if Redis answers a heartbeat on it, and reports whether it did.
// A new client resolves the name again, and asks the sentinels or the cluster again for the
// primary. So it can find a new primary behind the name, or a connection whose packets arrive. A
// server that is only busy does not answer a new client either, and then the old client stays, with
// its calls.
//
// Calls on the old client have a second and a half to end. After that they fail with
// [rueidis.ErrClosing].
func (l *Link) renew(ctx context.Context) bool {
	old := l.Client()
	if old == nil {
		return false // each heartbeat connects
	}
	c, err := rueidis.NewClient(l.option)
	if err != nil {
		return false
	}
	l.beating.Lock()
	defer l.beating.Unlock()
	if l.tell(ctx, c, false) != nil {
		l.tasks.Go(c.Close)
		return false
	}
	l.client.Store(&c)
	l.tasks.Go(func() {
		select {
		case <-time.After(Timeout): // a caller has just requested it
		case <-ctx.Done():
		}
		old.Close()
	})
	return true
}

// IsReadOnly reports whether a server refused a write because it is a replica now. After a
// failover, the client stays with the old primary as long as it keeps its connection.
func IsReadOnly(err error) bool {
	_, refused := rueidis.IsRedisErr(err)
	return refused && strings.Contains(err.Error(), "READONLY") // inside another message if a script wrote
}
