package main

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// mode says how gateways share the work.
type mode string

const (
	alone   mode = "each for itself"     // any gateway may get any host; no store is shared
	shared  mode = "one store"           // any gateway may get any host
	sharded mode = "each host at one of" // and no store is shared
)

// day simulates which gateway has which robots.txt at each second of the virtual clock.
type day struct {
	mode     mode
	gateways int
	fresh    []uint32   // by origin: the second at which its robots.txt expires; unused in mode alone
	own      [][]uint64 // in mode alone, by gateway: one bit for each origin that was fetched
	hot      []cache
	zipf     *rand.Zipf

	requests, stored, fetched int64
	busiest                   int64 // the most requests to one gateway
	each                      []int64
}

// ttl is the longest time that RFC 9309 section 2.4 permits, in seconds.
const ttl = 24 * 3600

// skew is the exponent of the popularity of origins: a higher one means more requests to popular
// origins.
const skew = 1.05

func newDay(m mode, gateways, origins, hot int) *day {
	random := rand.New(rand.NewPCG(1, 2))
	d := &day{
		mode: m, gateways: gateways, fresh: make([]uint32, origins), hot: make([]cache, gateways), each: make([]int64, gateways),
		zipf: rand.NewZipf(random, skew, 100, uint64(origins-1)),
	}
	for i := range d.hot {
		d.hot[i] = cache{size: hot, at: make(map[uint32]int, hot)}
	}
	if m == alone {
		d.own = make([][]uint64, gateways)
		for i := range d.own {
			d.own[i] = make([]uint64, origins/64+1)
		}
	}
	return d
}

// run simulates a given rate of requests a second for some time, and prints the results.
func (d *day) run(rate int, length time.Duration) {
	seconds := int(length / time.Second)
	for now := range seconds {
		for range rate {
			d.ask(uint32(d.zipf.Uint64()), uint32(now)+1)
		}
	}
	for _, n := range d.each {
		d.busiest = max(d.busiest, n)
	}
	per := func(n int64) string { return fmt.Sprintf("%.0f/s", float64(n)/float64(seconds)) }
	fmt.Printf("%s %d gateways, %d origins, %v: %s requests; in memory %.1f %%; read from the store %s; fetched %s (%d in all); busiest gateway %s\n",
		d.mode, d.gateways, len(d.fresh), length, per(d.requests), 100*float64(d.requests-d.stored-d.fetched)/float64(d.requests),
		per(d.stored), per(d.fetched), d.fetched, per(d.busiest))
}

func (d *day) ask(o, now uint32) {
	g := int(rand.Uint32N(uint32(d.gateways)))
	if d.mode == sharded {
		g = int(uint64(o) * 2654435761 % (1 << 32) % uint64(d.gateways))
	}
	d.requests++
	d.each[g]++
	isHot := d.hot[g].touch(o)
	if d.mode == alone {
		bit := uint64(1) << (o % 64)
		switch {
		case d.own[g][o/64]&bit == 0:
			d.own[g][o/64] |= bit
			d.fetched++
		case !isHot:
			d.stored++
		}
		return
	}
	switch {
	case d.fresh[o] < now:
		d.fresh[o] = now + ttl
		d.fetched++
	case !isHot:
		d.stored++
	}
}

// cache holds roughly the most recently requested origins. An origin that was requested again is
// skipped once (the clock algorithm).
type cache struct {
	size  int
	hand  int
	slots []uint32
	used  []bool
	at    map[uint32]int
}

func (c *cache) touch(o uint32) (known bool) {
	if i, ok := c.at[o]; ok {
		c.used[i] = true
		return true
	}
	if len(c.slots) < c.size {
		c.at[o] = len(c.slots)
		c.slots, c.used = append(c.slots, o), append(c.used, false)
		return false
	}
	for c.used[c.hand] {
		c.used[c.hand] = false
		c.hand = (c.hand + 1) % c.size
	}
	delete(c.at, c.slots[c.hand])
	c.slots[c.hand], c.at[o] = o, c.hand
	c.hand = (c.hand + 1) % c.size
	return false
}
