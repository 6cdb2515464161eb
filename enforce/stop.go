package enforce

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/origin"
)

// StopScope says what a [Stop] stops.
type StopScope string

// The scopes of a stop.
const (
	// StopAll stops every request.
	StopAll StopScope = "all"
	// StopHost stops requests to the hosts of a [HostPattern].
	StopHost StopScope = "host"
	// StopAgent stops requests of an agent.
	StopAgent StopScope = "agent"
	// StopAgentHost stops requests of an agent to the hosts of a [HostPattern]. Release 0.1.0 does not
	// know this scope: it reports the stop as malformed, and stops nothing.
	StopAgentHost StopScope = "agent@host"
	// StopAllow stops nothing: it is an exception at run time. Until its end, requests of an agent to
	// the hosts of a [HostPattern] pass even if robots.txt refuses them, as with [Exception]. Release
	// 0.1.0 reports it as malformed, too.
	StopAllow StopScope = "allow"
)

// Stop is an operator's order to stop requests, with its author and reason.
//
// Its JSON form is stored and is part of the admin API. [Stops.Set] makes its value canonical.
type Stop struct {
	// ID is unique among the stops and exceptions of all gateways.
	ID string `json:"id,omitempty"`
	// Scope is "all", "host", "agent" or "agent@host", or "allow" for an exception.
	Scope StopScope `json:"scope"`
	// Value is the host pattern, the agent's name, or both joined by @, as in "AcmeBot@shop.example".
	// It is empty for all. In an exception, prefixes of paths may follow, each after a space.
	Value string `json:"value,omitempty"`
	// By is who gave it, in one line.
	By string `json:"by,omitempty"`
	// Reason says why it was given, in one line.
	Reason string `json:"reason,omitempty"`
	// At is when it was given.
	At time.Time `json:"at"`
	// Ticket is the request for an exception, in one line.
	Ticket string `json:"ticket,omitempty"`
	// Until is when an exception ends. Stops do not end.
	Until time.Time `json:"until,omitzero"`
}

// Stops holds the stops in force, which can change at run time. A stop overrides every other
// decision and applies in every mode.
//
// The zero value stops nothing. All methods are safe for concurrent use; every Match that starts
// after Set or Update returned sees the change.
type Stops struct {
	writing sync.Mutex
	index   atomic.Pointer[stopIndex]
}

// stopIndex is a snapshot, which never changes. The next snapshot shares all parts that are the
// same.
type stopIndex struct {
	all   StopSet
	parts [256]map[stopKey][]Stop // the newest last
}

// stopKey is equal for stops with the same effect.
type stopKey struct {
	scope StopScope
	value HostPattern // of an agent, its name in lower case
	agent string      // of an agent at a host, in lower case
}

var partSeed = maphash.MakeSeed()

func (k stopKey) part() byte { return byte(maphash.String(partSeed, k.value.key)) }

// Set adds a stop, by default with a random id. It replaces a stop with the same scope and value.
func (s *Stops) Set(stop Stop) error {
	stop, err := stop.Canonical()
	if err != nil {
		return fmt.Errorf("adding a stop: %w", err)
	}
	stop.ID = cmp.Or(stop.ID, rand.Text())
	return s.Update(func(all StopSet) (StopSet, error) { return all.Add(stop) })
}

// Update replaces the stops by the result of change, one change at a time. On an error nothing
// changes.
func (s *Stops) Update(change func(StopSet) (StopSet, error)) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	after, err := change(s.All())
	if err != nil {
		return err
	}
	s.index.Store(s.snapshot().with(after))
	return nil
}

// snapshot returns the present index, an empty one if nothing was ever stopped.
func (s *Stops) snapshot() *stopIndex {
	if s == nil {
		return &noStops
	}
	return cmp.Or(s.index.Load(), &noStops)
}

var noStops stopIndex

// All returns the stops with the lifts that are remembered. The caller must not change them.
func (s *Stops) All() StopSet { return s.snapshot().all }

// List returns all orders, oldest first, including exceptions that have ended. The slice belongs to
// the caller.
func (s *Stops) List() []Stop {
	list := slices.Clone(s.All().Held)
	slices.SortFunc(list, Stop.compare)
	return list
}

// Match returns the stop that forbids a request of the agent to the origin, if any. It does not
// block.
func (s *Stops) Match(o origin.Origin, agent string) (stop Stop, stopped bool) {
	index := s.snapshot()
	if len(index.all.Held) == 0 {
		return Stop{}, false
	}
	found := cmp.Or(index.newest(Stop{Scope: StopAll}.key()), index.newest(Stop{Scope: StopAgent, Value: agent}.key()))
	name := strings.ToLower(agent)
	for pattern := range patternsOf(o) {
		if found != nil {
			break
		}
		found = cmp.Or(index.newest(stopKey{StopHost, pattern, ""}), index.newest(stopKey{StopAgentHost, pattern, name}))
	}
	if found == nil {
		return Stop{}, false
	}
	return *found, true
}

// Exempt returns the [StopAllow] that lets a request of the agent pass at the time now, if there is
// one, with its end. No order lasts longer than limit. An empty path means that the gateway cannot
// see it: orders with paths do not cover it. Exempt does not block.
func (s *Stops) Exempt(o origin.Origin, path, agent string, now time.Time, limit time.Duration) (order Stop, ok bool) {
	index := s.snapshot()
	if len(index.all.Held) == 0 || limit <= 0 {
		return Stop{}, false
	}
	name := strings.ToLower(agent)
	for pattern := range patternsOf(o) {
		key := stopKey{StopAllow, pattern, name}
		for _, order := range slices.Backward(index.parts[key.part()][key]) {
			if order, ok = order.Holds(now, limit); ok && coversPath(order.paths(), path) {
				return order, true
			}
		}
	}
	return Stop{}, false
}

// newest returns the stop that Match names, among stops with the same effect.
func (x *stopIndex) newest(key stopKey) *Stop {
	if stops := x.parts[key.part()][key]; len(stops) > 0 {
		return &stops[len(stops)-1]
	}
	return nil
}

// with indexes other stops.
func (x *stopIndex) with(after StopSet) *stopIndex {
	next := &stopIndex{all: after, parts: x.parts}
	var copied [len(next.parts)]bool
	added, ended := after.Since(x.all).Held, []Stop(nil)
	if len(x.all.Held)+len(added) != len(after.Held) {
		ended = x.all.Since(after).Held
	}
	for i, stops := range [][]Stop{ended, added} {
		for _, stop := range stops {
			key := stop.key()
			part := key.part()
			if !copied[part] {
				copied[part] = true
				next.parts[part] = make(map[stopKey][]Stop, len(x.parts[part])+1)
				maps.Copy(next.parts[part], x.parts[part])
			}
			list := slices.DeleteFunc(slices.Clone(next.parts[part][key]), stop.hasID)
			if i == 1 {
				list = append(list, stop)
				slices.SortStableFunc(list, Stop.compare)
			}
			next.parts[part][key] = list
			if len(list) == 0 {
				delete(next.parts[part], key)
			}
		}
	}
	return next
}

// key finds a canonical stop in the index.
func (s Stop) key() stopKey {
	if s.Scope == StopAgentHost || s.Scope == StopAllow {
		agent, hosts := s.parts()
		return stopKey{s.Scope, hosts.key().value, strings.ToLower(agent.Value)}
	}
	pattern := HostPattern{key: strings.ToLower(s.Value)}
	if s.Scope == StopHost {
		pattern, _ = ParseHostPattern(s.Value)
	}
	return stopKey{s.Scope, pattern, ""}
}

// parts splits a stop of an agent at hosts into a stop of the agent and a stop of the hosts. Hosts
// never contain an @.
func (s Stop) parts() (agent, hosts Stop) {
	value := s.Value
	if s.Scope == StopAllow {
		value, _, _ = strings.Cut(value, " /")
	}
	at := strings.LastIndexByte(value, '@')
	return Stop{Scope: StopAgent, Value: value[:max(at, 0)]}, Stop{Scope: StopHost, Value: value[at+1:]}
}

// Agent returns the agent of an order for a single agent, or "".
func (s Stop) Agent() string {
	if s.Scope == StopAgentHost || s.Scope == StopAllow {
		s, _ = s.parts()
	}
	if s.Scope == StopAgent {
		return s.Value
	}
	return ""
}

func (s *Stop) same(other *Stop) bool {
	return s.Scope == other.Scope &&
		(s.Value == other.Value || s.Agent() != "" && s.key() == other.key() && slices.Equal(s.paths(), other.paths()))
}

func (s Stop) hasID(other Stop) bool { return s.ID == other.ID }

// IsStopID reports whether a text can be the id of a stop.
func IsStopID(id string) bool {
	return id != "" && len(id) <= maxID && !strings.ContainsFunc(id, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// Canonical checks a stop and returns it with its value in canonical form.
func (s Stop) Canonical() (Stop, error) {
	if !isLine(s.By) || !isLine(s.Reason) || !isLine(s.Ticket) {
		return Stop{}, fmt.Errorf("by, reason and ticket are lines of up to %d bytes", maxText)
	}
	if s.Scope == StopAllow {
		return s.canonicalAllow()
	}
	s.Until = time.Time{}
	switch s.Scope {
	case StopAll:
		if s.Value != "" {
			return Stop{}, fmt.Errorf("scope all takes no value, found %q", escape.Cut(s.Value, maxText))
		}
	case StopHost:
		pattern, err := ParseHostPattern(s.Value)
		if err != nil {
			return Stop{}, err
		}
		s.Value = pattern.String()
	case StopAgent:
		if s.Value == "" || len(s.Value) > maxToken || hasControl(s.Value) {
			return Stop{}, fmt.Errorf("agent %q: want a name of 1 to %d bytes",
				escape.Cut(s.Value, maxText), maxToken)
		}
	case StopAgentHost:
		agent, hosts := s.parts()
		if !strings.Contains(s.Value, "@") {
			return Stop{}, fmt.Errorf("%q: want AGENT@PATTERN", escape.Cut(s.Value, maxText))
		}
		_, err := agent.Canonical()
		hosts, wrong := hosts.Canonical()
		if err = cmp.Or(err, wrong); err != nil {
			return Stop{}, fmt.Errorf("want AGENT@PATTERN: %w", err)
		}
		s.Value = agent.Value + "@" + hosts.Value
	default:
		return Stop{}, fmt.Errorf("scope %q is not one of all, host, agent, agent@host, allow",
			escape.Cut(string(s.Scope), maxName))
	}
	return s, nil
}

// String describes the stop: its scope, its author, its reason.
func (s Stop) String() string { return s.describe("") }

// detail is String with the time of the stop, for [Decision.Detail].
func (s Stop) detail() string {
	at := ""
	if !s.At.IsZero() {
		at = ", at " + stamp(s.At)
	}
	return "stopped: " + s.describe(at)
}

func (s Stop) describe(at string) string {
	text := string(s.Scope)
	if s.Value != "" {
		text += " " + s.Value
	}
	if s.By != "" {
		text += ", by " + s.By
	}
	text += at
	if s.Ticket != "" {
		text += ", ticket " + s.Ticket
	}
	if !s.Until.IsZero() {
		text += ", until " + stamp(s.Until)
	}
	if s.Reason != "" {
		text += ", because: " + s.Reason
	}
	return text
}
