package robotscache

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
)

// A site that refuses the gateway its robots.txt may know the crawler. RFC 9309 section 2.3.1.3
// speaks of the answer to that crawler, so the site is asked once more in its name. The result is a
// variant: a record of its own with a fetch, a life and a place in the store as any other. It
// counts only while the gateway itself is turned away. One that repeats the answer to the gateway
// stays in memory, so that the agent is not asked for again, and is not saved.

// MaxVariants is how many agents an origin is asked for between two answers to the gateway, and how
// many of their records are kept.
const MaxVariants = 64

// Asker is the crawler whose record is looked up. The zero value gets the record of the gateway's
// own fetch.
type Asker struct {
	// Token is its product token, which is sent as User-Agent.
	Token string
	// Configured says that the operator names it: then one that named itself gives way to it.
	Configured bool
}

// askers are the agents that asked since an answer to the gateway came.
type askers struct {
	mu         sync.Mutex
	configured map[string]bool // by token
}

// admit reports whether there is a place for an agent.
func (s *askers) admit(a Asker) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.configured == nil {
		s.configured = make(map[string]bool)
	}
	if known, ok := s.configured[a.Token]; ok {
		s.configured[a.Token] = known || a.Configured
		return true
	}
	if len(s.configured) >= MaxVariants && a.Configured {
		for token, configured := range s.configured {
			if !configured {
				delete(s.configured, token)
				break
			}
		}
	}
	if len(s.configured) >= MaxVariants {
		return false
	}
	s.configured[a.Token] = a.Configured
	return true
}

func (s *askers) isConfigured(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.configured[token]
}

// PeekAs is [Cache.Peek] for a crawler: what [Cache.Lookup] would answer by.
func (c *Cache) PeekAs(o origin.Origin, a Asker) (*Entry, bool) {
	base, ok := c.Peek(o, "")
	if !ok || a.Token == "" || !base.turnedAway() {
		return base, ok
	}
	e, ok := c.Peek(o, a.Token)
	if ok && e.repeats(base) {
		return base, true
	}
	return e, ok
}

// crowded returns the entry of an agent for whom an origin is not asked.
func (c *Cache) crowded(k fetch.Key) *Entry {
	out := fetch.Outcome{Cause: fetch.CauseLocal, Detail: fmt.Sprintf(
		"the site refuses its robots.txt to strangers, and was asked in the name of %d other agents", MaxVariants)}
	record := c.policy().Provisional(fetch.Record{Origin: k.Origin, Agent: k.Agent}, out, time.Now())
	return NewEntry(record, c.interpretation())
}

// isRepeated reports whether the outcome of a flight, and the entry before it, repeat the answer to
// the gateway, and so need not be saved. For a variant that is new to the store it makes room.
func (c *Cache) isRepeated(f *flight, known, e *Entry) bool {
	if f.key.Agent == "" || e == nil {
		return false
	}
	base := c.hot.get(fetch.Key{Origin: f.key.Origin})
	if e.repeats(base) && (known == nil || known.repeats(base)) {
		return true
	}
	if known == nil || known.repeats(base) {
		c.makeRoom(f.key.Origin, base)
	}
	return false
}

// makeRoom forgets the variant of o whose last attempt is the oldest, where there are as many as
// may be kept. Those of agents that the operator names stay.
func (c *Cache) makeRoom(o origin.Origin, base *Entry) {
	ctx, cancel := context.WithTimeout(c.base, 2*storeTimeout)
	defer cancel()
	kept, err := c.Variants(ctx, o)
	if err != nil || len(kept) < MaxVariants {
		return
	}
	kept = slices.DeleteFunc(kept, func(r fetch.Record) bool {
		return base != nil && base.askers.isConfigured(r.Agent)
	})
	if len(kept) == 0 {
		return
	}
	now := time.Now()
	oldest := slices.MinFunc(kept, func(a, b fetch.Record) int { return attempted(a, now).Compare(attempted(b, now)) })
	_ = c.purge(ctx, oldest.Key()) // it is tried again with the next one
}

// Variants lists the variants of o that are kept, as [Cache.List] does.
func (c *Cache) Variants(ctx context.Context, o origin.Origin) ([]fetch.Record, error) {
	list, err := c.List(ctx, o.String(), 2*MaxVariants) // they are next in the order of keys
	return slices.DeleteFunc(list, func(r fetch.Record) bool { return r.Origin != o || r.Agent == "" }), err
}

// keys lists the keys of o and of its variants that are in memory, some perhaps twice.
func (c *Cache) keys(o origin.Origin) []fetch.Key {
	keys := []fetch.Key{{Origin: o}}
	add := func(k fetch.Key) {
		if k.Origin == o && k.Agent != "" {
			keys = append(keys, k)
		}
	}
	for k := range c.hot.keys() {
		add(k)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range c.flights {
		add(k)
	}
	for k := range c.pending.entries {
		add(k)
	}
	return keys
}
