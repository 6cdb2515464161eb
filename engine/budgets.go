package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/budget/redispool"
	"github.com/crawlgate/crawlgate/cluster/link"
	"github.com/crawlgate/crawlgate/enforce"
)

// budgets keeps the budgets of the process. In a fleet, the Redis and its prefix identify them;
// otherwise they belong to this gateway. A reload must not reset them.
type budgets struct {
	*budget.Keeper
	file   *budgetFile // nil with a fleet
	listen func()      // called at the first request with a budget
	stop   context.CancelFunc
}

func openBudgets(e *Engine, l *link.Link) (*budgets, error) {
	b := &budgets{listen: func() {}, stop: func() {}}
	if l == nil {
		b.file = &budgetFile{logger: e.logger, folder: e.Config.Store.folder()}
		err := errors.Join(budgetsFile.read(b.file.folder, &b.file.totals), budgetHostsFile.read(b.file.folder, &b.file.hosts))
		if err != nil {
			return nil, err
		}
		b.Keeper = budget.New(b.file)
		return b, nil
	}
	pool := &redispool.Counters{Link: l}
	b.Keeper = budget.New(pool)
	ctx, stop := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	b.listen = sync.OnceFunc(func() { listening.Go(func() { pool.Listen(ctx, b.Keeper) }) })
	b.stop = func() { stop(); listening.Wait() }
	return b, nil
}

// Destruct returns all slices to the pool.
func (b *budgets) Destruct() error {
	b.Close()
	b.stop()
	if b.file != nil {
		return b.file.writeHosts()
	}
	return nil
}

// apply keeps the file in the folder of e's store.
func (b *budgets) apply(e *Engine) {
	if b.file == nil || b.file.folder == e.Config.Store.folder() {
		return
	}
	b.file.mu.Lock()
	defer b.file.mu.Unlock()
	b.file.folder = e.Config.Store.folder()
	if err := errors.Join(budgetsFile.write(b.file.folder, b.file.totals), budgetHostsFile.write(b.file.folder, b.file.hosts)); err != nil {
		e.logger.Error("keeping budgets", zap.Error(err))
	}
}

// TakeBudget uses one request to a host from the budget of an agent, which must have one: see
// [budget.Keeper.Take].
func (e *Engine) TakeBudget(ctx context.Context, a *enforce.Agent, host string) (budget.Receipt, error) {
	e.budgets.listen()
	return e.budgets.Take(ctx, a.Name, a.Budget, host)
}

// CountBytes counts transferred bytes of an agent with a budget.
func (e *Engine) CountBytes(a *enforce.Agent, n int64) { e.budgets.Count(a.Name, a.Budget, n) }

// PassBytes counts bytes like CountBytes, and waits until more are allowed. The error says why no
// more are.
func (e *Engine) PassBytes(ctx context.Context, a *enforce.Agent, n int64) error {
	return e.budgets.Pass(ctx, a.Name, a.Budget, n)
}

// AgentBudget is the state of an agent's budget.
type AgentBudget struct {
	Agent, Owner string
	budget.Standing
}

// Budget returns the state of an agent's budget, and asks the fleet for it. It reports false if the
// agent has no budget.
func (e *Engine) Budget(a *enforce.Agent, host string) (b AgentBudget, ok bool) {
	if !a.HasBudget() {
		return b, false
	}
	return AgentBudget{a.Name, a.Owner, e.budgets.Standing(a.Name, a.Budget, host)}, true
}

// Budgets returns the state of all agents' budgets, sorted by name, as far as this gateway knows.
func (e *Engine) Budgets() []AgentBudget {
	all := make(map[string]AgentBudget)
	for a := range e.Agents() {
		if b, ok := e.Budget(a, ""); ok {
			all[a.Name] = b
		}
	}
	return slices.SortedFunc(maps.Values(all), func(a, b AgentBudget) int { return strings.Compare(a.Agent, b.Agent) })
}

// checkBudgets fails if an agent has different budgets at two sites, because the sites share its
// budget.
func (e *Engine) checkBudgets(s *SitePolicy) error {
	own := make(map[string]*budget.Allowance)
	for _, a := range s.Identifier.Agents() {
		own[a.Name] = a.Budget
	}
	for a := range e.Agents() {
		if b := own[a.Name]; b != nil && a.HasBudget() && !b.Same(a.Budget) {
			return fmt.Errorf("agent %q: its blocks at two sites have different budgets; they share one", a.Name)
		}
	}
	return nil
}

// drawn maps agent and day, then the limit, to the number drawn.
type drawn map[string]map[string]int64

// budgetFile is the [budget.Pool] of a gateway without a fleet. It writes the counters of requests
// and bytes before it answers, so nothing is granted twice after a crash. There may be very many
// counters of hosts, so it writes them a second later, or after ten times as long as the last write
// took.
type budgetFile struct {
	logger *zap.Logger

	mu            sync.Mutex // guards the fields below
	folder        string
	totals, hosts drawn
	timer         *time.Timer   // writes the hosts; nil without changes
	took          time.Duration // the last write of the hosts

	writing sync.Mutex // held while the hosts are written
}

var (
	budgetsFile = stateFile{
		"budgets.json", "the requests and bytes that agents have used today", "to begin the day again: agents get their whole budget once more",
	}
	budgetHostsFile = stateFile{
		"budget_hosts.json", "the requests to each host that agents have used today", "to begin the day again: agents get their whole budget of each host once more",
	}
)

// maxBudgetHosts bounds the counted hosts of an agent and a day. When it is reached, the half with
// the fewest requests is forgotten and starts again from 0. So no host is refused too early, and
// the busiest hosts stay limited.
const maxBudgetHosts = 100_000

// Gateways implements [budget.Pool].
func (*budgetFile) Gateways() int { return 1 }

// Patience implements [budget.Pool]: there is nobody to wait for.
func (*budgetFile) Patience() time.Duration { return 0 }

// Draw implements [budget.Pool].
func (f *budgetFile) Draw(_ context.Context, a budget.Ask) (budget.Grant, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	counters := f.totals.of(a)
	if a.OfHost() {
		counters = f.hosts.of(a)
	}
	before := counters[a.Name]
	now, answer := a.Apply(before)
	if now == before {
		return answer, nil
	}
	counters[a.Name] = now
	if !a.OfHost() {
		err := budgetsFile.write(f.folder, f.totals)
		if err != nil {
			counters[a.Name], answer = before, budget.Grant{}
			f.logger.Error("keeping budgets; requests are refused", zap.Error(err))
		}
		return answer, err
	}
	if len(counters) > maxBudgetHosts {
		forgetHosts(counters, a.Name)
	}
	if f.timer == nil {
		f.timer = time.AfterFunc(max(blocksDelay, 10*f.took), func() {
			if err := f.writeHosts(); err != nil {
				f.logger.Error("keeping budgets", zap.Error(err))
			}
		})
	}
	return answer, nil
}

// forgetHosts drops the half of the counters with the lowest values, except one given counter.
func forgetHosts(counters map[string]int64, kept string) {
	sorted := slices.Sorted(maps.Values(counters))
	half := len(sorted) / 2
	most := sorted[half]
	less, _ := slices.BinarySearch(sorted, most)
	equal := half - less // how many counters equal to the median to drop
	maps.DeleteFunc(counters, func(name string, n int64) bool {
		if n == most && name != kept {
			equal--
			return equal >= 0
		}
		return n < most && name != kept
	})
}

// writeHosts writes the counters of hosts if they have changed. It does not block draws.
func (f *budgetFile) writeHosts() error {
	f.writing.Lock()
	defer f.writing.Unlock()
	f.mu.Lock()
	if f.timer == nil {
		f.mu.Unlock()
		return nil
	}
	f.timer.Stop()
	f.timer = nil
	folder, hosts := f.folder, maps.Clone(f.hosts)
	for day, counters := range hosts {
		hosts[day] = maps.Clone(counters)
	}
	f.mu.Unlock()
	began := time.Now()
	err := budgetHostsFile.write(folder, hosts)
	f.mu.Lock()
	f.took = time.Since(began)
	f.mu.Unlock()
	return err
}

// of returns the counters of an agent and a day. When a new day begins, it forgets the agent's
// counters that are more than one day away, and other agents' counters that are more than two days
// away, because those agents may use other time zones.
func (d *drawn) of(a budget.Ask) map[string]int64 {
	key := a.Agent + " " + a.Day
	if counters := (*d)[key]; counters != nil {
		return counters
	}
	if *d == nil {
		*d = make(drawn)
	}
	today, _ := time.Parse(time.DateOnly, a.Day)
	maps.DeleteFunc(*d, func(key string, _ map[string]int64) bool {
		day, err := time.Parse(time.DateOnly, key[max(len(key)-len(time.DateOnly), 0):])
		off := day.Sub(today).Abs()
		own := strings.TrimSuffix(key, day.Format(" "+time.DateOnly)) == a.Agent
		return err != nil || off > 48*time.Hour || own && off > 24*time.Hour
	})
	(*d)[key] = make(map[string]int64)
	return (*d)[key]
}
