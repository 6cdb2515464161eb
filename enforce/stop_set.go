package enforce

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"
)

// StopSet is a set of stops, and the ids of lifted stops. Sets of several gateways merge without
// clocks: a stop is in force unless a lift names its id. So a stop wins over a lift that did not
// know it, and no stop is lifted because it is missing somewhere.
//
// It is a value, which no method changes. Its JSON form is kept over restarts. The zero value is
// empty.
type StopSet struct {
	// Held are the stops in force, in no order. A merge may add several with the same effect.
	Held []Stop
	// Lifted are the stops that were lifted, by their ids.
	Lifted map[string]Lift

	tail *stopTail // of Held; nil for none
}

// stopTail is the array that sets share if each extends the one before. So adding a stop to 10,000
// others does not copy a megabyte.
type stopTail struct {
	mu    sync.Mutex
	stops []Stop // of the longest set; none of them changes
}

// extended returns Held with more stops after it.
func (s StopSet) extended(more ...Stop) StopSet {
	if s.tail != nil {
		s.tail.mu.Lock()
		defer s.tail.mu.Unlock()
	}
	if s.tail == nil || len(s.tail.stops) != len(s.Held) || !s.startsAs(s.tail.stops) {
		s.tail = &stopTail{stops: append(make([]Stop, 0, len(s.Held)+len(s.Held)/4+1), s.Held...)} // with room for more
	}
	s.tail.stops = append(s.tail.stops, more...)
	s.Held = slices.Clip(s.tail.stops)
	return s
}

// startsAs reports whether Held starts in the same array as other stops.
func (s StopSet) startsAs(stops []Stop) bool {
	return len(s.Held) > 0 && len(stops) > 0 && &s.Held[0] == &stops[0]
}

// Lift is the end of a stop.
type Lift struct {
	By string    `json:"by,omitempty"`
	At time.Time `json:"at"`
	// Stop is the lifted stop, for the journal. It is nil if 0.1.0 lifted it.
	Stop *Stop `json:"stop,omitempty"`
}

const (
	// maxStops bounds the orders of each kind at one gateway. People or their scripts give orders;
	// anyone who needs more can use StopAll.
	maxStops = 10_000
	// maxMerged bounds the orders of all gateways together, and the remembered lifts. Ten gateways may
	// each have reached their own bound while they were disconnected.
	maxMerged = 10 * maxStops
	// liftsKept is how long a lift is remembered. If a gateway comes back later with a stop in its
	// file that has been lifted, the stop is in force again. Such an error stops too much, never
	// too little.
	liftsKept = 90 * 24 * time.Hour
	maxID     = 64
)

// ErrTooManyStops is returned when there is no room for another stop or exception.
var ErrTooManyStops = errors.New("too many stops and exceptions: lift some, or stop everything")

// Add adds a canonical stop with an id. It lifts the stops with the same scope and value.
func (s StopSet) Add(stop Stop) (StopSet, error) {
	if !IsStopID(stop.ID) {
		return s, fmt.Errorf("id %.80q is not 1 to %d letters, digits and hyphens", stop.ID, maxID)
	}
	before := s
	if stop.Scope == StopAllow {
		before = s.withoutEnded(stop.At)
	}
	after, _ := before.without(stop.same, Lift{By: stop.By, At: stop.At})
	if after.counts()[stop.kind()] >= maxStops {
		return s, ErrTooManyStops
	}
	if after.hasLifted(stop.ID) || len(unknownIDs([]Stop{stop}, s.Held)) == 0 {
		return s, fmt.Errorf("a stop %s existed before", stop.ID)
	}
	return after.extended(stop), nil
}

// kind is an index of counts. Each kind of order has its own bound, so that neither exceptions nor
// other stops can keep out a StopAll, and exceptions cannot keep out a stop.
func (s *Stop) kind() int {
	switch s.Scope {
	case StopAll:
		return 1
	case StopAllow:
		return 2
	default:
		return 0
	}
}

// counts is the number of orders in force, by kind.
func (s StopSet) counts() (n [3]int) {
	for i := range s.Held {
		n[s.Held[i].kind()]++
	}
	return n
}

// Lift ends all stops with the scope and value of a canonical stop, and returns the newest of them.
// It reports whether there was one.
func (s StopSet) Lift(stop Stop, lift Lift) (after StopSet, lifted Stop, found bool) {
	after, ended := s.without(stop.same, lift)
	if len(ended) == 0 {
		return s, Stop{}, false
	}
	return after, slices.MaxFunc(ended, Stop.compare), true
}

// without lifts some of the stops.
func (s StopSet) without(ends func(*Stop) bool, lift Lift) (after StopSet, ended []Stop) {
	for i := range s.Held {
		if ends(&s.Held[i]) {
			ended = append(ended, s.Held[i])
		}
	}
	if len(ended) == 0 {
		return s, nil
	}
	after.Lifted = make(map[string]Lift, len(s.Lifted)+len(ended))
	maps.Copy(after.Lifted, s.Lifted)
	for _, stop := range ended {
		after.Lifted[stop.ID] = Lift{lift.By, lift.At, &stop}
	}
	after.Held = slices.DeleteFunc(slices.Clone(s.Held), func(stop Stop) bool { return ends(&stop) })
	return after, ended
}

// Merge merges the set of another gateway: the result has the stops of both, without those that
// either has lifted. The order and number of merges make no difference. Lifts older than 90 days at
// now are forgotten. An error means that there was no room for some stops; the others are in force.
func (s StopSet) Merge(other StopSet, now time.Time) (after StopSet, err error) {
	after = s
	if len(other.Lifted) > 0 {
		after = StopSet{Lifted: make(map[string]Lift, len(s.Lifted)+len(other.Lifted))}
		maps.Copy(after.Lifted, s.Lifted)
		for id, lift := range other.Lifted {
			if known, ok := after.Lifted[id]; !ok || lift.before(known) {
				after.Lifted[id] = lift
			}
		}
		after.Held = slices.DeleteFunc(slices.Clone(s.Held), func(stop Stop) bool { return after.hasLifted(stop.ID) })
	}
	var added []Stop
	news, counts := unknownIDs(other.Held, s.Held), after.counts()
	for _, stop := range other.Held {
		if after.hasLifted(stop.ID) || !news[stop.ID] {
			continue
		}
		if counts[stop.kind()] >= maxMerged {
			err = ErrTooManyStops
			continue
		}
		counts[stop.kind()]++
		delete(news, stop.ID)
		added = append(added, stop)
	}
	if len(added) > 0 {
		after = after.extended(added...)
	}
	after = after.withoutEnded(now)
	after.Lifted = remembered(after.Lifted, now)
	return after, err
}

// withoutEnded lifts the exceptions that ended long ago, so that they do not use up room forever.
// Other sets lift them too, so merging still works.
func (s StopSet) withoutEnded(now time.Time) StopSet {
	before := now.Add(-endedKept)
	after, ended := s.without(func(order *Stop) bool { return order.Ended(before) }, Lift{})
	for _, order := range ended {
		at := order.Until.Add(now.Sub(order.Until).Truncate(endedEvery))
		after.Lifted[order.ID] = Lift{endedBy, at, &order}
	}
	return after
}

// Since returns the stops and lifts that s has and an earlier set does not have. It is fast if both
// have most stops in the same order.
func (s StopSet) Since(before StopSet) (more StopSet) {
	next, from := 0, 0
	if len(before.Held) <= len(s.Held) && s.startsAs(before.Held) {
		next, from = len(before.Held), len(before.Held)
	}
	for i := from; i < len(s.Held); i++ {
		for next < len(before.Held) && before.Held[next].ID != s.Held[i].ID && s.hasLifted(before.Held[next].ID) {
			next++
		}
		if next < len(before.Held) && before.Held[next].ID == s.Held[i].ID {
			next++
		} else {
			more.Held = append(more.Held, s.Held[i])
		}
	}
	if next < len(before.Held) && len(more.Held) > 0 { // some may have moved
		news := unknownIDs(more.Held, before.Held)
		more.Held = slices.DeleteFunc(more.Held, func(stop Stop) bool { return !news[stop.ID] })
	}
	if reflect.ValueOf(s.Lifted).Pointer() == reflect.ValueOf(before.Lifted).Pointer() { // a map in a set is never changed
		return more
	}
	for id, lift := range s.Lifted {
		if !before.hasLifted(id) {
			if more.Lifted == nil {
				more.Lifted = make(map[string]Lift)
			}
			more.Lifted[id] = lift
		}
	}
	return more
}

func (s StopSet) hasLifted(id string) bool {
	_, lifted := s.Lifted[id]
	return lifted
}

// unknownIDs returns the ids of stops that others do not have.
func unknownIDs(stops, others []Stop) map[string]bool {
	ids := make(map[string]bool, len(stops))
	for i := range stops {
		ids[stops[i].ID] = true
	}
	for i := range others {
		delete(ids, others[i].ID)
	}
	return ids
}

// compare sorts the older stop first.
func (s Stop) compare(other Stop) int {
	return cmp.Or(s.At.Compare(other.At), cmp.Compare(s.ID, other.ID))
}

// Canonical returns the lift, without its Stop if that is not a valid stop.
func (l Lift) Canonical() Lift {
	if l.Stop != nil {
		stop, err := l.Stop.Canonical()
		if l.Stop = &stop; err != nil {
			l.Stop = nil
		}
	}
	return l
}

// before says which of two versions of one lift is kept.
func (l Lift) before(other Lift) bool {
	if byItself := l.By == endedBy; byItself != (other.By == endedBy) {
		return !byItself
	}
	if order := cmp.Or(l.At.Compare(other.At), cmp.Compare(l.By, other.By)); order != 0 {
		return order < 0
	}
	return l.Stop != nil && other.Stop == nil // 0.1.0 drops it
}

// Remembered reports whether a lift is recent enough to be sent to other gateways.
func (l Lift) Remembered(now time.Time) bool { return now.Sub(l.At) < liftsKept }

// remembered returns the lifts to keep: all from the last 90 days, or the newest if there are too
// many.
func remembered(lifts map[string]Lift, now time.Time) map[string]Lift {
	old := 0
	for _, l := range lifts {
		if !l.Remembered(now) {
			old++
		}
	}
	if old == 0 && len(lifts) <= maxMerged {
		return lifts
	}
	lifts = maps.Clone(lifts)
	maps.DeleteFunc(lifts, func(_ string, l Lift) bool { return !l.Remembered(now) })
	ids := slices.SortedFunc(maps.Keys(lifts), func(a, b string) int { return lifts[a].At.Compare(lifts[b].At) })
	for _, id := range ids[:max(len(ids)-maxMerged, 0)] {
		delete(lifts, id)
	}
	return lifts
}

// stopsFile is the stored form.
type stopsFile struct {
	Version int    `json:"version"`
	Stops   []Stop `json:"stops"`
	Kills   []Stop `json:"kills,omitempty"` // the stops of version 1, which 0.1.0 wrote
	// Allowed are the exceptions. A release that does not know them ignores them, and robots.txt
	// applies.
	Allowed []Stop          `json:"allowed,omitempty"`
	Lifted  map[string]Lift `json:"lifted,omitempty"`
}

const stopsFileVersion = 2

// MarshalJSON returns the whole set.
func (s StopSet) MarshalJSON() ([]byte, error) {
	f := stopsFile{Version: stopsFileVersion, Stops: []Stop{}, Lifted: s.Lifted}
	for _, order := range s.Held {
		list := &f.Stops
		if order.Scope == StopAllow {
			list = &f.Allowed
		}
		*list = append(*list, order)
	}
	return json.Marshal(f)
}

// UnmarshalJSON reads a stored set. On an error nothing changes.
func (s *StopSet) UnmarshalJSON(data []byte) error {
	var f stopsFile
	if err := json.Unmarshal(data, &f); err != nil {
		return fmt.Errorf("reading the stops: %w", err)
	}
	if f.Version == 1 {
		f.Stops = append(f.Stops, f.Kills...)
	} else if f.Version != stopsFileVersion {
		return fmt.Errorf("reading the stops: version %d is not %d", f.Version, stopsFileVersion)
	}
	if max(len(f.Stops)/2, len(f.Allowed), len(f.Lifted)) > maxMerged { // stops are of two kinds
		return fmt.Errorf("reading the stops: %w", ErrTooManyStops)
	}
	f.Stops = append(f.Stops, f.Allowed...)
	known := make(map[string]bool, len(f.Stops))
	for i, stop := range f.Stops {
		stop, err := stop.Canonical()
		if err != nil {
			return fmt.Errorf("reading the stops: stop %d: %w", i+1, err)
		}
		if !IsStopID(stop.ID) {
			return fmt.Errorf("reading the stops: stop %d: %.80q is not an id", i+1, stop.ID)
		}
		if known[stop.ID] {
			return errors.New("reading the stops: a stop is listed twice")
		}
		known[stop.ID] = true
		f.Stops[i] = stop
	}
	for id, lift := range f.Lifted {
		if !IsStopID(id) {
			return fmt.Errorf("reading the stops: %.80q is not an id", id)
		}
		f.Lifted[id] = lift.Canonical()
	}
	if len(f.Allowed) > 0 {
		slices.SortStableFunc(f.Stops, Stop.compare)
	}
	*s = StopSet{Held: f.Stops, Lifted: f.Lifted}
	return nil
}
