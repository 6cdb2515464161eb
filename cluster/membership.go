package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/crawlgate/crawlgate/cluster/link"
)

// Self is what a gateway says about itself.
type Self struct {
	// Name is the gateway's name, different from all others.
	Name string `json:"name"`
	// Version is the program's version.
	Version string `json:"version,omitempty"`
	// Config is the digest of the configuration.
	Config string `json:"config,omitempty"`
}

// Gateway is one gateway of the fleet. Its times are only for display: gateways do not compare
// them.
type Gateway struct {
	Self
	// LastHeartbeat is when Redis last got its heartbeat.
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
	// Orders is how many orders are in force there.
	Orders int `json:"orders"`
	// OrdersVersion is the version of the orders in Redis that it applied last.
	OrdersVersion int64 `json:"orders_version,omitempty"`
	// NameTwice says that another live process has the same name.
	NameTwice bool `json:"name_twice,omitempty"`
}

// Applied is the acknowledgement of an order by one gateway.
type Applied struct {
	Self
	// AppliedAt is since when the order is in force there, by that gateway's clock. It is empty if the
	// gateway has not answered.
	AppliedAt time.Time `json:"applied_at,omitzero"`
	// Ended is how many requests, tunnels and fetches, or records and blocks, it ended.
	Ended int `json:"ended"`
	// LastHeartbeat is when Redis last got its heartbeat.
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
}

// Acknowledgements are the answers of the fleet to an order. Without a fleet they are zero.
type Acknowledgements struct {
	// Gateways are the known gateways, including this one, up to 1,000.
	Gateways []Applied `json:"gateways,omitempty"`
	// Unlisted is how many other gateways are alive. It is unknown whether they have answered.
	Unlisted int `json:"unlisted,omitempty"`
	// Expected is how many gateways there should be at least, by the configuration, or 0 if it does
	// not say.
	Expected int `json:"expected,omitempty"`
	// Pending says that Redis does not answer. The other gateways get the order when it does.
	Pending bool `json:"pending,omitempty"`
	// NotDelivered says that Redis does not answer, and that the others will not get the order later.
	NotDelivered bool `json:"untold,omitempty"`
}

// Acks returns r itself, for answers that embed it.
func (r Acknowledgements) Acks() Acknowledgements { return r }

// Counts returns how many gateways have answered, how many there should be, and the sum of what
// they ended.
func (r Acknowledgements) Counts() (answered, all, ended int) {
	for _, g := range r.Gateways {
		if !g.AppliedAt.IsZero() {
			answered++
			ended += g.Ended
		}
	}
	return answered, max(len(r.Gateways)+r.Unlisted, r.Expected), ended
}

// note is what a process publishes with each heartbeat.
type note struct {
	Self
	Since       int64          `json:"since"` // its first heartbeat, by Redis's clock in ms
	Orders      int            `json:"orders"`
	Version     int64          `json:"orders_version"`
	Done        map[string]ack `json:"done,omitempty"` // the latest orders, lifts and actions, by their ids
	Left        bool           `json:"left,omitempty"`
	Checkpoints []string       `json:"heads,omitempty"` // the newest checkpoints of its evidence logs
}

// ack says when an order was applied, and how many things it ended.
type ack struct {
	Ended int       `json:"ended"`
	At    time.Time `json:"at"`
}

// process is one running gateway.
type process struct {
	note
	last int64 // heartbeat, by Redis's clock in ms
}

// membership is the processes of a fleet, by random ids. It is a value.
type membership map[string]process

// with returns the membership after a reading of Redis. Entries from Redis replace known ones. A
// process that Redis has forgotten stays as long as a silent gateway would, because an emptied
// Redis must not make a fleet look small.
func (r membership) with(read membership, now int64) membership {
	after := maps.Clone(r)
	if after == nil {
		after = make(membership, len(read))
	}
	maps.Copy(after, read)
	maps.DeleteFunc(after, func(_ string, p process) bool { return p.last <= now-link.KnownFor.Milliseconds() })
	return after
}

// members are the processes that count. A process that has left does not count. A silent one does
// not count if another process with its name has started since.
func (r membership) members() (names []string) {
	for id, p := range r {
		if !p.Left && !r.hasSuccessor(id) {
			names = append(names, id)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(r[a].Name, r[b].Name), cmp.Compare(a, b)) })
	return names
}

func (r membership) hasSuccessor(id string) bool {
	for other, p := range r {
		if other != id && p.Name == r[id].Name && p.Since > r[id].last {
			return true
		}
	}
	return false
}

// list returns the members. offset converts Redis's clock to the local clock.
func (r membership) list(offset time.Duration) []Gateway {
	members := r.members()
	list := make([]Gateway, len(members))
	for i, id := range members {
		p := r[id]
		isNamesake := func(other string) bool { return other != id && r[other].Name == p.Name }
		list[i] = Gateway{
			Self: p.Self, LastHeartbeat: p.heardAt(offset), Orders: p.Orders, OrdersVersion: p.Version,
			NameTwice: slices.ContainsFunc(members, isNamesake),
		}
	}
	return list
}

func (p process) heardAt(offset time.Duration) time.Time {
	if p.last == 0 {
		return time.Time{}
	}
	return time.UnixMilli(p.last).Add(offset).UTC().Truncate(time.Second)
}

// applied returns the acknowledgements of an order, and the processes to wait for: members that
// were alive a moment ago and have not answered, or all that have not answered if Redis has just
// come back.
func (r membership) applied(id string, now int64, offset time.Duration, fresh bool) (list []Applied, missing []string) {
	for _, member := range r.members() {
		p := r[member]
		a := Applied{Self: p.Self, LastHeartbeat: p.heardAt(offset)}
		if d, ok := p.Done[id]; ok {
			a.AppliedAt, a.Ended = d.At, d.Ended
		} else if fresh || p.last > now-link.AliveFor.Milliseconds() {
			missing = append(missing, member)
		}
		list = append(list, a)
	}
	return list, missing
}
