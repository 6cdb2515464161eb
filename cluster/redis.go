package cluster

import (
	"cmp"
	"context"
	"crypto/rand"
	_ "embed" // the scripts
	"encoding/json"
	"errors"
	"fmt"
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

	writeScript = rueidis.NewLuaScript(writeSource)
	readScript  = rueidis.NewLuaScript(readSource)
)

const (
	// maxRounds bounds the reads and writes of one turn; the next one goes on.
	maxRounds = 64
	// maxProcesses is how many gateways are read, and maxIDs how many orders.
	maxProcesses = 1000
	maxIDs       = 250_000
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
		if version == f.seen && !changed {
			return nil
		}
		done, err := f.round(ctx, c)
		if err != nil {
			f.changed.Store(true)
			return err
		}
		if done {
			f.seen = version
			f.mu.Lock()
			f.note.Version, f.state.Version = number(version), number(version)
			f.mu.Unlock()
			return nil
		}
	}
	f.changed.Store(true)
	return nil
}

// round reads the orders that are unknown here, and writes those that Redis lacks. It reports
// whether there was nothing to write.
func (f *Fleet) round(ctx context.Context, c rueidis.Client) (done bool, err error) {
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
	f.mu.Lock()
	f.redis, f.state.Pending = redis, pending(mine, redis, time.Now())
	f.mu.Unlock()
	w := missing(mine, redis, read, time.Now())
	if w.size() == 0 {
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
	held := heldIDs(after)
	for _, order := range read.Held {
		if _, lifted := after.Lifted[order.ID]; held[order.ID] || lifted {
			f.ack(order.ID, ended[order.ID])
		}
	}
	for id := range read.Lifted {
		if _, known := mine.Lifted[id]; !known {
			f.ack(LiftOf(id), 0)
		}
	}
}

// LiftOf is the id by which the answers to the lift of an order are found.
func LiftOf(orderID string) string { return orderID + "/lift" }

// number is the number of a version.
func number(version string) int64 {
	digits, _, _ := strings.Cut(version, " ")
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

func (f *Fleet) send(ctx context.Context, c rueidis.Client, w write) (action string, err error) {
	ctx, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	keys := []string{f.link.Key("orders"), f.link.Key("lifted"), f.link.Key("version"), f.link.Key("actions")}
	args := []string{f.channel(), rand.Text(), text(w), strconv.Itoa(maxActions)}
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
	for name, set := range map[string]*map[string]bool{"orders": &read.orders, "lifted": &read.lifted} {
		bounded, cancel := context.WithTimeout(ctx, link.Timeout)
		defer cancel()
		if n, err := c.Do(bounded, c.B().Hlen().Key(f.link.Key(name)).Build()).AsInt64(); err != nil || n > maxIDs {
			return read, cmp.Or(err, errTooMany)
		}
		list, err := c.Do(bounded, c.B().Hkeys().Key(f.link.Key(name)).Build()).AsStrSlice()
		if err != nil {
			return read, err
		}
		*set = make(map[string]bool, len(list))
		for _, id := range list {
			(*set)[id] = true
		}
	}
	return read, nil
}

// readUnknown reads the orders and lifts that are not known here.
func (f *Fleet) readUnknown(ctx context.Context, c rueidis.Client, mine enforce.StopSet, redis ids) (read enforce.StopSet, err error) {
	orderIDs, liftIDs := unknown(mine, redis)
	orders, err := f.values(ctx, c, "orders", orderIDs)
	if err != nil {
		return read, err
	}
	lifts, err := f.values(ctx, c, "lifted", liftIDs)
	if err != nil {
		return read, err
	}
	read, bad := readOrders(orderIDs, orders, liftIDs, lifts)
	if bad != nil {
		f.config.Failed(bad)
	}
	return read, nil
}

// values reads fields of a hash; a missing one is empty.
func (f *Fleet) values(ctx context.Context, c rueidis.Client, hash string, fields []string) (values []string, err error) {
	values = make([]string, 0, len(fields))
	for some := range slices.Chunk(fields, maxWrite) {
		bounded, cancel := context.WithTimeout(ctx, link.Timeout)
		args := append([]string{strconv.Itoa(maxValue)}, some...)
		list, err := readScript.Exec(bounded, c, []string{f.link.Key(hash)}, args).AsStrSlice()
		cancel()
		if err != nil {
			return nil, err
		}
		if len(list) != len(some) {
			return nil, fmt.Errorf("redis has answered with %d values, not %d", len(list), len(some))
		}
		values = append(values, list...)
	}
	return values, nil
}

// readMembership reads the gateways and their notes.
func (f *Fleet) readMembership(ctx context.Context, c rueidis.Client) error {
	bounded, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	beats, err := c.Do(bounded, c.B().Zrange().Key(f.link.Key("gateways")).Min("0").Max(strconv.Itoa(maxProcesses-1)).Rev().Withscores().Build()).AsZScores()
	if err != nil {
		return fmt.Errorf("reading the gateways in redis: %w", err)
	}
	names := make([]string, len(beats))
	for i, b := range beats {
		names[i] = b.Member
	}
	notes, err := f.values(bounded, c, "acks", names)
	if err != nil {
		return fmt.Errorf("reading the answers of gateways in redis: %w", err)
	}
	read := make(membership, len(names))
	for i, b := range beats {
		p := process{last: int64(b.Score)}
		if notes[i] == "" {
			continue
		}
		if err := json.Unmarshal([]byte(notes[i]), &p.note); err != nil {
			f.config.Failed(fmt.Errorf("what gateway %.80q says of itself in redis cannot be read: %w", b.Member, err))
			continue
		}
		read[b.Member] = p
	}
	now := f.link.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.membership = f.membership.with(read, now)
	return nil
}
