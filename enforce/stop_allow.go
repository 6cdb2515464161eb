package enforce

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/crawlgate/crawlgate/internal/escape"
)

// Exceptions at run time are orders with the scope [StopAllow].

const (
	maxAllowedPaths = 16
	// maxAhead is how far the clock of the gateway that issues an exception may be ahead of
	// another's. An exception that seems to come from further in the future is not in force,
	// because it could last longer than permitted.
	maxAhead = 5 * time.Minute
	// endedKept is how long an exception stays in a set after its end. Otherwise a gateway whose
	// clock is ahead would lift it too early at the others.
	endedKept = 24 * time.Hour
	// endedEvery rounds the time at which an ended exception is lifted, so that most gateways use the
	// same time and remember the same lift.
	endedEvery = liftsKept / 3
	endedBy    = "its own end"
)

// NewAllow returns an order of [StopAllow] without its author: for an agent, a host pattern,
// prefixes of paths and an end, as [Exception] has them.
func NewAllow(agent, hosts string, paths []string, until string) (order Stop, err error) {
	order = Stop{Scope: StopAllow, Value: agent + "@" + hosts}
	if order.Until, err = parseUntil(until); err != nil {
		return Stop{}, err
	}
	return order, order.limitTo(paths)
}

// limitTo adds prefixes of paths to the value of an order of StopAllow.
func (s *Stop) limitTo(paths []string) error {
	for _, path := range paths {
		prefix, err := pathPrefix(path)
		if err != nil {
			return err
		}
		s.Value += " " + prefix
	}
	return nil
}

// canonicalAllow is Canonical for a StopAllow. A value without a time only names an order, so it
// needs no author.
func (s Stop) canonicalAllow() (Stop, error) {
	agent, hosts := s.parts()
	of, err := Stop{Scope: StopAgentHost, Value: agent.Value + "@" + hosts.Value}.Canonical()
	if err != nil {
		return Stop{}, err
	}
	paths := s.paths()
	slices.Sort(paths)
	if paths = slices.Compact(paths); len(paths) > maxAllowedPaths {
		return Stop{}, fmt.Errorf("%d paths are more than %d", len(paths), maxAllowedPaths)
	}
	s.Value = of.Value
	if err := s.limitTo(paths); err != nil {
		return Stop{}, err
	}
	s.Until = s.Until.UTC().Truncate(time.Millisecond) // the precision of the log
	switch {
	case s.At.IsZero():
	case strings.TrimSpace(s.By) == "" || strings.TrimSpace(s.Ticket) == "":
		return Stop{}, errors.New("an exception needs an author and a ticket: want by and ticket")
	case !s.At.Before(s.Until):
		return Stop{}, fmt.Errorf("until %s is over", stamp(s.Until))
	}
	return s, nil
}

// paths returns the prefixes of a StopAllow. No prefixes stand for every path.
func (s Stop) paths() []string {
	if _, paths, limited := strings.Cut(s.Value, " /"); limited && s.Scope == StopAllow {
		return strings.Fields("/" + paths)
	}
	return nil
}

// Ended reports whether an order of StopAllow is over at the time now. Stops do not end.
func (s Stop) Ended(now time.Time) bool { return s.Scope == StopAllow && !now.Before(s.Until) }

// label names an order of StopAllow in the log.
func (s Stop) label() string {
	return escape.Cut(fmt.Sprintf("order %s, by %s, ticket %s, until %s: %s", s.ID, s.By, s.Ticket, stamp(s.Until), s.Value), maxShown)
}

// Exception is an order of StopAllow in the form of the configuration.
func (s Stop) Exception() Exception {
	agent, hosts := s.parts()
	return Exception{
		Hosts: []string{hosts.Value}, Paths: s.paths(), Agents: []string{agent.Value}, Until: stamp(s.Until),
		Reason: s.Reason, Ticket: s.Ticket, ApprovedBy: s.By,
	}
}

// Holds reports whether an order is in force at the time now, and returns it with its effective
// end: no exception lasts longer than limit, and a limit of 0 permits none. Stops are always in
// force.
func (s Stop) Holds(now time.Time, limit time.Duration) (Stop, bool) {
	if s.Scope != StopAllow {
		return s, true
	}
	if last := s.At.Add(limit).Truncate(time.Millisecond); last.Before(s.Until) {
		s.Until = last
	}
	return s, limit > 0 && !s.Ended(now) && !s.At.After(now.Add(maxAhead))
}

// InForce returns the orders in force at the time now, as Holds returns them, oldest first. The
// slice belongs to the caller.
func (s *Stops) InForce(now time.Time, limit time.Duration) []Stop {
	list := s.List()
	inForce := list[:0]
	for _, order := range list {
		if order, ok := order.Holds(now, limit); ok {
			inForce = append(inForce, order)
		}
	}
	return inForce
}
