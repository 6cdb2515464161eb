// Package budget limits what an agent may use in a day: requests, requests to one host, and bytes.
//
// All gateways of a fleet share a [Pool] that counts each agent's use. A gateway draws slices from
// it: a hundredth of the rest, divided by the number of gateways. It draws ahead, so requests wait
// for the pool only when the budget is almost used up. A gateway returns an unused slice when the
// slice has been idle for a minute, when another gateway finds the pool empty, and when the gateway
// stops. Everything that was drawn and not returned counts as used. So the gateways together never
// exceed the limit, even if one of them crashes.
package budget

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Config is a budget for a day. Each number ends with `/day`.
type Config struct {
	// Requests is how many requests the agent may send, such as `50000/day`. Default: any number.
	Requests string `json:"requests,omitempty"`
	// Bytes is how many bytes of bodies and tunnels may pass in both directions, such as `20GiB/day`.
	// Default: any number.
	Bytes string `json:"bytes,omitempty"`
	// PerHost is how many requests the agent may send to one host, such as `2000/day`. Default: any
	// number.
	PerHost string `json:"per_host,omitempty"`
	// Zone is the time zone whose midnight begins the day, such as `Europe/Berlin`. Default: UTC.
	Zone string `json:"zone,omitempty"`
}

// Allowance is what an agent may use in a day. A limit of 0 means no limit. It must not be changed.
type Allowance struct {
	Requests, Bytes, PerHost int64
	Zone                     *time.Location
}

// Same reports whether two allowances are equal.
func (l *Allowance) Same(other *Allowance) bool {
	a, b := *l, *other
	a.Zone, b.Zone = nil, nil // each has loaded its own
	return a == b && l.Zone.String() == other.Zone.String()
}

// maxLimit is far more than any crawler uses, and Lua's numbers represent it exactly.
const maxLimit = 1 << 50

// Allowance parses a budget.
func (c Config) Allowance() (*Allowance, error) {
	var l Allowance
	count := func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }
	for _, part := range []struct {
		name, text, example string
		parse               func(string) (uint64, error)
		to                  *int64
	}{
		{"requests", c.Requests, "50000/day", count, &l.Requests},
		{"bytes", c.Bytes, "20GiB/day", humanize.ParseBytes, &l.Bytes},
		{"per_host", c.PerHost, "2000/day", count, &l.PerHost},
	} {
		if part.text == "" {
			continue
		}
		number, daily := strings.CutSuffix(part.text, "/day")
		n, err := part.parse(number)
		if !daily || err != nil || n == 0 || n > maxLimit {
			return nil, fmt.Errorf("budget: %s %q: want a number above 0 for a day, such as %s", part.name, part.text, part.example)
		}
		*part.to = int64(n)
	}
	if l == (Allowance{}) {
		return nil, fmt.Errorf("budget: want at least one of requests, bytes and per_host")
	}
	var err error
	if l.Zone, err = time.LoadLocation(c.Zone); err != nil || c.Zone == "Local" {
		return nil, fmt.Errorf("budget: zone %q: want a name such as Europe/Berlin", c.Zone)
	}
	return &l, nil
}

// Day returns the date of a time in the allowance's zone, and the end of that day.
func (l *Allowance) Day(now time.Time) (date string, ends time.Time) {
	d := dayAt(now, l.Zone)
	return d.name, d.ends
}

// day is one day in a time zone.
type day struct {
	name string    // its date
	ends time.Time // when the next one begins
}

// longestDay is more than the longest day: zones change by hours, and some have crossed the date
// line.
const longestDay = 50 * time.Hour

// dayAt returns the day of a time.
func dayAt(now time.Time, zone *time.Location) day {
	y, m, d := now.In(zone).Date()
	// In a zone whose clocks change at midnight, 0:00 comes twice or not at all. Clocks change at full
	// quarters of an hour.
	ends := time.Date(y, m, d+1, 0, 0, 0, 0, zone).Add(-3 * time.Hour)
	for ends.In(zone).Day() == d || !ends.After(now) {
		ends = ends.Add(15 * time.Minute)
	}
	return day{now.In(zone).Format(time.DateOnly), ends}
}

// holds reports whether the day is not over yet. It stays true if the clock was set back a little,
// because a day must not begin twice.
func (d day) holds(now time.Time) bool { return now.Before(d.ends) && d.ends.Sub(now) < longestDay }
