package adminapi

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/crawlgate/crawlgate/engine"
	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/robotscache"
)

// Catalog has the names and states of all records, so that records in a rare state are found at
// once. The zero value is empty. It is safe for concurrent use.
type Catalog struct {
	read    atomic.Pointer[CatalogPage] // all records read, in the order of their names
	last    atomic.Pointer[attempt]     // the last reading, failed or not
	reading singleflight.Group
}

type attempt struct {
	at   time.Time
	took time.Duration
	err  error
}

// maxCatalog bounds the records of a catalog. If there are more, the catalog also has up to as many
// unreachable ones, but no others.
const maxCatalog = 250_000

// CatalogQuery selects records by their state, by the least time in that state, and by a text in
// their names. From is how many of them to skip, and Limit how many to return.
type CatalogQuery struct {
	State, Text string
	Age         time.Duration
	From, Limit int
}

// CatalogPage is a page of the selected records. If the state "unreachable" was selected, the ones
// that have been unreachable longest come first. Otherwise they are in the order of their names.
type CatalogPage struct {
	Origins []CatalogOrigin
	All     int // number of all records
	Found   int // number of selected records in the catalog
	Recent  int // of these, in the state for less than an hour
	Full    bool
	ReadAt  time.Time // zero before the first reading

	unreachable []int // indices in Origins, the longest unreachable first
}

// CatalogOrigin is a record: its origin and, for a variant, its agent. Since is the first failure
// if it is unreachable, otherwise the last fetch.
type CatalogOrigin struct {
	Origin, Agent string
	State         fetch.State
	Cause         fetch.Cause
	Since         time.Time
}

// Renew reads the store, unless the last attempt is recent: less than five seconds ago, or less
// than twenty times as long as it took. After a minute, four times as long is enough. Renew waits
// only for the first reading, and only until ctx ends. Every reading stops when life ends. Renew
// returns the error of the last attempt.
func (c *Catalog) Renew(ctx, life context.Context, e *engine.Engine) error {
	var err error
	if last := c.last.Load(); last != nil {
		err = last.err
		pace := min(max(5*time.Second, 20*last.took), max(time.Minute, 4*last.took))
		if age := time.Since(last.at); age >= 0 && age < pace {
			return err
		}
	}
	done := c.reading.DoChan("", func() (any, error) {
		began := time.Now()
		err := c.readAll(life, e)
		c.last.Store(&attempt{began, time.Since(began), err})
		return nil, err
	})
	if c.read.Load() != nil {
		return err // the last reading is good enough until then
	}
	select {
	case result := <-done:
		return result.Err
	case <-ctx.Done():
		return err // ReadAt is still zero
	}
}

func (c *Catalog) readAll(ctx context.Context, e *engine.Engine) error {
	all := &CatalogPage{ReadAt: time.Now()}
	for after, more := "", true; more; {
		records, err := e.Cache().List(ctx, after, robotscache.MaxList)
		if err != nil {
			return err //nolint:wrapcheck // it says all
		}
		for _, r := range records {
			after = r.Key().String()
			r = e.Config.Cache.Policy.Settle(r, all.ReadAt)
			o := CatalogOrigin{r.Origin.String(), r.Agent, r.State, r.Cause, r.FetchedAt}
			if !r.UnreachableSince.IsZero() {
				o.Since = r.UnreachableSince
			}
			n := len(all.Origins)
			if n < maxCatalog || n < 2*maxCatalog && r.State == fetch.StateUnreachable {
				all.Origins = append(all.Origins, o)
			}
		}
		all.All += len(records)
		more = len(records) == robotscache.MaxList
	}
	all.Full = all.All > len(all.Origins)
	all.sort()
	c.read.Store(all)
	return nil
}

// sort sorts the unreachable ones, once for all queries.
func (p *CatalogPage) sort() {
	for i := range p.Origins {
		if p.Origins[i].State == fetch.StateUnreachable {
			p.unreachable = append(p.unreachable, i)
		}
	}
	slices.SortStableFunc(p.unreachable, func(a, b int) int { return p.Origins[a].Since.Compare(p.Origins[b].Since) })
}

// Find finds records in the last reading.
func (c *Catalog) Find(q CatalogQuery, now time.Time) CatalogPage {
	all := c.read.Load()
	if all == nil {
		return CatalogPage{}
	}
	p, longest := *all, q.State == fetch.StateUnreachable.String()
	p.Origins, p.unreachable = nil, nil
	n := len(all.Origins)
	if longest {
		n = len(all.unreachable)
	}
	for i := range n {
		if longest {
			i = all.unreachable[i]
		}
		o := &all.Origins[i]
		age := now.Sub(o.Since)
		if q.State != "" && o.State.String() != q.State || q.Age > 0 && age < q.Age || !strings.Contains(o.Origin, q.Text) {
			continue
		}
		if p.Found >= q.From && p.Found-q.From < q.Limit {
			p.Origins = append(p.Origins, *o)
		}
		p.Found++
		if age < time.Hour {
			p.Recent++
		}
	}
	return p
}
