// Package budget bounds what an agent may take in a day: requests, requests to one host, and bytes.
//
// What an agent may take is in a [Pool], which all gateways of a fleet share. A gateway draws from
// it in slices of a hundredth of what is left, divided by the gateways, and draws ahead, so that a
// request waits for the pool only at the very end. A slice that is not used goes back: when it has
// been idle for a minute, when another gateway finds the pool empty, and when the gateway ends. What
// was drawn and not given back counts as used. So the gateways never take more than the limit
// together, whatever happens to one of them.
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

// Allowance is what an agent may take in a day. A limit of 0 is none. It must not be changed.
type Allowance struct {
	Requests, Bytes, PerHost int64
	Zone                     *time.Location
}

// Same reports whether two allowances say the same.
func (l *Allowance) Same(other *Allowance) bool {
	a, b := *l, *other
	a.Zone, b.Zone = nil, nil // each has loaded its own
	return a == b && l.Zone.String() == other.Zone.String()
}

// maxLimit is far more than any crawler takes, and exact in the numbers of Lua.
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

// Day returns the date of a time in the zone of the allowance, and when that day ends.
func (l *Allowance) Day(now time.Time) (date string, ends time.Time) {
	d := dayAt(now, l.Zone)
	return d.name, d.ends
}

// day is one day of a zone.
type day struct {
	name string    // its date
	ends time.Time // when the next one begins
}

// longestDay bounds a day: zones change by hours, and have crossed the date line.
const longestDay = 50 * time.Hour

// dayAt returns the day of a time.
func dayAt(now time.Time, zone *time.Location) day {
	y, m, d := now.In(zone).Date()
	// A zone whose clocks change at midnight has 0:00 twice or not at all. Changes come at full
	// quarters of an hour.
	ends := time.Date(y, m, d+1, 0, 0, 0, 0, zone).Add(-3 * time.Hour)
	for ends.In(zone).Day() == d || !ends.After(now) {
		ends = ends.Add(15 * time.Minute)
	}
	return day{now.In(zone).Format(time.DateOnly), ends}
}

// holds reports whether the day has not ended. If the clock was set back a little, the day goes on:
// it must not begin twice.
func (d day) holds(now time.Time) bool { return now.Before(d.ends) && d.ends.Sub(now) < longestDay }
