package budget

import (
	"errors"
	"strings"
)

// share is the divisor for slices: a slice is 1/share of the rest, divided by the number of
// gateways.
const share = 100

// byteSlice is the smallest slice of bytes.
const byteSlice = 64 << 10

// Ask asks a [Pool] for a part of one limit for one day.
type Ask struct {
	Agent, Day, Name string // the three name a counter
	Limit            int64
	// Settle is how much was used beyond the draws. If negative, it is how much the gateway returns.
	Settle int64
	// Want is how much the gateway wants. 0 only asks how much is left.
	Want int64
	// Drawn is how much all gateways together have drawn, as far as this one knows. The pool uses it
	// to restore a counter that it has lost. Memory and Draws are copied from the last [Grant], and
	// are 0 before the first one.
	Drawn, Memory, Draws int64
	// Tell says that, if nothing is left, the pool is to ask other gateways to return their slices.
	Tell bool
}

// OfHost reports whether the counter belongs to a host.
func (a Ask) OfHost() bool { return strings.HasPrefix(a.Name, hostPrefix) }

// Grant is the answer of a [Pool].
type Grant struct {
	// Granted is at most [Ask.Want]. Left is how much nobody has drawn. It is negative if the limit
	// was lowered or if more bytes were used than the limit.
	Granted, Left int64
	// Uncounted says that the pool has no room for the counter: Granted is all that this gateway gets.
	Uncounted bool
	// Memory is a new number each time the pool starts empty or notices that it was restored from an
	// older copy. It notices that when a gateway knows of more Draws, which count its changes, than
	// the pool does. A pool that cannot lose its data returns 0.
	Memory, Draws int64
}

// ErrAway means that a [Pool] was not asked because it cannot be reached.
var ErrAway = errors.New("redis cannot be reached")

// Apply carries out an ask on a counter whose value is drawn. It returns the new value and the
// answer.
func (a Ask) Apply(drawn int64) (int64, Grant) {
	drawn = max(drawn+a.Settle, 0)
	granted := max(min(a.Want, a.Limit-drawn), 0)
	return drawn + granted, Grant{Granted: granted, Left: a.Limit - drawn - granted}
}

// meter is one gateway's part of one limit. Its keeper's mutex guards it.
type meter struct {
	account *account
	what    string // [Requests], [Bytes] or [PerHost]
	name    string // in the pool
	limit   int64
	least   int64 // the smallest slice

	held    int64 // drawn and not used yet; negative if more was used than drawn
	left    int64 // in the pool at its last answer; the limit before the first answer
	memory  int64 // of the pool at its last answer, like draws
	draws   int64
	waiting int64 // requests that wait for a draw

	tight     bool // another gateway ran out, so this one keeps no reserve any more
	dry       bool // nothing is left, neither here nor in the pool
	idle      bool // not used since the last sweep
	release   bool // the next draw returns held
	unsure    bool // the pool may have lost its count, and no draw has restored it
	uncounted bool
	drawing   *draw         // in progress, or nil
	gave      chan struct{} // a request or another gateway has returned something
}

// draw is one call of the pool, or several while other gateways are asked to return their slices.
type draw struct {
	done chan struct{}
	err  error // why the pool did not answer
}

// slice is how much the meter should hold at most.
func (m *meter) slice(gateways int) int64 {
	if m.tight {
		return m.waited()
	}
	return max(m.left/share/int64(max(gateways, 1)), m.least, m.waited())
}

// waited is how much the waiting requests need.
func (m *meter) waited() int64 { return m.waiting * m.least }

// low reports whether the meter should draw ahead.
func (m *meter) low(gateways int) bool {
	return !m.tight && !m.uncounted && m.left > 0 && 2*m.held < m.slice(gateways)
}

// over reports whether the meter holds something that it must return, or a debt that the pool does
// not know of.
func (m *meter) over() bool {
	debt := m.held < 0 && (m.tight || m.left > 0)
	return m.held > 0 && m.left < 0 || (m.tight || m.release) && m.held > m.waited() || debt
}

// usable is how much of held may be used. It is less than held if the limit was lowered.
func (m *meter) usable() int64 { return m.held + min(m.left, 0) }

// ask removes from held what the meter returns, and builds the ask for the pool.
func (m *meter) ask(gateways int) Ask {
	a := Ask{Agent: m.account.agent, Day: m.account.day.name, Name: m.name, Limit: m.limit, Drawn: m.limit - m.left, Memory: m.memory, Draws: m.draws}
	keep, ahead := m.held, !m.release
	if m.release || m.tight {
		keep = min(m.held, m.waited())
	}
	keep = min(keep, max(m.usable(), 0))
	if a.Settle = keep - m.held; m.held < 0 {
		a.Settle = -m.held
	}
	m.held, m.release, m.unsure = m.held+a.Settle, false, false
	if m.waiting > 0 || ahead && m.low(gateways) {
		a.Want = max(m.slice(gateways)-m.held, 0)
	}
	return a
}

// failed restores the debt that the pool does not know of yet. What the meter returned counts as
// used, unless the pool was never asked.
func (m *meter) failed(a Ask, err error) {
	if !errors.Is(err, ErrAway) {
		a.Settle = max(a.Settle, 0)
	}
	m.held -= a.Settle
}

// answered adds what the pool has granted. The limit may have changed since the ask.
func (m *meter) answered(a Ask, g Grant) {
	m.held, m.left = m.held+g.Granted, g.Left+m.limit-a.Limit
	m.uncounted, m.memory, m.draws = g.Uncounted, g.Memory, g.Draws
}

// spent reports whether waiting is useless.
func (m *meter) spent() bool { return m.dry || m.uncounted && m.held <= 0 }

// remaining is how much of a limit is left, as far as this gateway knows.
func (m *meter) remaining(limit int64) int64 { return max(m.held+max(m.left+limit-m.limit, 0), 0) }

// limited changes the limit. The meter returns the excess over the new one.
func (m *meter) limited(limit int64) {
	m.left += limit - m.limit
	m.limit, m.tight, m.dry = limit, false, false
}
