package cluster

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Self is what a gateway says of itself.
type Self struct {
	// Name is the gateway's, different from all others.
	Name string `json:"name"`
	// Version is that of the program, Config the digest of the configuration.
	Version string `json:"version,omitempty"`
	Config  string `json:"config,omitempty"`
}

// Gateway is one of the fleet. Times are for people: no clocks are compared.
type Gateway struct {
	Self
	// LastHeartbeat is when Redis last heard of it.
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
	// Orders is how many orders hold there, OrdersVersion the version of the orders in Redis that it
	// has applied last.
	Orders        int   `json:"orders"`
	OrdersVersion int64 `json:"orders_version,omitempty"`
	// NameTwice says that another process that is alive has the name, too.
	NameTwice bool `json:"name_twice,omitempty"`
}

// Applied is what one gateway made of an order.
type Applied struct {
	Self
	// AppliedAt is when, by the clock of that gateway; zero for one that has not answered.
	AppliedAt time.Time `json:"applied_at,omitzero"`
	// Ended is how many requests, tunnels and fetches it ended, or how many records and blocks.
	Ended         int       `json:"ended"`
	LastHeartbeat time.Time `json:"last_heartbeat,omitzero"`
}

// Report is what the fleet made of an order. Without a fleet it is zero.
type Report struct {
	// Gateways are all that are known, this one included.
	Gateways []Applied `json:"gateways,omitempty"`
	// Expected is how many there should be at least, by the configuration; 0 where it does not say.
	Expected int `json:"expected,omitempty"`
	// Pending says that Redis does not answer: the other gateways get the order when it does.
	Pending bool `json:"pending,omitempty"`
	// Untold says that Redis does not answer, and that the others are not told later.
	Untold bool `json:"untold,omitempty"`
}

// Told returns the report, of an answer that has it in itself too.
func (r Report) Told() Report { return r }

// Counts returns how many gateways have answered, how many there should be, and what they ended.
func (r Report) Counts() (answered, all, ended int) {
	for _, g := range r.Gateways {
		if !g.AppliedAt.IsZero() {
			answered++
			ended += g.Ended
		}
	}
	return answered, max(len(r.Gateways), r.Expected), ended
}

// note is what a process writes of itself with each heartbeat.
type note struct {
	Self
	Since       int64           `json:"since"` // its first heartbeat, by Redis's clock in ms
	Orders      int             `json:"orders"`
	Version     int64           `json:"orders_version"`
	Done        map[string]done `json:"done,omitempty"` // the latest orders, lifts and actions, by their ids
	Left        bool            `json:"left,omitempty"`
	Checkpoints []string        `json:"heads,omitempty"` // the newest checkpoints of its evidence logs
}

// done is what became of an order.
type done struct {
	Ended int       `json:"ended"`
	At    time.Time `json:"at"`
}

// process is one running gateway.
type process struct {
	note
	last int64 // heartbeat, by Redis's clock in ms
}

// roster is the processes of a fleet, by random names. It is a value.
type roster map[string]process

// with is the roster once Redis has been read: what it says counts, and what it has forgotten stays
// for as long as a silent gateway is known. A Redis that was emptied must not make a fleet look
// small.
func (r roster) with(read roster, now int64) roster {
	after := maps.Clone(r)
	if after == nil {
		after = make(roster, len(read))
	}
	maps.Copy(after, read)
	maps.DeleteFunc(after, func(_ string, p process) bool { return p.last <= now-knownFor.Milliseconds() })
	return after
}

// members are the processes that count: those that have not left, and of which none of the same
// name has begun after they fell silent.
func (r roster) members() (names []string) {
	for id, p := range r {
		if !p.Left && !r.hasSuccessor(p) {
			names = append(names, id)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(cmp.Compare(r[a].Name, r[b].Name), cmp.Compare(a, b)) })
	return names
}

func (r roster) hasSuccessor(p process) bool {
	for _, other := range r {
		if other.Name == p.Name && other.Since > p.last {
			return true
		}
	}
	return false
}

// list shows the members. offset is what Redis's clock has to be moved by to be the local one.
func (r roster) list(offset time.Duration) []Gateway {
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

// applied says what each member made of an order, and whether to wait for more answers: one that
// was heard a moment ago has not answered, or any where Redis has just come back.
func (r roster) applied(id string, now int64, offset time.Duration, fresh bool) (list []Applied, wait bool) {
	for _, member := range r.members() {
		p := r[member]
		a := Applied{Self: p.Self, LastHeartbeat: p.heardAt(offset)}
		if d, ok := p.Done[id]; ok {
			a.AppliedAt, a.Ended = d.At, d.Ended
		} else if fresh || p.last > now-aliveFor.Milliseconds() {
			wait = true
		}
		list = append(list, a)
	}
	return list, wait
}
