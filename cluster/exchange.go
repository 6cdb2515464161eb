package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// The exchange of orders with Redis, as pure functions. Redis has two hashes, one of orders and one
// of lifts, by the ids of the orders. A gateway merges those it does not know, and adds those that
// Redis lacks. Both sides only grow. So the result depends neither on the order in which gateways
// come nor on what Redis loses in between.

// ids are those that Redis has.
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

// write is what write.lua makes of its argument.
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
	// maxWrite bounds one write, so that Redis is not busy with it for long. Of more, each gateway
	// takes others: a Redis that has lost all is soon filled by all of them.
	maxWrite = 500
	// forgetAfter is when a lift is removed from Redis. It is a day longer than gateways remember it,
	// so that one whose clock is behind does not bring back what another one removes.
	forgetAfter = 24 * time.Hour
)

// missing returns what a gateway has to write after it has merged what it read: its own orders and
// lifts that are not in Redis, and the lifts that are too old.
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

// pending counts what a gateway has and Redis has not.
func pending(mine enforce.StopSet, redis ids, now time.Time) (n int) {
	for _, order := range mine.Held {
		if !redis.orders[order.ID] {
			n++
		}
	}
	for id, lift := range mine.Lifted {
		if !redis.lifted[id] && lift.Remembered(now) {
			n++
		}
	}
	return n
}

// text is the form in which Redis has a value.
func text(v any) string {
	data, _ := json.Marshal(v) // strings and times: it cannot fail
	return string(data)
}

// maxValue is the longest value that is read, in bytes.
const maxValue = 64 << 10

// readOrders reads orders and lifts as Redis has them. It leaves out malformed ones; the error
// names one of these.
func readOrders(orderIDs, orders, liftIDs, lifts []string) (read enforce.StopSet, err error) {
	if len(orders) != len(orderIDs) || len(lifts) != len(liftIDs) {
		return read, fmt.Errorf("redis has answered for %d orders and %d lifts, not %d and %d",
			len(orders), len(lifts), len(orderIDs), len(liftIDs))
	}
	for i, id := range orderIDs {
		order, bad := readOrder(id, orders[i])
		if err = cmp.Or(bad, err); order.ID != "" {
			read.Held = append(read.Held, order)
		}
	}
	read.Lifted = make(map[string]enforce.Lift, len(liftIDs))
	for i, id := range liftIDs {
		if lifts[i] == "" {
			continue
		}
		var lift enforce.Lift
		if bad := json.Unmarshal([]byte(lifts[i]), &lift); bad != nil || !enforce.IsStopID(id) {
			err = fmt.Errorf("malformed lift %.80q in redis: %w", id, bad)
			continue
		}
		read.Lifted[id] = lift
	}
	return read, err
}

// readOrder reads one order. The order has no id if Redis does not have it any more.
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
