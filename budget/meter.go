package budget

import (
	"errors"
	"strings"
)

// share is which part of what is left a slice is, divided by the gateways.
const share = 100

// byteSlice is the least slice of bytes.
const byteSlice = 64 << 10

// Ask asks a [Pool] for a part of one limit of one day.
type Ask struct {
	Agent, Day, Name string // the three name a counter
	Limit            int64
	// Settle is how much has been used beyond what was drawn, or, below 0, how much goes back.
	Settle int64
	// Want is how much is wanted; 0 asks what is left.
	Want int64
	// Drawn is what all gateways together have drawn, as far as this one knows. The pool needs it if it
	// has lost its memory. Memory is that of the last [Grant], 0 before the first.
	Drawn, Memory int64
	// Tell says that other gateways are to give back what they hold, if nothing is left.
	Tell bool
}

// OfHost reports whether the counter is that of a host.
func (a Ask) OfHost() bool { return strings.HasPrefix(a.Name, hostPrefix) }

// Grant is the answer of a [Pool].
type Grant struct {
	// Granted is at most what was wanted. Left is how much nobody has drawn; it is below 0 if the limit
	// was lowered, and for bytes that were used beyond it.
	Granted, Left int64
	// Uncounted says that the pool has no room for the counter: Granted is all that this gateway gets.
	Uncounted bool
	// Memory is another number whenever the pool has begun with nothing. A pool that cannot lose its
	// memory has 0.
	Memory int64
}

// ErrAway is the error of a [Pool] that was not asked, because it cannot be reached.
var ErrAway = errors.New("redis cannot be reached")

// Apply gives the new number of a counter of which a number is drawn, and the answer to the ask.
func (a Ask) Apply(drawn int64) (int64, Grant) {
	drawn = max(drawn+a.Settle, 0)
	granted := max(min(a.Want, a.Limit-drawn), 0)
	return drawn + granted, Grant{Granted: granted, Left: a.Limit - drawn - granted}
}

// meter is what one gateway has of one limit. It is guarded by its keeper.
type meter struct {
	account *account
	what    string // [Requests], [Bytes] or [PerHost]
	name    string // in the pool
	limit   int64
	least   int64 // the least slice

	held    int64 // drawn and not used; below 0 what was used beyond
	left    int64 // in the pool when it was last heard of; the limit before that
	memory  int64 // of the pool then
	waiting int64 // requests that wait for a draw

	tight     bool // another gateway had to do without: nothing is held in reserve any more
	dry       bool // nothing is left, here and in the pool
	idle      bool // not used since the last sweep
	release   bool // what is held goes back with the next draw
	uncounted bool
	drawing   *draw         // that is under way, or nil
	gave      chan struct{} // somebody has given back
}

// draw is one call of the pool, or some while others are asked to give back.
type draw struct {
	done chan struct{}
	err  error // why the pool did not answer
}

// slice is how much to hold at most.
func (m *meter) slice(gateways int) int64 {
	if m.tight {
		return m.waited()
	}
	return max(m.left/share/int64(max(gateways, 1)), m.least, m.waited())
}

// waited is what those who wait need.
func (m *meter) waited() int64 { return m.waiting * m.least }

// low reports whether it is time to draw ahead.
func (m *meter) low(gateways int) bool {
	return !m.tight && !m.uncounted && m.left > 0 && 2*m.held < m.slice(gateways)
}

// over reports whether something is held that has to go back.
func (m *meter) over() bool {
	return m.held > 0 && m.left < 0 || (m.tight || m.release) && m.held > m.waited() || m.tight && m.held < 0
}

// usable is how much of what is held may be used: less, if the limit was lowered.
func (m *meter) usable() int64 { return m.held + min(m.left, 0) }

// ask takes out what goes back, and says what to ask the pool.
func (m *meter) ask(gateways int) Ask {
	a := Ask{Agent: m.account.agent, Day: m.account.day.name, Name: m.name, Limit: m.limit, Drawn: m.limit - m.left, Memory: m.memory}
	keep, ahead := m.held, !m.release
	if m.release || m.tight {
		keep = min(m.held, m.waited())
	}
	keep = min(keep, max(m.usable(), 0))
	if a.Settle = keep - m.held; m.held < 0 {
		a.Settle = -m.held
	}
	m.held, m.release = m.held+a.Settle, false
	if m.waiting > 0 || ahead && m.low(gateways) {
		a.Want = max(m.slice(gateways)-m.held, 0)
	}
	return a
}

// failed takes back the debt that the pool has not been told. What went back counts as used if the
// pool may know of it.
func (m *meter) failed(a Ask, err error) {
	if !errors.Is(err, ErrAway) {
		a.Settle = max(a.Settle, 0)
	}
	m.held -= a.Settle
}

// answered takes what the pool has granted. The limit may have changed since it was asked.
func (m *meter) answered(a Ask, g Grant) {
	m.held, m.left = m.held+g.Granted, g.Left+m.limit-a.Limit
	m.uncounted, m.memory = g.Uncounted, g.Memory
}

// spent reports whether there is nothing to wait for.
func (m *meter) spent() bool { return m.dry || m.uncounted && m.held <= 0 }

// remaining is how much of a limit is left, as far as is known here.
func (m *meter) remaining(limit int64) int64 { return max(m.held+max(m.left+limit-m.limit, 0), 0) }

// limited changes the limit. What is held beyond it goes back.
func (m *meter) limited(limit int64) {
	m.left += limit - m.limit
	m.limit, m.tight, m.dry = limit, false, false
}
