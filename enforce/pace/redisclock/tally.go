package redisclock

import "time"

// Tally is what a gateway should remember of the others over a restart, for the
// case that it starts while Redis is away ([Config.Gateways]). It is a value.
type Tally struct {
	// Gateways is how many there were, Rank this one's place among them.
	Gateways int `json:"gateways"`
	Rank     int `json:"rank"`

	fewer time.Time // since when there are fewer; zero if there are not
}

// fewerFor is how long there must be fewer gateways before that is believed. A
// fleet that is shut down, one after the other, must not come back with each
// taking itself for the only one.
const fewerFor = time.Hour

// Counted is the tally after a count.
func (t Tally) Counted(gateways, rank int, now time.Time) Tally {
	switch {
	case gateways >= t.Gateways:
		return Tally{Gateways: gateways, Rank: rank}
	case t.fewer.IsZero():
		t.fewer = now
	case now.Sub(t.fewer) >= fewerFor:
		return Tally{Gateways: gateways, Rank: rank}
	}
	return t
}

// Same reports whether both say the same to a gateway that starts.
func (t Tally) Same(o Tally) bool { return t.Gateways == o.Gateways && t.Rank == o.Rank }
