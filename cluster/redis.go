package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // the scripts
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/enforce"
)

var (
	//go:embed write.lua
	writeSource string
	//go:embed read.lua
	readSource string
	//go:embed answers.lua
	answersSource string

	writeScript   = rueidis.NewLuaScript(writeSource)
	readScript    = rueidis.NewLuaScript(readSource)
	answersScript = rueidis.NewLuaScript(answersSource)
)

const (
	// maxRounds bounds the reads and writes of one turn; the next turn continues.
	maxRounds = 64
	// maxProcesses is how many gateways are read, and maxIDs is how many orders.
	maxProcesses = 1000
	maxIDs       = 250_000
	// maxChanges is how many changes of orders Redis keeps. maxChange is the most bytes of one change.
	maxChanges = 1000
	maxChange  = 8 << 10
	// changesRead bounds one read of changes.
	changesRead = 100
	// wholeEvery is how often a gateway compares all ids, regardless of the changes.
	wholeEvery = 24 * time.Hour
)

// exchange merges the orders here with those in Redis, until both are the same.
func (f *Fleet) exchange(ctx context.Context, c rueidis.Client) error {
	changed := f.changed.Swap(false)
	for range maxRounds {
		version, err := f.readVersion(ctx, c)
		if err != nil {
			f.changed.Store(true)
			return fmt.Errorf("reading the version of the orders in redis: %w", err)
		}
		if version == f.seen && !changed && time.Since(f.whole) <= wholeEvery {
			return nil
		}
		done, follows, err := f.follow(ctx, c, version)
		if !follows && err == nil {
			done, err = f.round(ctx, c, version)
		}
		if err != nil {
			f.changed.Store(true)
			return err
		}
		changed = !done
	}
	f.changed.Store(true)
	return nil
}

// follow merges the changes since the last merged version, and writes the orders that this gateway
// was given since then. done reports whether there was nothing to write. follows is false if Redis
// cannot list the changes: then a full round is needed.
func (f *Fleet) follow(ctx context.Context, c rueidis.Client, version string) (done, follows bool, err error) {
	if time.Since(f.whole) > wholeEvery {
		return false, false, nil
	}
	var read enforce.StopSet
	if version != f.seen {
		bounded, cancel := context.WithTimeout(ctx, link.Timeout)
		defer cancel()
		from := strconv.FormatInt(number(f.seen)+1, 10)
		entries, err := c.Do(bounded, c.B().Xrange().Key(f.link.Key("changes")).Start(from).End("+").Count(changesRead).Build()).AsXRange()
		if err != nil && !rueidis.IsRedisNil(err) {
			return false, false, fmt.Errorf("reading changes of orders in redis: %w", err)
		}
		var bad error
		if read, version, bad = changesSince(f.seen, entries); version == "" {
			return false, false, nil
		}
		if bad != nil {
			f.config.Failed(bad)
		}
	}
	mine := f.config.Local.Orders()
	f.merge(mine, read.Since(mine))
	mine = f.config.Local.Orders()
	w := unsent(mine.Since(f.shared), read, time.Now())
	if w.size() > maxWrite {
		return false, false, nil
	}
	if w.size() > 0 {
		if _, err := f.send(ctx, c, w); err != nil {
			return false, true, fmt.Errorf("writing orders to redis: %w", err)
		}
		return false, true, nil // the next look shows by the version whether Redis kept it
	}
	f.merged(mine, version)
	return true, true, nil
}

// merged records that this gateway and Redis have the same orders, as of a version.
func (f *Fleet) merged(mine enforce.StopSet, version string) {
	f.seen = version
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shared, f.state.Pending = mine, 0
	f.note.Version, f.state.Version = number(version), number(version)
}

// round compares all ids, reads the orders that are unknown here, and writes the orders that Redis
// lacks. It reports whether there was nothing to write.
func (f *Fleet) round(ctx context.Context, c rueidis.Client, version string) (done bool, err error) {
	redis, err := f.readIDs(ctx, c)
	if err != nil {
		return false, fmt.Errorf("reading the ids of the orders in redis: %w", err)
	}
	mine := f.config.Local.Orders()
	read, err := f.readUnknown(ctx, c, mine, redis)
	if err != nil {
		return false, fmt.Errorf("reading orders in redis: %w", err)
	}
	f.merge(mine, read)
	mine = f.config.Local.Orders()
	w := missing(mine, redis, read, time.Now())
	if w.size() == 0 {
		f.whole = time.Now()
		f.merged(mine, version)
		return true, nil
	}
	if _, err := f.send(ctx, c, w); err != nil {
		return false, fmt.Errorf("writing orders to redis: %w", err)
	}
	return false, nil
}

// merge merges the orders that were read, and acknowledges the new ones.
func (f *Fleet) merge(mine, read enforce.StopSet) {
	if len(read.Held)+len(read.Lifted) == 0 {
		return
	}
	ended := f.config.Local.Merge(read)
	after := f.config.Local.Orders()
	noRoom := heldIDs(read.Since(after))
	for _, order := range read.Held {
		if _, lifted := after.Lifted[order.ID]; !noRoom[order.ID] || lifted {
			f.ack(order.ID, ended[order.ID])
		}
	}
	for id := range read.Lifted {
		if _, known := mine.Lifted[id]; !known {
			f.ack(LiftOf(id), 0)
		}
	}
}

// LiftOf is the id under which the acknowledgements of a lift are stored.
func LiftOf(orderID string) string { return orderID + "/lift" }

// number returns the number in a version.
func number(version string) int64 {
	digits, _, _ := strings.Cut(version, " ")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

func (f *Fleet) send(ctx context.Context, c rueidis.Client, w write) (action string, err error) {
	ctx, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	keys := []string{f.link.Key("orders"), f.link.Key("lifted"), f.link.Key("version"), f.link.Key("actions"), f.link.Key("changes")}
	args := []string{f.channel(), rand.Text(), text(w), strconv.Itoa(maxActions), strconv.Itoa(maxChanges), strconv.Itoa(maxChange)}
	return writeScript.Exec(ctx, c, keys, args).ToString()
}

var errTooMany = errors.New("there are too many of them in redis")

// readVersion reads the version, empty for none.
func (f *Fleet) readVersion(ctx context.Context, c rueidis.Client) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	version, err := c.Do(ctx, c.B().Get().Key(f.link.Key("version")).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return version, err
}

// readIDs reads which orders and lifts there are.
func (f *Fleet) readIDs(ctx context.Context, c rueidis.Client) (read ids, err error) {
	bounded, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	orders, lifted := f.link.Key("orders"), f.link.Key("lifted")
	for _, answer := range c.DoMulti(bounded, c.B().Hlen().Key(orders).Build(), c.B().Hlen().Key(lifted).Build()) {
		if n, err := answer.AsInt64(); err != nil || n > maxIDs {
			return read, cmp.Or(err, errTooMany)
		}
	}
	var sets [2]map[string]bool
	bounded, cancel = context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	for i, answer := range c.DoMulti(bounded, c.B().Hkeys().Key(orders).Build(), c.B().Hkeys().Key(lifted).Build()) {
		list, err := answer.AsStrSlice()
		if err != nil {
			return read, err
		}
		sets[i] = make(map[string]bool, len(list))
		for _, id := range list {
			sets[i][id] = true
		}
	}
	return ids{orders: sets[0], lifted: sets[1]}, nil
}

// readUnknown reads the orders and lifts that are not known here.
func (f *Fleet) readUnknown(ctx context.Context, c rueidis.Client, mine enforce.StopSet, redis ids) (read enforce.StopSet, err error) {
	orderIDs, liftIDs := unknown(mine, redis)
	orders, err := f.values(ctx, c, readScript, "orders", strconv.Itoa(maxValue), orderIDs)
	if err != nil {
		return read, err
	}
	lifts, err := f.values(ctx, c, readScript, "lifted", strconv.Itoa(maxValue), liftIDs)
	if err != nil {
		return read, err
	}
	read, bad := readOrders(orders, lifts)
	if bad != nil {
		f.config.Failed(bad)
	}
	return read, nil
}

// values reads fields of a hash by a script, whose first argument is first; a missing one is empty.
func (f *Fleet) values(ctx context.Context, c rueidis.Client, script *rueidis.Lua, hash, first string, fields []string) (map[string]string, error) {
	values := make(map[string]string, len(fields))
	for some := range slices.Chunk(fields, maxWrite) {
		bounded, cancel := context.WithTimeout(ctx, link.Timeout)
		args := append([]string{first}, some...)
		list, err := script.Exec(bounded, c, []string{f.link.Key(hash)}, args).AsStrSlice()
		cancel()
		if err != nil {
			return nil, err
		}
		if len(list) != len(some) {
			return nil, fmt.Errorf("redis has answered with %d values, not %d", len(list), len(some))
		}
		for i, field := range some {
			values[field] = list[i]
		}
	}
	return values, nil
}

// readMembership reads the gateways and their notes: all notes, or only the notes of gateways that
// are new or have become silent.
func (f *Fleet) readMembership(ctx context.Context, c rueidis.Client, all bool) error {
	bounded, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	beats, err := c.Do(bounded, c.B().Zrange().Key(f.link.Key("gateways")).Min("0").Max(strconv.Itoa(maxProcesses-1)).Rev().Withscores().Build()).AsZScores()
	if err != nil {
		return fmt.Errorf("reading the gateways in redis: %w", err)
	}
	known, now := f.known(), f.link.Now()
	read := make(membership, len(beats))
	var names []string
	for _, b := range beats {
		p, ok := known[b.Member]
		p.last = int64(b.Score)
		read[b.Member] = p
		if all || !ok || p.Since == 0 || p.last <= now-link.AliveFor.Milliseconds() {
			names = append(names, b.Member)
		}
	}
	notes, err := f.values(bounded, c, readScript, "acks", strconv.Itoa(maxValue), names)
	if err != nil {
		return fmt.Errorf("reading the answers of gateways in redis: %w", err)
	}
	for name, said := range notes {
		p := process{last: read[name].last}
		delete(read, name)
		if said == "" {
			continue
		}
		if err := json.Unmarshal([]byte(said), &p.note); err != nil {
			f.config.Failed(fmt.Errorf("what gateway %.80q says of itself in redis cannot be read: %w", name, err))
			continue
		}
		read[name] = p
	}
	f.learn(read)
	return nil
}

// readAnswers reads the answers of gateways to an order.
func (f *Fleet) readAnswers(ctx context.Context, c rueidis.Client, id string, processes []string) error {
	answers, err := f.values(ctx, c, answersScript, "acks", id, processes)
	if err != nil {
		return fmt.Errorf("reading the answers of gateways in redis: %w", err)
	}
	known, read := f.known(), membership{}
	for name, answer := range answers {
		var a ack
		if p, ok := known[name]; ok && json.Unmarshal([]byte(answer), &a) == nil {
			p.Done = maps.Clone(p.Done)
			if p.Done == nil {
				p.Done = map[string]ack{}
			}
			p.Done[id] = a
			read[name] = p
		}
	}
	f.learn(read)
	return nil
}

func (f *Fleet) known() membership {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.membership
}

func (f *Fleet) learn(read membership) {
	now := f.link.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.membership = f.membership.with(read, now)
}

// Share returns the value that the gateways of the fleet share under a name: the one that a gateway
// stored first. It does not wait for a Redis that is away.
func (f *Fleet) Share(ctx context.Context, name string, fresh []byte) ([]byte, error) {
	c := f.link.Client()
	if c == nil {
		return nil, errors.New("redis has not answered yet")
	}
	ctx, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	key := f.link.Key(name)
	answers := c.DoMulti(ctx, c.B().Set().Key(key).Value(rueidis.BinaryString(fresh)).Nx().Build(), c.B().Get().Key(key).Build())
	shared, err := answers[1].AsBytes()
	if err != nil {
		return nil, fmt.Errorf("sharing %s through redis: %w", name, err)
	}
	return shared, nil
}
