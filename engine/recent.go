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

	"github.com/crawlgate/crawlgate/enforce"
	"github.com/crawlgate/crawlgate/internal/escape"
	"github.com/crawlgate/crawlgate/internal/redact"
)

// The bounds of what is kept for the operator's page: an hour, and no more than 1 MiB.
const (
	RecentMinutes  = 60
	recentRefusals = 1000
	recentKinds    = 200 // pairs of reason and agent in a minute; the rest is counted as "other"
	recentURL      = 512 // bytes
	recentText     = 128
)

// Refusal is a request that was refused, or would be in another mode. Its texts are printable
// ASCII.
type Refusal struct {
	At       time.Time
	Agent    string
	Method   string
	URL      string // without user information and secrets
	Reason   string
	Rule     string
	Line     int
	Reported bool // it passed, as the mode is "report"
}

// RefusalKind is a reason for which requests of an agent were refused, or tunnels.
type RefusalKind struct {
	Reason, Agent string
	Tunnel        bool
}

// Minute is one minute of traffic.
type Minute struct {
	Start    time.Time
	Requests int
	Refused  int
	Tunnels  int           // asked for by CONNECT, which is no request
	CPU      time.Duration // of the process, in the minute
	kinds    map[RefusalKind]int
	agents   map[string]AgentCount
}

// AgentCount counts requests of one agent block, and those of them that came back before their
// Retry-After was over.
type AgentCount struct{ Requests, Early int }

func (c AgentCount) plus(o AgentCount) AgentCount {
	return AgentCount{c.Requests + o.Requests, c.Early + o.Early}
}

// Recent is what the gateway did in the last hour.
type Recent struct {
	// Minutes has the last [RecentMinutes], oldest first. The last one is not over.
	Minutes []Minute
	// Refusals are the last ones, newest first.
	Refusals []Refusal
	// Kinds counts the refusals of the hour, those of pairs beyond a bound together as "other".
	Kinds map[RefusalKind]int
	// Agents counts the requests of each agent block, those of all other senders as [OtherAgent].
	Agents map[string]AgentCount
}

// recorder keeps what the operator's page shows of the last hour. It records only while somebody
// wants it, and outlives reloads. It is safe for concurrent use.
type recorder struct {
	wanted atomic.Int32

	mu       sync.Mutex
	minutes  [RecentMinutes]Minute // by the minute modulo their number
	last     time.Time             // the beginning of the newest minute
	cpu      time.Duration         // of the process, when that began
	refusals [recentRefusals]Refusal
	next     int // the place of the next refusal
}

var recent recorder

// Record has the last hour recorded for the page of a server, and keeps requests through the
// gateway from that server, until stop is called, once.
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

// Happened notes a request or a tunnel for the operator's page, if there is one. block and early
// are as for [Decided], target gives what was asked for.
func Happened(d *enforce.Record, method, block string, early bool, target func() string) {
	if recent.wanted.Load() == 0 {
		return
	}
	if d.Decision != enforce.OutcomeDeny && !d.WouldDeny {
		recent.add(time.Now(), method, block, early, nil)
		return
	}
	text := func(s string) string { return escape.ASCII(s, recentText) }
	recent.add(time.Now(), method, block, early, &Refusal{
		At: time.Now(), Agent: text(d.Agent), Method: text(method),
		URL: escape.ASCII(redact.Target(method, target()), recentURL), Reason: string(d.Reason), Rule: text(d.Rule), Line: d.Line,
		Reported: d.WouldDeny,
	})
}

func (r *recorder) add(now time.Time, method, block string, early bool, refusal *Refusal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, tunnel := r.minute(now), method == http.MethodConnect
	m.Requests += count(!tunnel)
	m.Tunnels += count(tunnel)
	if !tunnel {
		if m.agents == nil {
			m.agents = make(map[string]AgentCount) // of the configuration, so their number is bounded
		}
		m.agents[block] = m.agents[block].plus(AgentCount{1, count(early)})
	}
	if refusal == nil {
		return
	}
	r.refusals[r.next] = *refusal
	r.next = (r.next + 1) % recentRefusals
	m.Refused += count(!tunnel)
	kind := RefusalKind{refusal.Reason, refusal.Agent, tunnel}
	if _, known := m.kinds[kind]; !known && len(m.kinds) >= recentKinds {
		kind = RefusalKind{"other", "other", tunnel}
	}
	if m.kinds == nil {
		m.kinds = make(map[RefusalKind]int)
	}
	m.kinds[kind]++
}

// minute gives the minute of now, under the lock. The CPU time since the last call that began one
// counts evenly for all minutes since.
func (r *recorder) minute(now time.Time) *Minute {
	start := now.Truncate(time.Minute)
	if start.After(r.last) || r.last.Sub(start) > time.Minute { // or the clock was set back
		used := processTime()
		passed := int(min(start.Sub(r.last)/time.Minute, RecentMinutes))
		if r.last.IsZero() || passed < 1 {
			r.minutes, r.cpu, passed = [RecentMinutes]Minute{}, used, 1
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
	return &r.minutes[(start.Unix()/60)%RecentMinutes]
}

// LastHour tells of the last hour, as far as it was recorded.
func LastHour() Recent { return recent.lastHour(time.Now()) }

func (r *recorder) lastHour(now time.Time) Recent {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.minute(now)
	h := Recent{Kinds: make(map[RefusalKind]int), Agents: make(map[string]AgentCount)}
	for _, m := range r.minutes {
		if m.Start.IsZero() {
			continue
		}
		for kind, n := range m.kinds {
			h.Kinds[kind] += n
		}
		for agent, n := range m.agents {
			h.Agents[agent] = h.Agents[agent].plus(n)
		}
		m.kinds, m.agents = nil, nil
		h.Minutes = append(h.Minutes, m)
	}
	slices.SortFunc(h.Minutes, func(a, b Minute) int { return a.Start.Compare(b.Start) })
	for i := range recentRefusals {
		refusal := r.refusals[(r.next-1-i+recentRefusals)%recentRefusals]
		if refusal.At.IsZero() || now.Sub(refusal.At) > time.Hour {
			break
		}
		h.Refusals = append(h.Refusals, refusal)
	}
	return h
}

// TopKinds gives the kinds of refusals, the most frequent first.
func (h Recent) TopKinds() []RefusalKind {
	return slices.SortedFunc(maps.Keys(h.Kinds), func(a, b RefusalKind) int {
		return cmp.Or(h.Kinds[b]-h.Kinds[a], cmp.Compare(a.Reason, b.Reason), cmp.Compare(a.Agent, b.Agent), cmp.Compare(count(a.Tunnel), count(b.Tunnel)))
	})
}

// TopAgents gives the agent blocks, those first that came back too early most often.
func (h Recent) TopAgents() []string {
	return slices.SortedFunc(maps.Keys(h.Agents), func(a, b string) int {
		return cmp.Or(h.Agents[b].Early-h.Agents[a].Early, h.Agents[b].Requests-h.Agents[a].Requests, cmp.Compare(a, b))
	})
}

// processTime is the CPU time of the process so far, of user and system.
func processTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
