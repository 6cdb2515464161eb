package robotscache_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/crawlgate/crawlgate/fetch"
	"github.com/crawlgate/crawlgate/origin"
	"github.com/crawlgate/crawlgate/robotscache"
)

// moody answers depending on the name of the crawler.
type moody struct {
	mu     sync.Mutex
	answer map[string]fetch.Outcome // by agent; others get 403
	asked  []string
}

func (m *moody) Fetch(_ context.Context, k fetch.Key, _ fetch.Gate) fetch.Outcome {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, k.Agent)
	if out, ok := m.answer[k.Agent]; ok {
		return out
	}
	return refused(403)
}

func (m *moody) set(agent string, out fetch.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.answer == nil {
		m.answer = make(map[string]fetch.Outcome)
	}
	m.answer[agent] = out
}

// times returns how often an origin was requested in the name of an agent.
func (m *moody) times(agent string) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.asked {
		if a == agent {
			n++
		}
	}
	return n
}

func refused(status int) fetch.Outcome {
	return fetch.Outcome{Kind: fetch.KindAbsent, Cause: fetch.CauseStatus, Status: status}
}

func as(token string) robotscache.Asker { return robotscache.Asker{Token: token} }

func lookupAs(tb testing.TB, c *robotscache.Cache, o origin.Origin, a robotscache.Asker) robotscache.View {
	tb.Helper()
	e, _, err := c.Lookup(tb.Context(), o, a)
	if err != nil {
		tb.Fatalf("looking up %s as %s: %v", o, a.Token, err)
	}
	return e.View(time.Now())
}

// RFC 9309 section 2.3.1.3: a crawler that gets a 4xx may treat it as "no rules", but only its own
// answer counts. One agent's answer does not apply to another, whatever it is.
func TestVariant_BindsItsAgentAlone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		base, acme fetch.Outcome
		want       fetch.Access
		own        bool // whether it differs from the gateway's answer
	}{
		"rules":       {refused(403), rulesOutcome(someRules), fetch.AccessRules, true},
		"401":         {refused(401), rulesOutcome(someRules), fetch.AccessRules, true},
		"406":         {refused(406), rulesOutcome(someRules), fetch.AccessRules, true},
		"451":         {refused(451), rulesOutcome(someRules), fetch.AccessRules, true},
		"none for it": {refused(403), refused(404), fetch.AccessAllow, true},
		"the same":    {refused(403), refused(403), fetch.AccessAllow, false},
		"503":         {refused(403), failure(), fetch.AccessDeny, true},
		"timeout":     {refused(403), fetch.Outcome{Cause: fetch.CauseTimeout}, fetch.AccessDeny, true},
		"429":         {refused(403), fetch.Outcome{Cause: fetch.CauseStatus, Status: 429}, fetch.AccessDeny, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			overTiers(t, func(t *testing.T, hot robotscache.HotTier) { //nolint:thelper // it is the test
				m := &moody{}
				m.set("", test.base)
				m.set("AcmeBot", test.acme)
				m.set("BobBot", test.base)
				c := newCache(t, robotscache.Config{Fetcher: m}, hot)
				defer c.Close()
				acme := lookupAs(t, c, example(1), as("AcmeBot"))
				if acme.Access != test.want || (acme.Agent == "AcmeBot") != test.own {
					t.Errorf("View for AcmeBot = %+v", acme)
				}
				for _, a := range []robotscache.Asker{as("BobBot"), {}} {
					if v := lookupAs(t, c, example(1), a); v.Access != fetch.AccessAllow || v.Agent != "" {
						t.Errorf("View for %q = %+v, want access allowed", a.Token, v)
					}
				}
				if e, ok := c.PeekAs(example(1), as("AcmeBot")); !ok || e.View(time.Now()).Access != test.want {
					t.Errorf("PeekAs = %+v, %v", e.Record(), ok)
				}
			})
		})
	}
}

// No variant is fetched if the site answers the gateway, or reports that it has no file.
func TestVariant_OnlyWhereTurnedAway(t *testing.T) {
	t.Parallel()
	for _, out := range []fetch.Outcome{rulesOutcome(someRules), refused(404), refused(410), refused(400), failure()} {
		m := &moody{}
		m.set("", out)
		c := newCache(t, robotscache.Config{Fetcher: m}, nil)
		_ = lookupAs(t, c, example(1), as("AcmeBot"))
		if n := m.times("AcmeBot"); n != 0 {
			t.Errorf("after %d: AcmeBot was asked for %d times", out.Status, n)
		}
		_ = c.Close()
	}
}

// Each agent costs one fetch per refresh. An answer that repeats the answer to the gateway is not
// saved; one that differs is, and outlives the process.
func TestVariant_IsKeptWhereItDiffers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, st := &moody{}, lasting{newMemory()}
		m.set("AcmeBot", rulesOutcome(someRules))
		c := newCache(t, robotscache.Config{Fetcher: m, Store: st}, nil)
		for range 5 {
			for _, agent := range []string{"AcmeBot", "BobBot"} {
				_ = lookupAs(t, c, example(1), as(agent))
			}
		}
		if kept, err := c.Variants(t.Context(), example(1)); err != nil || len(kept) != 1 || kept[0].Agent != "AcmeBot" {
			t.Errorf("Variants = %+v, %v, want that of AcmeBot", kept, err)
		}
		if !slices.Equal(m.asked, []string{"", "AcmeBot", "BobBot"}) {
			t.Errorf("requests were made as %q", m.asked)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		c = newCache(t, robotscache.Config{Fetcher: m, Store: st}, nil)
		defer c.Close()
		if v := lookupAs(t, c, example(1), as("AcmeBot")); v.Access != fetch.AccessRules || len(m.asked) != 3 {
			t.Errorf("after a restart: access %v, requests as %q", v.Access, m.asked)
		}
		// Once it repeats the gateway's answer, the saved rules are also deleted from the store.
		m.set("AcmeBot", refused(403))
		if _, err := c.Refresh(t.Context(), example(1)); err != nil {
			t.Error(err)
		}
		if v := lookupAs(t, c, example(1), as("AcmeBot")); v.Access != fetch.AccessAllow || v.Agent != "" {
			t.Errorf("View after a later 403 = %+v", v)
		}
		if kept, err := c.Variants(t.Context(), example(1)); err != nil || len(kept) != 1 || kept[0].State != fetch.StateAbsent {
			t.Errorf("Variants = %+v, %v, want one without a file", kept, err)
		}
	})
}

// A variant has its own run of failures and last good copy.
func TestVariant_HasALifeOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &moody{}
		m.set("AcmeBot", rulesOutcome(someRules))
		c := newCache(t, robotscache.Config{Fetcher: m}, nil)
		defer c.Close()
		_ = lookupAs(t, c, example(1), as("AcmeBot"))
		m.set("AcmeBot", failure())
		for _, step := range []struct {
			after time.Duration
			want  fetch.Access
		}{{25 * time.Hour, fetch.AccessDeny}, {29 * 24 * time.Hour, fetch.AccessDeny}, {3 * 24 * time.Hour, fetch.AccessLastGood}} {
			time.Sleep(step.after)
			if v := lookupAs(t, c, example(1), as("AcmeBot")); v.Access != step.want {
				t.Errorf("View for AcmeBot %v later = %+v", step.after, v)
			}
			if v := lookupAs(t, c, example(1), as("BobBot")); v.Access != fetch.AccessAllow {
				t.Errorf("View for BobBot %v later = %+v", step.after, v)
			}
		}
		m.set("", rulesOutcome("User-agent: *\nDisallow: /\n"))
		if _, err := c.Refresh(t.Context(), example(1)); err != nil {
			t.Error(err)
		}
		if v := lookupAs(t, c, example(1), as("AcmeBot")); v.Agent != "" || v.Access != fetch.AccessRules {
			t.Errorf("View once the site answers the gateway = %+v", v)
		}
	})
}

// Names can be chosen freely: no more than MaxVariants cause a fetch or take a place, the others
// are refused, and the agents that the operator configures always get a place.
func TestVariant_Bound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, seen := &moody{}, &events{}
		c := newCache(t, robotscache.Config{Fetcher: m, Observer: seen}, nil)
		defer c.Close()
		for i := range 3 * robotscache.MaxVariants {
			name := fmt.Sprintf("Bot%d", i)
			m.set(name, rulesOutcome(name))
			v := lookupAs(t, c, example(1), as(name))
			if over := i >= robotscache.MaxVariants; over != (v.Access == fetch.AccessDeny) || over != (v.Cause == fetch.CauseLocal) {
				t.Fatalf("View for agent %d = %+v", i, v)
			}
		}
		if len(m.asked) != 1+robotscache.MaxVariants || seen.drops(robotscache.DropAgent) != 2*robotscache.MaxVariants {
			t.Errorf("%d fetches and %d dropped agents", len(m.asked), seen.drops(robotscache.DropAgent))
		}
		for i := range 3 {
			name := fmt.Sprintf("Named%d", i)
			m.set(name, rulesOutcome(name))
			if v := lookupAs(t, c, example(1), robotscache.Asker{Token: name, Configured: true}); string(v.Body) != name {
				t.Errorf("View for the configured agent %s = %+v", name, v)
			}
		}
		kept, err := c.Variants(t.Context(), example(1))
		named := slices.DeleteFunc(slices.Clone(kept), func(r fetch.Record) bool { return r.Agent[0] != 'N' })
		if err != nil || len(kept) != robotscache.MaxVariants || len(named) != 3 {
			t.Errorf("%d variants are kept, %d of them configured, error %v", len(kept), len(named), err)
		}
		if v := lookupAs(t, c, example(2), as("Bot0")); string(v.Body) != "Bot0" {
			t.Errorf("View of another origin = %+v", v)
		}
	})
}

// The oldest variant whose agent the operator does not configure makes room.
func TestVariant_MakesRoom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &moody{}
		c := newCache(t, robotscache.Config{Fetcher: m}, nil)
		defer c.Close()
		ask := func(name string, configured bool) {
			m.set(name, rulesOutcome(name))
			_ = lookupAs(t, c, example(1), robotscache.Asker{Token: name, Configured: configured})
			time.Sleep(time.Second)
		}
		ask("Named0", true)
		for i := range robotscache.MaxVariants - 1 {
			ask(fmt.Sprintf("Bot%02d", i), false)
		}
		ask("Named1", true)
		kept, err := c.Variants(t.Context(), example(1))
		var names []string
		for i := range kept {
			names = append(names, kept[i].Agent)
		}
		if err != nil || len(names) != robotscache.MaxVariants || slices.Contains(names, "Bot00") || !slices.Contains(names, "Named0") {
			t.Errorf("%d variants are kept, error %v: %q", len(names), err, names)
		}
	})
}

// A variant counts only while the site refuses the gateway, but not once that answer was replaced
// by a run of failures, even without a request since.
func TestVariant_EndsWithTheGatewaysAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &moody{}
		m.set("AcmeBot", rulesOutcome(someRules))
		c := newCache(t, robotscache.Config{Fetcher: m}, nil)
		defer c.Close()
		_ = lookupAs(t, c, example(1), robotscache.Asker{})
		time.Sleep(24*time.Hour - 10*time.Second)
		m.set("", failure())
		if _, err := c.Refresh(t.Context(), example(1)); err != nil {
			t.Error(err)
		}
		for _, step := range []struct {
			after time.Duration
			want  fetch.Access
			as    string
		}{{time.Second, fetch.AccessRules, "AcmeBot"}, {20 * time.Second, fetch.AccessDeny, ""}} {
			time.Sleep(step.after)
			if v := lookupAs(t, c, example(1), as("AcmeBot")); v.Access != step.want || v.Agent != step.as {
				t.Errorf("View %v later = %+v", step.after, v)
			}
		}
	})
}

// Purging and refreshing an origin include its variants, but not other origins.
func TestVariant_PurgeAndRefresh(t *testing.T) {
	t.Parallel()
	overTiers(t, func(t *testing.T, hot robotscache.HotTier) { //nolint:thelper // it is the test
		m := &moody{}
		m.set("AcmeBot", rulesOutcome("one"))
		c := newCache(t, robotscache.Config{Fetcher: m}, hot)
		defer c.Close()
		for _, agent := range []string{"AcmeBot", "BobBot"} {
			_ = lookupAs(t, c, example(1), as(agent))
		}
		_ = lookupAs(t, c, example(2), as("AcmeBot"))
		m.set("AcmeBot", rulesOutcome("two"))
		if _, err := c.Refresh(t.Context(), example(1)); err != nil {
			t.Error(err)
		}
		if v := lookupAs(t, c, example(1), as("AcmeBot")); string(v.Body) != "two" {
			t.Errorf("body after a refresh = %q, want two", v.Body)
		}
		if err := c.Purge(t.Context(), example(1)); err != nil {
			t.Error(err)
		}
		for _, agent := range []string{"", "AcmeBot", "BobBot"} {
			if e, ok := c.Peek(example(1), agent); ok {
				t.Errorf("Peek after a purge = %+v, want nothing", e.Record())
			}
		}
		if e, ok := c.Peek(example(2), "AcmeBot"); !ok || string(e.View(time.Now()).Body) != "one" {
			t.Errorf("record of the other origin = %+v, want it unchanged", e.Record())
		}
	})
}

// What an agent gets through redirects is not shared with the origin at which they end.
func TestVariant_IsNotShared(t *testing.T) {
	t.Parallel()
	m := &moody{}
	out := rulesOutcome(someRules)
	out.Hops, out.Final = []string{example(2).RobotsURL()}, example(2)
	m.set("AcmeBot", out)
	c := newCache(t, robotscache.Config{Fetcher: m}, nil)
	defer c.Close()
	_ = lookupAs(t, c, example(1), as("AcmeBot"))
	if e, ok := c.Peek(example(2), ""); ok {
		t.Errorf("the target has a record %+v, want none", e.Record())
	}
}
