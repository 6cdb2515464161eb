package pace

// flights names the requests of one agent in flight that a clock counts. Their
// number is kept in the clock's shard while there are any: most clocks have none.
type flights struct {
	clock *clock
	agent string
}

// sharedKey is the clock at which the request's agent leaves a place to others: the
// first one with places, in the order in which turns are taken. At a later one the
// request would wait with its turn at the first, and others behind it.
func (r *Request) sharedKey() string {
	first := &r.Limit
	for i := range r.Also {
		if l := &r.Also[i]; l.Concurrency > 0 && (first.Concurrency <= 0 || inOrder(l.Key, first.Key) < 0) {
			first = l
		}
	}
	if first.Concurrency < 2 {
		return ""
	}
	return first.Key
}

// meet notes that the agent asks.
func (p *Pacer) meet(agent string) {
	if p.several.Load() {
		return
	}
	first := p.first.Load()
	if first == nil {
		name := agent
		if p.first.CompareAndSwap(nil, &name) {
			return
		}
		first = p.first.Load()
	}
	if *first != agent {
		p.several.Store(true)
	}
}

// alone reports whether only one agent ever asked, for long enough.
func (p *Pacer) alone() bool { return !p.several.Load() && p.now() >= epochAge+loneAfter }

// full reports whether no place in flight is left for the agent under t, under
// the shard's lock.
func (p *Pacer) full(s *shard, c *clock, t terms, agent string) bool {
	return t.places > 0 && (int(c.flying) >= t.places || p.sated(s, c, t, agent))
}

// sated reports whether the agent has as many places as one may have.
func (p *Pacer) sated(s *shard, c *clock, t terms, agent string) bool {
	most := t.places - 1
	return t.shared && most > 0 && int(c.flying) >= most && int(s.flights[flights{c, agent}]) >= most && !p.alone()
}

// free reports whether a request under t may go at once, overtaking nobody.
func (p *Pacer) free(s *shard, c *clock, t terms, agent string, now instant) bool {
	return c.line == nil && c.ready(t) <= now && !p.full(s, c, t, agent)
}

// charge books a request of the agent that goes now and returns the state
// without it.
func (s *shard) charge(c *clock, t terms, agent string, now instant) meter {
	if t.places > 0 {
		c.flying++
	}
	if t.shared {
		if s.flights == nil {
			s.flights = make(map[flights]int32)
		}
		s.flights[flights{c, agent}]++
	}
	return c.charge(t, now)
}

// land gives back what a request under t took of the places.
func (s *shard) land(c *clock, t terms, agent string) {
	if t.places == 0 {
		return
	}
	c.flying--
	if t.shared {
		of := flights{c, agent}
		if n := s.flights[of]; n > 1 {
			s.flights[of] = n - 1
		} else {
			delete(s.flights, of)
		}
	}
	s.weigh(c)
	c.rouse()
}

// weigh finds out which of those in line at the clock must let others go first,
// and with that who is next.
func (s *shard) weigh(c *clock) {
	if c.line == nil {
		return
	}
	q := &c.line.queue
	for _, f := range q.flows {
		w := f.first
		f.held = w != nil && w.pacer.sated(s, c, w.footing().local(w.terms), w.agent)
	}
	q.elect()
}
