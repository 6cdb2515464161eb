package proxy

import (
	"context"
	"net"
	"sync/atomic"

	"github.com/crawlgate/crawlgate/budget"
)

// spending is what an exchange has used of its agent's budget.
type spending struct {
	taken budget.Receipt
	kept  bool // it counts even if nothing was sent

	passed, counted atomic.Int64 // bytes that have passed, and those of them that are counted
}

// countEvery is how many bytes of a request pass before they are counted. If the gateway is killed,
// those that are not counted, and those whose count is not written yet, are forgotten.
const countEvery = 64 << 10

// spend counts the request in the budget of its agent. kept says that it counts even if nothing is
// sent. The caller must call settle.
func (x *exchange) spend(kept bool) error {
	taken, err := x.site.Engine.TakeBudget(x.ctx, x.identity.Config, x.target.Origin.Host)
	if err == nil {
		x.budget = &spending{taken: taken, kept: kept}
		x.sent.Tell = x.tell
	}
	return err
}

// tell counts bytes that pass while the request runs.
func (x *exchange) tell(n int) {
	b := x.budget
	now, before := b.passed.Add(int64(n)), b.counted.Load()
	if now-before >= countEvery && b.counted.CompareAndSwap(before, now) {
		x.site.Engine.CountBytes(x.identity.Config, now-before)
	}
}

// settle counts the bytes of the exchange that are not counted yet, or undoes spend if the request
// was not sent. It does nothing without a spend.
func (x *exchange) settle() {
	if x.budget == nil {
		return
	}
	if x.sentAt.IsZero() && !x.budget.kept {
		x.budget.taken.Back()
		return
	}
	x.site.Engine.CountBytes(x.identity.Config, x.sent.Bytes+x.sent.Uploaded-x.budget.counted.Load())
}

// metered is the connection of a tunnel to its origin. It ends the tunnel when the agent has used
// up its bytes.
type metered struct {
	net.Conn
	x   *exchange
	ctx context.Context //nolint:containedctx // the tunnel's
	end context.CancelCauseFunc
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.Conn.Read(p)
	return n, m.pass(n, err)
}

func (m *metered) Write(p []byte) (int, error) {
	n, err := m.Conn.Write(p)
	return n, m.pass(n, err)
}

func (m *metered) pass(n int, err error) error {
	if spent := m.x.site.Engine.PassBytes(m.ctx, m.x.identity.Config, int64(n)); spent != nil {
		m.end(spent)
		return spent
	}
	return err
}

// NetConn returns the connection within, as [tls.Conn] does: its sending half can close alone.
func (m *metered) NetConn() net.Conn { return m.Conn }
