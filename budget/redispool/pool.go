// Package redispool keeps the budgets of agents in Redis or Valkey, so that the gateways of a fleet
// share them ([budget.Pool]).
//
//	{PREFIX:budget:AGENT}:DAY  hash     how much of each limit is drawn, when the hash was made, and how
//	                                    often it was changed, so that a loss is noticed; expires after
//	                                    two days
//	{PREFIX}:fleet:budgets     channel  counters that ran empty, counters that got something back, and
//	                                    hashes that are new
//
// Each agent has its own hash tag, so a Redis Cluster spreads the agents over its nodes. A hash has
// room for 200,000 counters. Beyond that, each gateway counts new hosts alone.
package redispool

import (
	"cmp"
	"context"
	_ "embed" // the script
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/crawlgate/crawlgate/budget"
	"github.com/crawlgate/crawlgate/cluster/link"
)

const (
	keptFor     = 48 * time.Hour
	maxCounters = 200_000
)

//go:embed draw.lua
var drawSource string

var drawScript = rueidis.NewLuaScript(drawSource)

// Counters is a [budget.Pool] in Redis. It is safe for concurrent use.
type Counters struct {
	Link *link.Link // outlives the pool

	room int // 0 means maxCounters, which is too many for a test
}

// news tells other gateways that a counter is used up, that something was returned to it, or that
// an agent's hash is new.
type news struct {
	From     string `json:"from"`
	Agent    string `json:"agent"`
	Name     string `json:"name"`
	Returned bool   `json:"returned,omitempty"`
	Memory   int64  `json:"memory,omitempty"` // of a new hash
}

func (n news) String() string {
	text, _ := json.Marshal(n) // strings and a truth value: it cannot fail
	return string(text)
}

// Draw implements [budget.Pool]: one call of a script.
func (p *Counters) Draw(ctx context.Context, a budget.Ask) (answer budget.Grant, err error) {
	if !p.Link.State().Up {
		return answer, budget.ErrAway
	}
	ctx, cancel := context.WithTimeout(ctx, link.Timeout)
	defer cancel()
	said := news{From: p.Link.Process, Agent: a.Agent, Name: a.Name}
	needed := ""
	if a.Tell {
		needed = said.String()
	}
	said.Returned = true
	fresh := news{From: p.Link.Process, Agent: a.Agent, Returned: true, Memory: time.Now().UnixMicro()}
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	got, err := drawScript.Exec(ctx, p.Link.Client(), []string{"{" + p.Link.Prefix + ":budget:" + a.Agent + "}:" + a.Day}, []string{
		a.Name, number(a.Limit), number(a.Settle), number(a.Want), number(a.Drawn),
		number(keptFor.Milliseconds()), number(int64(cmp.Or(p.room, maxCounters))), p.channel(), needed, said.String(),
		number(a.Memory), number(fresh.Memory), number(a.Draws), fresh.String(),
	}).AsIntSlice()
	if err == nil && len(got) != 5 {
		err = fmt.Errorf("the script answered %d values, want 5", len(got))
	}
	if err != nil {
		if e, refused := rueidis.IsRedisErr(err); !refused || e.IsLoading() || link.IsReadOnly(err) {
			p.Link.Fail(err)
		}
		return answer, fmt.Errorf("drawing from a budget in redis: %w", err)
	}
	return budget.Grant{Granted: got[0], Left: got[1], Uncounted: got[2] == 1, Memory: got[3], Draws: got[4]}, nil
}

func (p *Counters) channel() string { return p.Link.Channel("{" + p.Link.Prefix + "}:fleet:budgets") }

// Gateways implements [budget.Pool].
func (p *Counters) Gateways() int { return max(p.Link.State().Gateways, 1) }

// Patience implements [budget.Pool]. Another gateway that answers takes milliseconds.
func (p *Counters) Patience() time.Duration { return link.Timeout }

// Listen tells a keeper what other gateways need and give back, and what Redis has forgotten, until
// ctx ends.
func (p *Counters) Listen(ctx context.Context, k *budget.Keeper) {
	missed := func() {
		k.Returned("", "")
		k.Forgot("", 0)
	}
	// Redis may take the subscription before it answers draws.
	defer p.Link.Watch(func(s link.State, news bool) {
		if news && s.Up {
			missed()
		}
	})()
	p.Link.Listen(ctx, p.channel(), func(text string) {
		var n news
		err := json.Unmarshal([]byte(text), &n)
		switch {
		case text == "":
			missed()
		case err != nil || n.From == p.Link.Process:
		case n.Memory != 0:
			k.Forgot(n.Agent, n.Memory)
		case n.Returned:
			k.Returned(n.Agent, n.Name)
		default:
			k.Needed(n.Agent, n.Name)
		}
	})
}
