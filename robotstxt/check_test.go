package robotstxt_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/oracle"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// check is one row of a table: a file, a crawler, a target, and the expected verdict.
type check struct {
	name   string
	robots string
	agents string // product tokens, most specific first, with commas between them
	target string
	want   string // "allow" or "deny" and the line that decides; "allow -" if none does
}

// disallow returns a file whose line 2 disallows a path for crawler a.
func disallow(path string) string { return "User-agent: a\nDisallow: " + path }

// named returns a file that disallows /x for a crawler with the given name.
func named(agent string) string { return "User-agent: " + agent + "\nDisallow: /x" }

// runChecks checks both engines, the fast one and the oracle.
func runChecks(t *testing.T, checks []check) {
	t.Helper()
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			q := question{tokens: strings.Split(c.agents, ","), target: c.target}
			rs := robotstxt.Parse([]byte(c.robots))
			if got := verdict(rs.Match(q.tokens, c.target)); got != c.want {
				t.Errorf("%q\n%s %q: got %s, want %s", c.robots, c.agents, c.target, got, c.want)
			}
			if err := disagreement(rs, oracle.Parse([]byte(c.robots), false), q); err != nil {
				t.Error(err)
			}
		})
	}
}

// verdict formats a Match like check.want.
func verdict(m robotstxt.Match) string {
	word := "deny"
	if m.Allowed {
		word = "allow"
	}
	if m.Line == 0 {
		return word + " -"
	}
	return fmt.Sprintf("%s %d", word, m.Line)
}
