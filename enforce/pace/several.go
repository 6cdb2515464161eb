package pace

// maxAtOnce is how many clocks a request may have to be granted without a
// waiter: the agent's, the host's, the site's and the address's.
const maxAtOnce = 4

// part is one clock of a request that might go at once.
type part struct {
	key   string
	terms terms
	shard *shard
	clock *clock
}

// parts are those of one request, in the order of their shards.
type parts struct {
	all   [maxAtOnce]part
	n     int
	agent string
}

// allAtOnce grants a slot of several clocks that are all free. It holds the
// locks of their shards together, taken in the one order of all shards; nobody
// else holds more than one.
func (p *Pacer) allAtOnce(r *Request, cfg *Config) (Slot, bool) {
	if 1+len(r.Also) > maxAtOnce {
		return Slot{}, false
	}
	ps := parts{agent: r.Agent}
	shared := r.sharedKey()
	ps.add(p, r.Limit, shared)
	for _, l := range r.Also {
		ps.add(p, l, shared)
	}
	ps.lock()
	now := p.now()
	if !ps.free(p, cfg, now) {
		ps.unlock()
		return Slot{}, false
	}
	k := p.ticket()
	k.holds, k.end = k.room[:0], now+cfg.wait(r)
	for i := range ps.n {
		a := &ps.all[i]
		h := hold{shard: a.shard, clock: a.clock, agent: r.Agent, asked: a.terms, terms: a.terms, at: now}
		h.before = a.shard.charge(a.clock, a.terms, r.Agent, now)
		h.serial = a.clock.serial
		k.holds = append(k.holds, h)
	}
	ps.unlock()
	p.keepSweeping()
	return Slot{ticket: k, number: k.number}, true
}

// add puts the limit's part where its shard belongs.
func (ps *parts) add(p *Pacer, l Limit, shared string) {
	a := part{key: l.Key, terms: l.terms(), shard: p.table.shard(l.Key)}
	a.terms.shared = l.Key == shared
	i := ps.n
	for ; i > 0 && ps.all[i-1].shard.number > a.shard.number; i-- {
		ps.all[i] = ps.all[i-1]
	}
	ps.all[i] = a
	ps.n++
}

func (ps *parts) lock() {
	for i := range ps.n {
		if i == 0 || ps.all[i].shard != ps.all[i-1].shard {
			ps.all[i].shard.mu.Lock()
		}
	}
}

func (ps *parts) unlock() {
	for i := range ps.n {
		if i == 0 || ps.all[i].shard != ps.all[i-1].shard {
			ps.all[i].shard.mu.Unlock()
		}
	}
}

// free finds the clocks and reports whether all are free, and each another one.
// Overflow clocks, and clocks that two of the keys share, take the long way.
func (ps *parts) free(p *Pacer, cfg *Config, now instant) bool {
	for i := range ps.n {
		a := &ps.all[i]
		a.clock = p.table.clock(a.shard, a.key, cfg, now)
		if a.clock == a.shard.spill || !p.free(a.shard, a.clock, a.terms, ps.agent, now) {
			return false
		}
		for j := range i {
			if ps.all[j].clock == a.clock {
				return false
			}
		}
	}
	for i := range ps.n {
		// Making one may have swept another, which was as new.
		if a := &ps.all[i]; a.shard.clocks[a.key] != a.clock {
			return false
		}
	}
	return true
}
