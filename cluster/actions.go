package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/cluster/link"
)

// Kind says what an action does.
type Kind string

// The kinds of actions.
const (
	Purge   Kind = "purge"   // forget an origin
	Refresh Kind = "refresh" // fetch its robots.txt
	Unblock Kind = "unblock" // end the back-off of a clock
)

// Action is something that each gateway does once. Unlike an order, it has no lasting effect.
type Action struct {
	ID    string `json:"id"`
	From  string `json:"from"` // the process
	Kind  Kind   `json:"kind"`
	Value string `json:"value"`
	// Late says that the action is older than a minute: the gateway was cut off in the meantime.
	Late bool `json:"-"`
}

const (
	// maxActions bounds the stream in Redis. The stream may be slightly longer.
	maxActions = 10_000
	// actionRate is how many actions per second a gateway sends to others. Further actions wait.
	actionRate = 100
	// actionsRead bounds one read of the stream.
	actionsRead = 256
	lateAfter   = time.Minute
	// maxQueued bounds the actions that wait for Redis. maxDid bounds the remembered actions of
	// others.
	maxQueued = 1000
	maxDid    = 1024
)

// upToDate takes entries of the stream, which should begin with the last action that this gateway
// has done, and returns the actions after it. If that action is missing, others were lost: Redis
// was restored from an old snapshot, or the gateway was away for longer than the stream reaches
// back.
func upToDate(last string, entries []rueidis.XRangeEntry) (next []rueidis.XRangeEntry, lost bool) {
	switch {
	case last == "":
		return entries, false
	case len(entries) == 0 || entries[0].ID != last:
		return nil, true
	}
	return entries[1:], false
}

// readAction reads an entry of the stream at now, by Redis's clock in ms.
func readAction(e rueidis.XRangeEntry, now int64) (a Action, err error) {
	value := e.FieldValues["action"]
	if len(value) > maxValue {
		return a, fmt.Errorf("action %s in redis has %d bytes", e.ID, len(value))
	}
	if err := json.Unmarshal([]byte(value), &a); err != nil {
		return a, fmt.Errorf("malformed action %s in redis: %w", e.ID, err)
	}
	ms, _, _ := strings.Cut(e.ID, "-")
	at, err := strconv.ParseInt(ms, 10, 64)
	if err != nil {
		return a, fmt.Errorf("action %.80q in redis has no time: %w", e.ID, err)
	}
	a.Late = now-at > lateAfter.Milliseconds()
	return a, nil
}

// act does the new actions of other gateways. A gateway that has not exchanged orders yet does not
// know where to start, and without Redis's clock it does not know which actions are late.
func (f *Fleet) act(ctx context.Context) {
	if f.State().Up && f.link.State().Up && f.link.Now() != 0 {
		c := f.link.Client()
		if err := errors.Join(f.doActions(ctx, c), f.sendQueued(ctx, c)); err != nil && ctx.Err() == nil {
			f.config.Failed(fmt.Errorf("exchanging actions with redis: %w", err))
		}
	}
}

// queue keeps an action until Redis is back, and reports whether it did. It does not keep an
// unblock, because the site may send another 429 until then. An action replaces an equal one in
// the queue, which may already have reached others although its answer was lost.
func (f *Fleet) queue(a Action) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued = slices.DeleteFunc(f.queued, func(q Action) bool { return q.Kind == a.Kind && q.Value == a.Value })
	if a.Kind == Unblock || len(f.queued) >= maxQueued {
		return false
	}
	f.queued = append(f.queued, a)
	return true
}

// sendQueued sends the queued actions to the other gateways. If Redis took an action but its
// answer was lost, it is sent twice. The others recognise it by its id.
func (f *Fleet) sendQueued(ctx context.Context, c rueidis.Client) error {
	f.mu.Lock()
	waiting := slices.Clone(f.queued[:min(len(f.queued), actionRate)])
	f.mu.Unlock()
	if len(waiting) == 0 {
		return nil
	}
	w := write{Actions: make([]string, len(waiting))}
	for i, a := range waiting {
		w.Actions[i] = text(a)
	}
	if _, err := f.send(ctx, c, w); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queued = slices.DeleteFunc(f.queued, func(q Action) bool {
		return slices.ContainsFunc(waiting, func(w Action) bool { return w.ID == q.ID })
	})
	return nil
}

// skipToEnd makes a new gateway start after the actions that are already in the stream.
func (f *Fleet) skipToEnd(ctx context.Context, c rueidis.Client) error {
	if f.joined = f.joined || f.config.Local.LastAction() != ""; f.joined {
		return nil
	}
	if err := f.keepEnd(ctx, c, "+"); err != nil {
		return err
	}
	f.joined = true
	return nil
}

// keepEnd records the last action of the stream up to an id as the last one done.
func (f *Fleet) keepEnd(ctx context.Context, c rueidis.Client, upTo string) error {
	ctx, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	last, err := c.Do(ctx, c.B().Xrevrange().Key(f.link.Key("actions")).End(upTo).Start("-").Count(1).Build()).AsXRange()
	if err != nil {
		return fmt.Errorf("reading actions from redis: %w", err)
	}
	end := ""
	if len(last) > 0 {
		end = last[0].ID
	}
	f.config.Local.KeepAction(end)
	return nil
}

func (f *Fleet) doActions(ctx context.Context, c rueidis.Client) error {
	for last := f.config.Local.LastAction(); ; {
		bounded, cancel := context.WithTimeout(ctx, link.Timeout)
		entries, err := c.Do(bounded, c.B().Xrange().Key(f.link.Key("actions")).Start(cmp.Or(last, "-")).End("+").Count(actionsRead).Build()).AsXRange()
		cancel()
		if err != nil && !rueidis.IsRedisNil(err) {
			return err
		}
		next, lost := upToDate(last, entries)
		if lost {
			next = entries // older ones were done already
			if err := f.keepEnd(ctx, c, last); err != nil {
				return err
			}
			f.config.Local.Lost()
		}
		if len(next) == 0 {
			return nil
		}
		for _, entry := range next {
			f.do(ctx, entry)
			last = entry.ID
		}
		f.config.Local.KeepAction(last)
	}
}

// do does an action, if another gateway gave it.
func (f *Fleet) do(ctx context.Context, entry rueidis.XRangeEntry) {
	a, err := readAction(entry, f.link.Now())
	if err == nil && a.From != f.link.Process && !slices.Contains(f.did, a.ID) {
		f.did = append(f.did[max(0, len(f.did)+1-maxDid):], a.ID)
		var n int
		n, err = f.config.Local.Act(ctx, a)
		if err == nil {
			f.ack(a.ID, n)
		}
	}
	if err != nil {
		f.config.Failed(err)
	}
}

// Tell makes all other gateways do an action that this one has already done. ended is how many
// things it ended here.
func (f *Fleet) Tell(ctx context.Context, kind Kind, value string, ended int) Acknowledgements {
	if f == nil {
		return Acknowledgements{}
	}
	a := Action{ID: rand.Text(), From: f.link.Process, Kind: kind, Value: value}
	err := f.actions.Wait(ctx)
	f.ack(a.ID, ended)
	if err == nil {
		f.syncMu.Lock()
		if !f.link.State().Up { // perhaps because another caller's call was late
			err = f.link.Beat(ctx)
		}
		if err == nil {
			_, err = f.send(ctx, f.link.Client(), write{Actions: []string{text(a)}})
		}
		f.syncMu.Unlock()
	}
	report := f.answers(ctx, a.ID)
	report.Pending = false
	if err != nil {
		f.config.Failed(fmt.Errorf("telling the other gateways: %w", err))
		report.Pending = f.queue(a)
		report.NotDelivered = !report.Pending
	}
	return report
}
