package enforce

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Orders are a set of orders, and the ids of those that were lifted. Sets of several gateways merge
// without clocks: an order holds unless a lift names its id. So a stop wins over a lift that did
// not know it, and nothing is lifted because it is missing somewhere.
//
// It is a value, which no method changes. Its JSON form is kept over restarts. The zero value is
// empty.
type Orders struct {
	// Held are the orders that hold. A merge may bring several that stop the same.
	Held []Kill
	// Lifted are the orders that were lifted, by their ids.
	Lifted map[string]Lift
}

// Lift is the end of an order.
type Lift struct {
	By string    `json:"by,omitempty"`
	At time.Time `json:"at"`
}

const (
	// maxKills bounds the orders that are given. People give them, or their scripts; KillAll stands
	// for more.
	maxKills = 10_000
	// maxMerged bounds the orders of all gateways together, and the lifts that are remembered: ten
	// gateways may each have reached their bound while they knew nothing of each other.
	maxMerged = 10 * maxKills
	// liftsKept is how long a lift is remembered. A gateway that comes back later, with an order in
	// its file that was lifted meanwhile, brings the order back: it stops too much, never too little.
	liftsKept = 90 * 24 * time.Hour
	maxID     = 64
)

// ErrTooManyKills is returned when there is no room for another order.
var ErrTooManyKills = errors.New("too many kill switch orders: lift some, or stop everything")

// Give adds a canonical order with an id. It takes the place of those with its scope and value,
// which are lifted.
func (o Orders) Give(order Kill) (Orders, error) {
	if !IsOrderID(order.ID) {
		return o, fmt.Errorf("id %.80q is not 1 to %d letters, digits and hyphens", order.ID, maxID)
	}
	after, _ := o.without(order.same, Lift{By: order.By, At: order.At})
	if len(after.Held) >= maxKills {
		return o, ErrTooManyKills
	}
	if _, lifted := after.Lifted[order.ID]; lifted || slices.ContainsFunc(o.Held, order.hasID) {
		return o, fmt.Errorf("there was an order %s before", order.ID)
	}
	after.Held = append(after.Held, order)
	return after, nil
}

// Lift ends all orders with the scope and value of a canonical one, and returns the newest of them.
// It reports whether there was one.
func (o Orders) Lift(order Kill, lift Lift) (after Orders, lifted Kill, found bool) {
	after, ended := o.without(order.same, lift)
	if len(ended) == 0 {
		return o, Kill{}, false
	}
	return after, ended[len(ended)-1], true
}

// without lifts some of the orders.
func (o Orders) without(ends func(Kill) bool, lift Lift) (after Orders, ended []Kill) {
	after.Held = make([]Kill, 0, len(o.Held)+1)
	after.Lifted = o.Lifted
	for _, order := range o.Held {
		if ends(order) {
			ended = append(ended, order)
		} else {
			after.Held = append(after.Held, order)
		}
	}
	if len(ended) > 0 {
		after.Lifted = maps.Clone(o.Lifted)
		if after.Lifted == nil {
			after.Lifted = make(map[string]Lift, len(ended))
		}
		for _, order := range ended {
			after.Lifted[order.ID] = lift
		}
	}
	return after, ended
}

// Merge adds what another gateway knows: the orders of both, less what either has lifted. Which of
// them comes first, or how often, makes no difference. Lifts that are older than 90 days at now are
// forgotten. The error says that there was no room for some orders; the others hold.
func (o Orders) Merge(other Orders, now time.Time) (Orders, error) {
	after := Orders{Lifted: make(map[string]Lift, len(o.Lifted)+len(other.Lifted))}
	maps.Copy(after.Lifted, o.Lifted)
	for id, lift := range other.Lifted {
		if known, ok := after.Lifted[id]; !ok || lift.before(known) {
			after.Lifted[id] = lift
		}
	}
	known := make(map[string]bool, len(o.Held)+len(other.Held))
	var err error
	for i, order := range slices.Concat(o.Held, other.Held) {
		if _, lifted := after.Lifted[order.ID]; lifted || known[order.ID] {
			continue
		}
		if i >= len(o.Held) && len(after.Held) >= maxMerged {
			err = ErrTooManyKills
			break
		}
		known[order.ID] = true
		after.Held = append(after.Held, order)
	}
	slices.SortStableFunc(after.Held, func(a, b Kill) int { return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID)) })
	after.Lifted = remembered(after.Lifted, now)
	return after, err
}

// before says which of two accounts of one lift is kept.
func (l Lift) before(other Lift) bool {
	return cmp.Or(l.At.Compare(other.At), cmp.Compare(l.By, other.By)) < 0
}

// Remembered reports whether a lift is young enough to be told to other gateways.
func (l Lift) Remembered(now time.Time) bool { return now.Sub(l.At) < liftsKept }

// remembered are the lifts that are kept: those of 90 days, and the newest if they are too many.
func remembered(lifts map[string]Lift, now time.Time) map[string]Lift {
	maps.DeleteFunc(lifts, func(_ string, l Lift) bool { return !l.Remembered(now) })
	if len(lifts) <= maxMerged {
		return lifts
	}
	ids := slices.SortedFunc(maps.Keys(lifts), func(a, b string) int { return lifts[a].At.Compare(lifts[b].At) })
	for _, id := range ids[:len(ids)-maxMerged] {
		delete(lifts, id)
	}
	return lifts
}

// ordersFile is the stored form.
type ordersFile struct {
	Version int             `json:"version"`
	Kills   []Kill          `json:"kills"`
	Lifted  map[string]Lift `json:"lifted,omitempty"`
}

const ordersFileVersion = 1

// MarshalJSON returns the whole set.
func (o Orders) MarshalJSON() ([]byte, error) {
	return json.Marshal(ordersFile{ordersFileVersion, append([]Kill{}, o.Held...), o.Lifted})
}

// UnmarshalJSON reads a stored set. On an error nothing changes.
func (o *Orders) UnmarshalJSON(data []byte) error {
	var f ordersFile
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("reading the kill switch: %w", err)
	}
	if f.Version != ordersFileVersion {
		return fmt.Errorf("reading the kill switch: version %d is not %d", f.Version, ordersFileVersion)
	}
	if max(len(f.Kills), len(f.Lifted)) > maxMerged {
		return fmt.Errorf("reading the kill switch: %w", ErrTooManyKills)
	}
	known := make(map[string]bool, len(f.Kills))
	for i, order := range f.Kills {
		order, err := order.Canonical()
		if err != nil {
			return fmt.Errorf("reading the kill switch: order %d: %w", i+1, err)
		}
		if !IsOrderID(order.ID) {
			return fmt.Errorf("reading the kill switch: order %d: %.80q is no id", i+1, order.ID)
		}
		if known[order.ID] {
			return errors.New("reading the kill switch: an order is there twice")
		}
		known[order.ID] = true
		f.Kills[i] = order
	}
	for id := range f.Lifted {
		if !IsOrderID(id) {
			return fmt.Errorf("reading the kill switch: %.80q is no id", id)
		}
	}
	*o = Orders{f.Kills, f.Lifted}
	return nil
}

// IsOrderID reports whether a text can be the id of an order.
func IsOrderID(id string) bool {
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}
