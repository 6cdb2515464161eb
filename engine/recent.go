package engine

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// The bounds of the record for the operator's page: no more than 5 MiB.
const (
	RecentMinutes  = 60
	TrendMinutes   = 10 // compared with the same number an hour ago
	keptMinutes    = RecentMinutes + TrendMinutes
	recentRefusals = 2000 // and as many of requests that passed
	recentKinds    = 200  // pairs of reason and agent in a minute; the rest is counted as "other"
	recentURL      = 512  // bytes
	recentText     = 128
)

// RecentRefusal is the last request of an agent to an origin that was refused for a reason, or
// would be refused in another mode. Its texts are printable ASCII.
type RecentRefusal struct {
	First, At time.Time // of the first of Count
	Count     int       // with less than an hour between two of them
	Block     string    // of the agent, or [OtherAgent]
	Agent     string
	Origin    string
	Method    string
	URL       string // without user information and secrets
	Reason    string
	Rule      string
	Line      int
	Reported  bool // it passed, because the mode is "report"
}

func (r *RecentRefusal) isTunnel() bool { return r.Method == http.MethodConnect }

// RefusalKind is a reason for which requests or tunnels of an agent were refused.
type RefusalKind struct {
	Reason, Agent string
	Tunnel        bool
}

// Minute is one minute of traffic.
type Minute struct {
	Start    time.Time
	Requests int
	Refused  int
	Held     int           // requests that were held for politeness and then allowed
	Failed   int           // requests that failed without being refused
	Tunnels  int           // requested by CONNECT; they do not count as requests
	CPU      time.Duration // of the process, in the minute
	kinds    map[RefusalKind]int
	agents   map[string]AgentCount
}

// AgentCount counts requests of one agent block: all of them, the refused ones, and those that came
// back before their Retry-After was over.
type AgentCount struct{ Requests, Refused, Early int }

// Plus adds two counts.
func (c AgentCount) Plus(o AgentCount) AgentCount {
	return AgentCount{c.Requests + o.Requests, c.Refused + o.Refused, c.Early + o.Early}
}

// Trend says how often something happened recently.
type Trend struct {
	Now, Before int       // in the last [TrendMinutes], and in the same time an hour ago
	Since       time.Time // the minute of the first one after [TrendMinutes] without any, or zero
	Known       bool      // whether Before was recorded
}

// Recent is what the gateway did in the last hour.
type Recent struct {
	// Minutes has the last [RecentMinutes], oldest first. The last one is not over yet.
	Minutes []Minute
	// Refusals are the last ones, newest first, one for each agent, origin, reason and kind of
	// request. Passed are requests that were not refused, likewise, without their agents and URLs.
	Refusals, Passed []RecentRefusal
	// Kinds counts the refusals of the hour by kind. Kinds beyond a bound are counted together as
	// "other".
	Kinds map[RefusalKind]int
	// Agents counts the requests of each agent block. All other senders count as [OtherAgent].
	Agents map[string]AgentCount
	// Full says that there were too many refusals to keep all of them.
	Full bool

	kept []Minute // with those before the hour
}

// recorder keeps the last hour for the operator's page. It records only if there is such a page,
// and outlives reloads. It is safe for concurrent use.
type recorder struct {
	wanted atomic.Int32

	mu       sync.Mutex
	minutes  [keptMinutes]Minute // by the minute modulo their number
	last     time.Time           // the beginning of the newest minute
	cpu      time.Duration       // CPU time of the process at last
	refusals map[refusalKey]*RecentRefusal
	passed   map[refusalKey]*RecentRefusal
	gone     time.Time // time of the newest refusal that was dropped for lack of room
}

type refusalKey struct {
	block, agent, origin, reason string
	tunnel                       bool
}

var recent recorder

// Record records the last hour for the page of a server, and keeps requests through the gateway
// away from that server. It ends when stop is called, which must be once.
func Record(server *caddyhttp.Server) (stop func()) {
	recent.wanted.Add(1)
	pages.Store(server, true)
	return sync.OnceFunc(func() {
		recent.wanted.Add(-1)
		pages.Delete(server)
	})
}

// pages are the servers with an operator's page, of all configurations that Caddy has not ended.
var pages sync.Map // of *caddyhttp.Server

// add records a request or, for a CONNECT, a tunnel. If q has no reason, it was not refused.
func (r *recorder) add(q RecentRefusal, early, held, failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, tunnel, refused := r.minute(q.At), q.isTunnel(), q.Reason != ""
	if r.refusals == nil {
		r.refusals, r.passed = make(map[refusalKey]*RecentRefusal), make(map[refusalKey]*RecentRefusal)
	}
	if m.kinds == nil {
		m.kinds, m.agents = make(map[RefusalKind]int), make(map[string]AgentCount) // agents of the configuration, so they are bounded
	}
	if m.Tunnels += count(tunnel); !tunnel {
		m.Requests++
		m.Refused += count(refused)
		m.Held += count(held && !refused && !failed)
		m.Failed += count(failed && !refused)
		m.agents[q.Block] = m.agents[q.Block].Plus(AgentCount{1, count(refused), count(early)})
	}
	if !refused {
		remember(r.passed, q)
		return
	}
	if gone := remember(r.refusals, q); gone.After(r.gone) {
		r.gone = gone
	}
	kind := RefusalKind{q.Reason, q.Agent, tunnel}
	if _, known := m.kinds[kind]; !known && len(m.kinds) >= recentKinds {
		kind = RefusalKind{"other", "other", tunnel}
	}
	m.kinds[kind]++
}

// remember replaces the last refusal of its kind. Without room, it drops the oldest of a sample,
// and returns its time.
func remember(kept map[refusalKey]*RecentRefusal, q RecentRefusal) (gone time.Time) {
	key := refusalKey{q.Block, q.Agent, q.Origin, q.Reason, q.isTunnel()}
	last := kept[key]
	if q.First, q.Count = q.At, 1; last != nil {
		if q.At.Sub(last.At) < time.Hour {
			q.First, q.Count = last.First, last.Count+1
		}
		*last = q
		return gone
	}
	if len(kept) >= recentRefusals {
		oldest, seen := key, 0
		for k := range kept {
			if oldest == key || kept[k].At.Before(kept[oldest].At) {
				oldest = k
			}
			if seen++; seen == 16 {
				break
			}
		}
		gone = kept[oldest].At
		delete(kept, oldest)
	}
	first := q // on the heap only here
	kept[key] = &first
	return gone
}

// recentOf lists the refusals of the last hour, in no order.
func recentOf(kept map[refusalKey]*RecentRefusal, now time.Time) (list []RecentRefusal) {
	for _, q := range kept {
		if now.Sub(q.At) <= time.Hour {
			list = append(list, *q)
		}
	}
	return list
}

// minute returns the minute of now, under the lock. The CPU time since the last new minute is
// spread evenly over the minutes since.
func (r *recorder) minute(now time.Time) *Minute {
	start := now.Truncate(time.Minute)
	if start.After(r.last) || r.last.Sub(start) > time.Minute { // or the clock was set back
		used := processTime()
		passed := int(min(start.Sub(r.last)/time.Minute, keptMinutes))
		if r.last.IsZero() || passed < 1 {
			r.minutes, r.cpu, passed = [keptMinutes]Minute{}, used, 1
		}
		share := (used - r.cpu) / time.Duration(passed)
		for i := passed - 1; i >= 0; i-- {
			at := start.Add(-time.Duration(i) * time.Minute)
			r.at(at.Add(-time.Minute)).CPU = share
			*r.at(at) = Minute{Start: at}
		}
		r.last, r.cpu = start, used
	}
	return r.at(start)
}

func (r *recorder) at(start time.Time) *Minute {
	return &r.minutes[(start.Unix()/60)%keptMinutes]
}

// LastHour returns the last hour, as far as it was recorded.
func LastHour() Recent { return recent.lastHour(time.Now()) }

// copied returns the recorded data of an hour, unsorted and without sums.
func (r *recorder) copied(now time.Time) Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minute(now)
	h := Recent{Refusals: recentOf(r.refusals, now), Passed: recentOf(r.passed, now), Full: now.Sub(r.gone) <= time.Hour}
	for _, m := range r.minutes {
		if !m.Start.IsZero() {
			m.kinds, m.agents = maps.Clone(m.kinds), maps.Clone(m.agents)
			h.kept = append(h.kept, m)
		}
	}
	return h
}

func (r *recorder) lastHour(now time.Time) Recent {
	h := r.copied(now)
	h.Kinds, h.Agents = make(map[RefusalKind]int), make(map[string]AgentCount)
	for _, list := range [][]RecentRefusal{h.Refusals, h.Passed} {
		slices.SortFunc(list, func(a, b RecentRefusal) int { return b.At.Compare(a.At) }) // newest first
	}
	slices.SortFunc(h.kept, func(a, b Minute) int { return a.Start.Compare(b.Start) })
	h.Minutes = h.kept[max(len(h.kept)-RecentMinutes, 0):]
	for i := range h.Minutes {
		for kind, n := range h.Minutes[i].kinds {
			h.Kinds[kind] += n
		}
		for agent, n := range h.Minutes[i].agents {
			h.Agents[agent] = h.Agents[agent].Plus(n)
		}
	}
	return h
}

// RefusedFor counts the refusals of the minute for a reason, of requests or of tunnels.
func (m Minute) RefusedFor(reason string, tunnel bool) (sum int) {
	for kind, n := range m.kinds {
		sum += n * count(kind.Reason == reason && kind.Tunnel == tunnel)
	}
	return sum
}

// RequestsOf counts the requests of the minute of an agent block.
func (m Minute) RequestsOf(block string) int { return m.agents[block].Requests }

// Trend sums up a number over the recent minutes. number returns its value for one minute.
func (h Recent) Trend(number func(m Minute) int) (t Trend) {
	t.Known = len(h.kept) == keptMinutes
	quiet := 0
	for age := range h.kept {
		m := h.kept[len(h.kept)-1-age]
		n := number(m)
		if age < TrendMinutes {
			t.Now += n
		} else if age >= RecentMinutes {
			t.Before += n
		}
		if quiet++; n > 0 && quiet <= TrendMinutes {
			t.Since, quiet = m.Start, 0
		}
	}
	return t
}

// TopKinds returns the kinds of refusals, the most frequent first.
func (h Recent) TopKinds() []RefusalKind {
	return slices.SortedFunc(maps.Keys(h.Kinds), func(a, b RefusalKind) int {
		return cmp.Or(h.Kinds[b]-h.Kinds[a], cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Agent, b.Agent), cmp.Compare(count(a.Tunnel), count(b.Tunnel)))
	})
}

// processTime returns the CPU time of the process so far, user and system.
func processTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
