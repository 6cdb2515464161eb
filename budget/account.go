package budget

import (
	"maps"
	"time"
)

// account is a gateway's part of an agent's budget on one day.
type account struct {
	agent           string
	limits          *Allowance
	day             day
	requests, bytes *meter // nil without a limit
	hosts           map[string]*meter
}

// Standing is the state of an agent's budget, as far as a gateway knows. A limit of 0 means no
// limit.
type Standing struct {
	Allowance
	RequestsLeft, BytesLeft, PerHostLeft int64
	Ends                                 time.Time // the day
}

// Limited returns the number left and the limit for each of [Requests] and [Bytes] that has a
// limit.
func (s Standing) Limited() map[string][2]int64 {
	all := map[string][2]int64{Requests: {s.RequestsLeft, s.Requests}, Bytes: {s.BytesLeft, s.Bytes}}
	maps.DeleteFunc(all, func(_ string, n [2]int64) bool { return n[1] == 0 })
	return all
}

// Spent returns the limit that has been reached, or nil. It checks the limit per host only if
// [Keeper.Standing] was called with a host.
func (s Standing) Spent(now time.Time) *SpentError {
	spent := &SpentError{Wait: s.Ends.Sub(now)}
	switch {
	case s.Requests > 0 && s.RequestsLeft == 0:
		spent.What, spent.Limit = Requests, s.Requests
	case s.Bytes > 0 && s.BytesLeft == 0:
		spent.What, spent.Limit = Bytes, s.Bytes
	case s.PerHost > 0 && s.PerHostLeft == 0:
		spent.What, spent.Limit = PerHost, s.PerHost
	default:
		return nil
	}
	return spent
}

// Near reports whether less than a tenth of a limit is left.
func (s Standing) Near() bool {
	for _, n := range s.Limited() {
		if 10*n[0] < n[1] {
			return true
		}
	}
	return false
}

// Standing returns the state of a budget. With a host it asks the pool; otherwise it returns what
// the keeper knows.
func (k *Keeper) Standing(agent string, l *Allowance, host string) Standing {
	k.mu.Lock()
	defer k.mu.Unlock()
	find := k.current
	if host != "" {
		find = k.account
	}
	a := find(agent, l, time.Now())
	s := Standing{Allowance: *l, Ends: a.day.ends}
	of := func(m *meter, limit int64) int64 {
		if m == nil {
			return limit
		}
		if host != "" && !k.closed {
			d := k.draw(m)
			k.mu.Unlock()
			<-d.done
			k.mu.Lock()
		}
		return m.remaining(limit)
	}
	s.RequestsLeft, s.BytesLeft = of(a.requests, l.Requests), of(a.bytes, l.Bytes)
	if host != "" && !k.closed {
		s.PerHostLeft = of(k.host(a, host), l.PerHost)
	}
	return s
}

// current returns the account of an agent for the day and keeps its limits. If the agent has no
// account, current makes one with the limits of l.
func (k *Keeper) current(agent string, l *Allowance, now time.Time) *account {
	if a := k.accounts[agent]; a != nil && a.day.holds(now) {
		return a
	}
	return k.account(agent, l, now)
}

// account returns the account of an agent for the day and sets its limits to those of l.
func (k *Keeper) account(agent string, l *Allowance, now time.Time) *account {
	a := k.accounts[agent]
	holds := a != nil && a.day.holds(now)
	switch {
	case holds && a.limits.Same(l):
		return a
	case holds && a.limits.Zone.String() == l.Zone.String():
	default:
		if holds {
			for m := range a.meters {
				k.drop(m)
			}
		}
		a = &account{agent: agent, day: dayAt(now, l.Zone), hosts: make(map[string]*meter)}
		k.accounts[agent] = a
	}
	a.requests = k.limited(a, a.requests, Requests, Requests, l.Requests, 1)
	a.bytes = k.limited(a, a.bytes, Bytes, Bytes, l.Bytes, byteSlice)
	for host, m := range a.hosts {
		if a.hosts[host] = k.limited(a, m, PerHost, m.name, l.PerHost, 1); l.PerHost == 0 {
			delete(a.hosts, host)
		}
	}
	a.limits = l
	for m := range a.meters {
		k.tidy(m)
	}
	return a
}

// limited sets the limit of a meter. It makes the meter if m is nil, and drops it if the limit is
// 0.
func (k *Keeper) limited(a *account, m *meter, what, name string, limit, least int64) *meter {
	switch {
	case m != nil && limit == 0:
		k.drop(m)
		return nil
	case limit == 0:
		return nil
	case m == nil:
		return &meter{account: a, what: what, name: name, limit: limit, left: limit, least: least, gave: make(chan struct{}, 1)}
	case m.limit != limit:
		m.limited(limit)
	}
	return m
}

// host returns the meter of a host, or nil if the account has no limit per host.
func (k *Keeper) host(a *account, host string) *meter {
	m := a.hosts[host]
	if m != nil || a.limits.PerHost == 0 {
		return m
	}
	if len(a.hosts) >= maxHosts {
		k.evict(a)
	}
	m = k.limited(a, nil, PerHost, hostPrefix+host, a.limits.PerHost, 1)
	a.hosts[host] = m
	return m
}

// hostPrefix starts the names of the counters of hosts. The script of package redispool uses it
// too.
const hostPrefix = "host "

// evict drops the meter of some host. The counts of uncounted meters exist only in this gateway and
// are lost with them, so evict prefers other meters.
func (k *Keeper) evict(a *account) {
	var out *meter
	seen := 0
	for _, m := range a.hosts {
		if m.waiting == 0 && (out == nil || !m.uncounted) {
			out = m
		}
		if seen++; seen == 100 || out != nil && !out.uncounted {
			break
		}
	}
	if out != nil {
		k.drop(out)
		a.forget(out)
	}
}

// drop gives back all that a meter holds. If a request gives something back later, that goes to the
// pool too.
func (k *Keeper) drop(m *meter) {
	m.tight = true
	k.giveBack(m)
}

// forget removes the meter of a host from the account.
func (a *account) forget(m *meter) { delete(a.hosts, m.name[len(hostPrefix):]) }

// meters yields all meters of the account.
func (a *account) meters(yield func(*meter) bool) {
	for _, m := range [...]*meter{a.requests, a.bytes} {
		if m != nil && !yield(m) {
			return
		}
	}
	for _, m := range a.hosts {
		if !yield(m) {
			return
		}
	}
}
