package redisclock

import "time"

// LastMembership is what a gateway should remember of the others over a restart, for a start while
// Redis is away ([Config.Gateways]). It is a value.
type LastMembership struct {
	// Gateways is how many there were.
	Gateways int `json:"gateways"`

	fewer time.Time // since when there are fewer; zero if there are not
}

// fewerFor is how long there must be fewer gateways before that is believed. The gateways of a
// fleet that is shut down one by one must not each come back as the only one.
const fewerFor = time.Hour

// Counted is the membership after a count.
func (m LastMembership) Counted(gateways int, now time.Time) LastMembership {
	switch {
	case gateways >= m.Gateways:
		return LastMembership{Gateways: gateways}
	case m.fewer.IsZero():
		m.fewer = now
	case now.Sub(m.fewer) >= fewerFor:
		return LastMembership{Gateways: gateways}
	}
	return m
}
