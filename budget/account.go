package budget

import (
	"maps"
	"time"
)

// account is what a gateway has of an agent's budget on one day.
type account struct {
	agent           string
	limits          *Allowance
	day             day
	requests, bytes *meter // nil without a limit
	hosts           map[string]*meter
}

// Standing is how an agent's budget stands, as far as a gateway knows. A limit of 0 is none.
type Standing struct {
	Allowance
	RequestsLeft, BytesLeft, PerHostLeft int64
	Ends                                 time.Time // the day
}

// Limited returns what is left and the limit, of [Requests] and [Bytes] as far as they have one.
func (s Standing) Limited() map[string][2]int64 {
	all := map[string][2]int64{Requests: {s.RequestsLeft, s.Requests}, Bytes: {s.BytesLeft, s.Bytes}}
	maps.DeleteFunc(all, func(_ string, n [2]int64) bool { return n[1] == 0 })
	return all
}

// Spent returns the limit that is reached, nil if none is. That of hosts is known if one was asked
// for.
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

// Standing returns how a budget stands. With a host it asks the pool; else it says what is known.
func (k *Keeper) Standing(agent string, l *Allowance, host string) Standing {
	k.mu.Lock()
	defer k.mu.Unlock()
	a := k.account(agent, l, time.Now())
	s := Standing{Allowance: *l, Ends: a.day.ends}
	of := func(m *meter) int64 {
		if m == nil {
			return 0
		}
		if host != "" && !k.closed {
			d := k.draw(m)
			k.mu.Unlock()
			<-d.done
			k.mu.Lock()
		}
		return m.remaining()
	}
	s.RequestsLeft, s.BytesLeft = of(a.requests), of(a.bytes)
	if host != "" && !k.closed {
		s.PerHostLeft = of(k.host(a, host))
	}
	return s
}

// account returns the account of an agent for the day.
func (k *Keeper) account(agent string, l *Allowance, now time.Time) *account {
	a := k.accounts[agent]
	switch {
	case a == nil || !a.day.holds(now) || a.limits != l && a.limits.Zone.String() != l.Zone.String():
		a = &account{agent: agent, limits: new(Allowance), day: dayAt(now, l.Zone), hosts: make(map[string]*meter)}
		k.accounts[agent] = a
	case a.limits == l:
		return a
	}
	a.requests = a.limited(a.requests, Requests, Requests, l.Requests, 1)
	a.bytes = a.limited(a.bytes, Bytes, Bytes, l.Bytes, byteSlice)
	for host, m := range a.hosts {
		if a.hosts[host] = a.limited(m, PerHost, m.name, l.PerHost, 1); l.PerHost == 0 {
			delete(a.hosts, host)
		}
	}
	a.limits = l
	for m := range a.meters {
		k.tidy(m)
	}
	return a
}

// limited gives a meter another limit, and makes it if there is none.
func (a *account) limited(m *meter, what, name string, limit, least int64) *meter {
	switch {
	case limit == 0:
		return nil
	case m == nil:
		return &meter{account: a, what: what, name: name, limit: limit, left: limit, least: least, gave: make(chan struct{}, 1)}
	case m.limit != limit:
		m.limited(limit)
	}
	return m
}

// host returns the meter of a host, nil without a limit.
func (k *Keeper) host(a *account, host string) *meter {
	m := a.hosts[host]
	if m != nil || a.limits.PerHost == 0 {
		return m
	}
	if len(a.hosts) >= maxHosts {
		for _, other := range a.hosts {
			k.giveBack(other)
			a.forget(other)
			break
		}
	}
	m = a.limited(nil, PerHost, hostPrefix+host, a.limits.PerHost, 1)
	a.hosts[host] = m
	return m
}

const hostPrefix = "host "

// forget drops the meter of a host. What a request gives back later goes on to the pool.
func (a *account) forget(m *meter) {
	if m.what == PerHost {
		m.tight = true
		delete(a.hosts, m.name[len(hostPrefix):])
	}
}

// meters yields all meters that there are.
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
