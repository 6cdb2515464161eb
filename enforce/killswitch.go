package enforce

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
)

// KillScope says what a [Kill] stops.
type KillScope string

// The scopes of a kill.
const (
	// KillAll stops every request.
	KillAll KillScope = "all"
	// KillHost stops requests to the hosts of a [HostPattern].
	KillHost KillScope = "host"
	// KillAgent stops requests of an agent.
	KillAgent KillScope = "agent"
)

// Kill is one order to stop, with its author and reason. Its JSON form is stored and is part of the
// admin API.
type Kill struct {
	// ID tells the order from all others, at whichever gateway they were given.
	ID    string    `json:"id,omitempty"`
	Scope KillScope `json:"scope"`
	// Value is the host pattern or the agent's name; empty for all. Canonical once set.
	Value string `json:"value,omitempty"`
	// By names the author of the order, Reason says why: a line each, which may be empty.
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// KillSwitch stops requests at run time. It stands above everything else that is decided and holds
// in every mode.
//
// The zero value stops nothing. All methods are safe for concurrent use; every Match that starts
// after Set or Update returned sees the change.
type KillSwitch struct {
	writing sync.Mutex
	state   atomic.Pointer[killState]
}

// killState is a snapshot, which never changes.
type killState struct {
	orders Orders
	byKey  map[string]*Kill // by Kill.key
	hosts  hostIndex[*Kill]
}

// Set gives an order, by default with a random id. It replaces one with the same scope and value.
func (k *KillSwitch) Set(order Kill) error {
	order, err := order.Canonical()
	if err != nil {
		return fmt.Errorf("setting the kill switch: %w", err)
	}
	order.ID = cmp.Or(order.ID, rand.Text())
	return k.Update(func(o Orders) (Orders, error) { return o.Give(order) })
}

// Update replaces the orders by what change makes of them. One change is made at a time. On an
// error nothing changes.
func (k *KillSwitch) Update(change func(Orders) (Orders, error)) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	after, err := change(k.Orders())
	if err != nil {
		return err
	}
	k.state.Store(newKillState(after))
	return nil
}

// Orders returns the orders with the lifts that are remembered. The caller must not change them.
func (k *KillSwitch) Orders() Orders {
	if s := k.state.Load(); s != nil {
		return s.orders
	}
	return Orders{}
}

// List returns the orders, oldest first. The slice is the caller's.
func (k *KillSwitch) List() []Kill {
	return slices.Clone(k.Orders().Held)
}

// Match returns the order that stops a request of the agent to the origin, if any. It does not
// block.
func (k *KillSwitch) Match(o origin.Origin, agent string) (order Kill, stopped bool) {
	var s *killState
	if k != nil {
		s = k.state.Load()
	}
	if s == nil || len(s.byKey) == 0 {
		return Kill{}, false
	}
	all, ofAgent := Kill{Scope: KillAll}, Kill{Scope: KillAgent, Value: agent}
	kill := cmp.Or(s.byKey[all.key()], s.byKey[ofAgent.key()])
	if kill == nil {
		_, kill, _ = s.hosts.closest(o)
	}
	if kill == nil {
		return Kill{}, false
	}
	return *kill, true
}

// newKillState indexes orders. Of several that stop the same, the newest is named.
func newKillState(orders Orders) *killState {
	s := &killState{orders: orders, byKey: make(map[string]*Kill, len(orders.Held))}
	for i := range orders.Held {
		s.byKey[orders.Held[i].key()] = &orders.Held[i]
	}
	for _, kill := range s.byKey {
		if pattern, err := ParseHostPattern(kill.Value); kill.Scope == KillHost && err == nil {
			s.hosts.put(pattern, kill)
		}
	}
	return s
}

// key tells canonical orders apart: two with one key stop the same.
func (o Kill) key() string { return string(o.Scope) + " " + strings.ToLower(o.Value) }

func (o Kill) same(other Kill) bool { return o.key() == other.key() }

func (o Kill) hasID(other Kill) bool { return o.ID == other.ID }

// Canonical checks an order and returns it with its value in canonical form.
func (o Kill) Canonical() (Kill, error) {
	if !isLine(o.By) || !isLine(o.Reason) {
		return Kill{}, fmt.Errorf("by and reason are lines of up to %d bytes", maxText)
	}
	switch o.Scope {
	case KillAll:
		if o.Value != "" {
			return Kill{}, fmt.Errorf("scope all takes no value, found %q", escape.Cut(o.Value, maxText))
		}
	case KillHost:
		pattern, err := ParseHostPattern(o.Value)
		if err != nil {
			return Kill{}, err
		}
		o.Value = pattern.String()
	case KillAgent:
		if o.Value == "" || len(o.Value) > maxToken || hasControl(o.Value) {
			return Kill{}, fmt.Errorf("agent %q: want a name of 1 to %d bytes",
				escape.Cut(o.Value, maxText), maxToken)
		}
	default:
		return Kill{}, fmt.Errorf("scope %q is not one of all, host, agent",
			escape.Cut(string(o.Scope), maxName))
	}
	return o, nil
}

// String describes the order for people: what it stops, its author, its reason.
func (o Kill) String() string { return o.describe("") }

// detail is String with the time of the order, for [Decision.Detail].
func (o Kill) detail() string {
	at := ""
	if !o.At.IsZero() {
		at = ", at " + stamp(o.At)
	}
	return "stopped: " + o.describe(at)
}

func (o Kill) describe(at string) string {
	s := string(o.Scope)
	if o.Value != "" {
		s += " " + o.Value
	}
	if o.By != "" {
		s += ", by " + o.By
	}
	s += at
	if o.Reason != "" {
		s += ", because: " + o.Reason
	}
	return s
}
