package main

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// plan says how regions share the hosts.
type plan string

const (
	eachItsOwn plan = "each region its own clocks" // a host gets the sum of all regions' requests
	oneRedis   plan = "one Redis for all"          // reservations of all regions but one cross the ocean
	homes      plan = "a home for each host"       // requests for a host are sent from its home region
)

// The simulation assumes these times, in ms.
const (
	ocean     = 60      // one way
	patience  = 10_000  // the longest that a request waits
	idle      = 120_000 // after which a clock is forgotten
	leaseTime = 5_000   // how long a region without a majority stays the home of its hosts
	quiet     = 1_000   // between the end of its lease and another region's start
)

// Bytes in Redis 7.0 of one clock, and of a record with its history, its index entry and a short
// text.
const (
	clockBytes  = 465
	recordBytes = 2_372 // with history, index and text
)

// worldwide is the simulation. For the middle third of the time, one region is cut off from the
// others. It continues to crawl as long as its plan permits.
type worldwide struct {
	plan              plan
	regions, gateways int
	foreign           float64 // the share of requests from outside the home of their host
	cutFrom, cutTo    uint32

	// next is the earliest next request by clock and host. A plan has one clock per host or, if
	// each region has its own clocks, one per region. In the plan with homes, the home and a region
	// that stands in for it have one each.
	next [][]uint32
	sent []uint32 // by host: when the site got the last request

	requests, refused, crossings, short int64
	shortest                            uint32
	calls, clocks                       []int64 // by region
	added                               int64   // ms that the ocean added to all requests that were sent
}

func newWorldwide(p plan, regions, gateways, hosts int, foreign float64, length time.Duration) *worldwide {
	third := uint32(length.Milliseconds() / 3)
	w := &worldwide{
		plan: p, regions: regions, gateways: gateways, foreign: foreign, cutFrom: third, cutTo: 2 * third,
		sent: make([]uint32, hosts), calls: make([]int64, regions), clocks: make([]int64, regions), shortest: math.MaxUint32,
	}
	for range map[plan]int{eachItsOwn: regions, oneRedis: 1, homes: 2}[p] {
		w.next = append(w.next, make([]uint32, hosts))
	}
	return w
}

// delay returns the Crawl-delay of a host: 1 s for most, 5 s for a tenth, 30 s for a hundredth.
func delay(host uint32) uint32 {
	switch n := mix(uint64(host)) % 100; {
	case n == 0:
		return 30_000
	case n <= 10:
		return 5_000
	}
	return 1_000
}

// mix spreads the bits of n (splitmix64).
func mix(n uint64) uint64 {
	n += 0x9e3779b97f4a7c15
	n = (n ^ n>>30) * 0xbf58476d1ce4e5b9
	n = (n ^ n>>27) * 0x94d049bb133111eb
	return n ^ n>>31
}

// home returns the region with the greatest hash among those available (rendezvous hashing), so
// only the hosts of a lost region move.
func (w *worldwide) home(host uint32, without int) (best int) {
	most := uint64(0)
	for r := range w.regions {
		if h := mix(uint64(host)<<8 | uint64(r)); r != without && h >= most {
			best, most = r, h
		}
	}
	return best
}

const nobody = -1

func (w *worldwide) run(rate int, length time.Duration) {
	random := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(random, skew, 100, uint64(len(w.sent)-1))
	total := int64(length.Seconds()) * int64(rate)
	for i := range total {
		now := uint32(i * 1000 / int64(rate))
		host := uint32(zipf.Uint64())
		from := w.home(host, nobody)
		if random.Float64() < w.foreign {
			from = random.IntN(w.regions)
		}
		w.requests++
		if !w.ask(host, from, now+1) {
			w.refused++
		}
	}
	w.print(length)
}

func (w *worldwide) print(length time.Duration) {
	seconds, sent := int64(length.Seconds()), float64(max(1, w.requests-w.refused))
	records := float64(len(w.sent)) * recordBytes / 1e9
	if w.plan == homes {
		records /= float64(w.regions)
	}
	clocks := float64(slices.Max(w.clocks)) * clockBytes / 1e6 / max(1, length.Seconds()*1000/idle)
	fmt.Printf(
		"%s: %d regions of %d gateways, %d hosts, %v: %d requests/s; refused %.2f %%; reservations at the busiest region's Redis %d/s; "+
			"over the ocean %d/s; added %.1f ms a request; at the fullest region: clocks %.0f MB, records %.1f GB; gaps too short %d, the shortest %.3f of the delay\n",
		w.plan, w.regions, w.gateways, len(w.sent), length, w.requests/seconds, 100*float64(w.refused)/float64(w.requests),
		slices.Max(w.calls)/seconds, w.crossings/seconds, float64(w.added)/sent, clocks, records, w.short, float64(min(w.shortest, 1000))/1000,
	)
}

// cut returns the region that the others cannot reach, if any.
func (w *worldwide) cut(now uint32) int {
	if now >= w.cutFrom && now < w.cutTo {
		return 0
	}
	return nobody
}

// ask simulates a request for a host in a region, and reports whether it was sent.
func (w *worldwide) ask(host uint32, from int, now uint32) bool {
	cut, owner, clock := w.cut(now), from, 0
	switch w.plan {
	case eachItsOwn:
		clock = from
	case oneRedis:
		owner = 1
		if from == cut {
			return false // it might send its share of the rate: see docs/politeness.md
		}
	case homes:
		var ok bool
		if owner, ok = w.owner(host, from, now); !ok {
			return false
		}
		if owner != w.home(host, nobody) {
			clock = 1
		}
	}
	way := uint32(0)
	if owner != from {
		way = ocean
		w.crossings++
		if w.plan == oneRedis {
			way = 2 * ocean // there and back; the request is sent from here
		}
	}
	w.calls[owner]++
	slot := max(now+way, w.next[clock][host])
	if slot-now > patience {
		return false
	}
	if w.plan == homes && !w.holds(clock, owner, cut, slot) {
		return false
	}
	if slot > w.next[clock][host]+idle || w.next[clock][host] == 0 {
		w.clocks[owner]++
	}
	w.next[clock][host] = slot + delay(host)
	w.added += int64(way)
	w.see(host, slot)
	return true
}

// owner returns the region that sends requests for a host, as far as the asking region knows. A
// region that takes a host over first waits until the previous one has stopped, for a quiet time,
// and for the host's delay.
func (w *worldwide) owner(host uint32, from int, now uint32) (region int, ok bool) {
	region = w.home(host, nobody)
	cut := w.cut(now)
	switch {
	case cut == nobody:
		back := region == 0 && now >= w.cutTo
		return region, !back || now >= w.cutTo+quiet+delay(host)
	case from == cut:
		return region, region == cut
	case region == cut:
		return w.home(host, cut), now >= w.cutFrom+leaseTime+quiet+delay(host)
	}
	return region, true
}

// holds reports whether a region is still responsible for the host at the slot. A region that is
// cut off is until its lease ends, and a region that stands in is until the other is back.
func (w *worldwide) holds(clock, owner, cut int, slot uint32) bool {
	if clock == 1 {
		return slot < w.cutTo
	}
	return owner != 0 || slot < w.cutFrom+leaseTime || cut == nobody && slot >= w.cutTo
}

// see records a request as the site does, and checks the delay.
func (w *worldwide) see(host uint32, at uint32) {
	last := w.sent[host]
	w.sent[host] = max(last, at)
	if last == 0 {
		return
	}
	gap := max(last, at) - min(last, at)
	if want := delay(host); gap < want {
		w.short++
		w.shortest = min(w.shortest, gap*1000/want)
	}
}
