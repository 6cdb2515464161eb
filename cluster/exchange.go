package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/enforce"
)

// This file has the exchange of orders with Redis as pure functions. Redis has two hashes, one of
// orders and one of lifts, by the ids of the orders. A gateway merges the entries that it does not
// know, and adds the entries that Redis lacks. At first it compares all ids, and then only the
// changes since. Both sides only grow, so the result depends neither on the order in which gateways
// come nor on losses of Redis in between.

// ids are the ids that Redis has.
type ids struct{ orders, lifted map[string]bool }

// unknown returns the ids of the orders and lifts that a gateway has to read.
func unknown(mine enforce.StopSet, redis ids) (orders, lifts []string) {
	held := heldIDs(mine)
	for id := range redis.orders {
		if _, lifted := mine.Lifted[id]; !lifted && !held[id] {
			orders = append(orders, id)
		}
	}
	for id := range redis.lifted {
		if _, known := mine.Lifted[id]; !known {
			lifts = append(lifts, id)
		}
	}
	return orders, lifts
}

func heldIDs(o enforce.StopSet) map[string]bool {
	held := make(map[string]bool, len(o.Held))
	for _, order := range o.Held {
		held[order.ID] = true
	}
	return held
}

// write is the argument of write.lua.
type write struct {
	Orders    map[string]string `json:"orders,omitempty"`
	Lifted    map[string]string `json:"lifted,omitempty"` // also removes the orders
	Forgotten []string          `json:"forgotten,omitempty"`
	Actions   []string          `json:"actions,omitempty"`
}

func (w write) size() int {
	return len(w.Orders) + len(w.Lifted) + len(w.Forgotten) + len(w.Actions)
}

const (
	// maxWrite bounds one write, so that Redis is not busy with it for long. If there is more to
	// write, each gateway picks different entries, so together they soon fill a Redis that has lost
	// everything.
	maxWrite = 500
	// forgetAfter is how much later a lift is removed from Redis than gateways forget it. So a gateway
	// whose clock is a day behind does not bring back what another one removes.
	forgetAfter = 24 * time.Hour
)

// missing returns the write that a gateway owes Redis after it has merged the set it read: it adds
// its own orders and lifts that Redis lacks, and removes lifts that are too old.
func missing(mine enforce.StopSet, redis ids, read enforce.StopSet, now time.Time) (w write) {
	w.Orders, w.Lifted = map[string]string{}, map[string]string{}
	for _, order := range mine.Held {
		if !redis.orders[order.ID] && w.size() < maxWrite {
			w.Orders[order.ID] = text(order)
		}
	}
	for id, lift := range mine.Lifted {
		if (!redis.lifted[id] || redis.orders[id]) && lift.Remembered(now) && w.size() < maxWrite {
			w.Lifted[id] = text(lift)
		}
	}
	for id, lift := range read.Lifted {
		if !lift.Remembered(now.Add(-forgetAfter)) && w.size() < maxWrite {
			w.Forgotten = append(w.Forgotten, id)
		}
	}
	return w
}

// unsent returns the part of news that a gateway still has to write after it has read changes.
func unsent(news, read enforce.StopSet, now time.Time) (w write) {
	w.Orders, w.Lifted = map[string]string{}, map[string]string{}
	known := heldIDs(read)
	for _, order := range news.Held {
		if !known[order.ID] {
			w.Orders[order.ID] = text(order)
		}
	}
	for id, lift := range news.Lifted {
		if _, known := read.Lifted[id]; !known && lift.Remembered(now) {
			w.Lifted[id] = text(lift)
		}
	}
	return w
}

// changesSince reads the changes of orders after a version. It returns their orders and lifts, and
// the version that they lead to. That version is empty if the changes do not continue from the
// given one: Redis was restored from an old snapshot, an older gateway has written, or the stream
// does not reach back far enough. bad names a malformed entry.
func changesSince(version string, entries []rueidis.XRangeEntry) (read enforce.StopSet, after string, bad error) {
	read.Lifted = make(map[string]enforce.Lift)
	for _, e := range entries {
		var w write
		if e.FieldValues["from"] != version || json.Unmarshal([]byte(e.FieldValues["write"]), &w) != nil {
			return enforce.StopSet{}, "", nil
		}
		some, err := readOrders(w.Orders, w.Lifted)
		bad = cmp.Or(err, bad)
		read.Held = append(read.Held, some.Held...)
		maps.Copy(read.Lifted, some.Lifted)
		version, after = e.FieldValues["to"], e.FieldValues["to"]
	}
	return read, after, bad
}

// text returns the form of a value in Redis.
func text(v any) string {
	data, _ := json.Marshal(v) // strings and times: it cannot fail
	return string(data)
}

// maxValue is the longest value that is read, in bytes.
const maxValue = 64 << 10

// readOrders parses orders and lifts from Redis, by their ids. It leaves out malformed ones; the
// error names one of them.
func readOrders(orders, lifts map[string]string) (read enforce.StopSet, err error) {
	for id, value := range orders {
		order, bad := readOrder(id, value)
		if err = cmp.Or(bad, err); order.ID != "" {
			read.Held = append(read.Held, order)
		}
	}
	read.Lifted = make(map[string]enforce.Lift, len(lifts))
	for id, value := range lifts {
		if value == "" {
			continue
		}
		var lift enforce.Lift
		if bad := json.Unmarshal([]byte(value), &lift); bad != nil || !enforce.IsStopID(id) {
			err = fmt.Errorf("malformed lift %.80q in redis: %w", id, bad)
			continue
		}
		read.Lifted[id] = lift.Canonical()
	}
	return read, err
}

// readOrder parses one order. The order has no id if Redis no longer has it.
func readOrder(id, value string) (order enforce.Stop, err error) {
	if value == "" {
		return order, nil
	}
	if err = json.Unmarshal([]byte(value), &order); err == nil {
		order, err = order.Canonical()
	}
	if err == nil && (order.ID != id || !enforce.IsStopID(id)) {
		err = fmt.Errorf("its id is %.80q", order.ID)
	}
	if err != nil {
		return enforce.Stop{}, fmt.Errorf("malformed order %.80q in redis: %w", id, err)
	}
	return order, nil
}
