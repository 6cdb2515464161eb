package enforce

import (
	"cmp"
	"encoding/json"
	"errors"
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
	Scope KillScope `json:"scope"`
	// Value is the host pattern or the agent's name; empty for all. Canonical once set.
	Value string `json:"value,omitempty"`
	// By names the author of the order, Reason says why: a line each, which may be empty.
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"`
	At     time.Time `json:"at"`
}

// maxKills bounds the orders at one time. People give them, or their scripts; KillAll stands for
// more.
const maxKills = 10_000

// ErrTooManyKills is returned by [KillSwitch.Set] when there is no room for another order.
var ErrTooManyKills = errors.New("too many kill switch orders: lift some, or stop everything")

// KillSwitch stops requests at run time. It stands above everything else that is decided and holds
// in every mode. Its JSON form is the whole state, to be kept over restarts.
//
// The zero value stops nothing. All methods are safe for concurrent use; every Match that starts
// after Set or Lift returned sees the change.
type KillSwitch struct {
	writing sync.Mutex
	state   atomic.Pointer[killState]
}

// killState is a snapshot, which never changes.
type killState struct {
	kills []Kill
	byKey map[string]*Kill // by Kill.key
	hosts hostIndex[*Kill]
}

// Set adds an order. It replaces one with the same scope and value.
func (k *KillSwitch) Set(order Kill) error {
	order, err := order.Canonical()
	if err != nil {
		return fmt.Errorf("setting the kill switch: %w", err)
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	kills := slices.DeleteFunc(k.List(), order.same)
	if len(kills) >= maxKills {
		return ErrTooManyKills
	}
	k.state.Store(newKillState(append(kills, order)))
	return nil
}

// Lift removes the order with this scope and value and returns it. It reports whether there was
// one.
func (k *KillSwitch) Lift(scope KillScope, value string) (lifted Kill, found bool) {
	order, err := Kill{Scope: scope, Value: value}.Canonical()
	if err != nil {
		return Kill{}, false
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	kills := k.List()
	at := slices.IndexFunc(kills, order.same)
	if at < 0 {
		return Kill{}, false
	}
	lifted = kills[at]
	k.state.Store(newKillState(slices.Delete(kills, at, at+1)))
	return lifted, true
}

// List returns the orders, oldest first. The slice is the caller's.
func (k *KillSwitch) List() []Kill {
	if s := k.state.Load(); s != nil {
		return slices.Clone(s.kills)
	}
	return nil
}

// Match returns the order that stops a request of the agent to the origin, if any. It does not
// block.
func (k *KillSwitch) Match(o origin.Origin, agent string) (order Kill, stopped bool) {
	var s *killState
	if k != nil {
		s = k.state.Load()
	}
	if s == nil || len(s.kills) == 0 {
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

// killFile is the stored form.
type killFile struct {
	Version int    `json:"version"`
	Kills   []Kill `json:"kills"`
}

const killFileVersion = 1

// MarshalJSON returns the whole state.
func (k *KillSwitch) MarshalJSON() ([]byte, error) {
	return json.Marshal(killFile{killFileVersion, append([]Kill{}, k.List()...)})
}

// UnmarshalJSON replaces the orders by stored ones. On an error nothing changes. A process that
// cannot read its orders at the start should not start: that would lift them all.
func (k *KillSwitch) UnmarshalJSON(data []byte) error {
	var f killFile
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("reading the kill switch: %w", err)
	}
	if f.Version != killFileVersion {
		return fmt.Errorf("reading the kill switch: version %d is not %d", f.Version, killFileVersion)
	}
	if len(f.Kills) > maxKills {
		return fmt.Errorf("reading the kill switch: %w", ErrTooManyKills)
	}
	for i, order := range f.Kills {
		order, err := order.Canonical()
		if err != nil {
			return fmt.Errorf("reading the kill switch: order %d: %w", i+1, err)
		}
		f.Kills[i] = order
	}
	s := newKillState(f.Kills)
	if len(s.byKey) < len(s.kills) {
		return errors.New("reading the kill switch: an order is there twice")
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	k.state.Store(s)
	return nil
}

// newKillState indexes canonical orders. The caller gives the slice away.
func newKillState(kills []Kill) *killState {
	s := &killState{kills: kills, byKey: make(map[string]*Kill, len(kills))}
	for i := range kills {
		kill := &kills[i]
		s.byKey[kill.key()] = kill
		if pattern, err := ParseHostPattern(kill.Value); kill.Scope == KillHost && err == nil {
			s.hosts.put(pattern, kill)
		}
	}
	return s
}

// key tells canonical orders apart: two with one key stop the same.
func (o Kill) key() string { return string(o.Scope) + " " + strings.ToLower(o.Value) }

func (o Kill) same(other Kill) bool { return o.key() == other.key() }

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
