package engine

import (
	"testing"
	"time"

	"github.com/crawlgate/crawlgate/enforce"
)

// TestExceptionsOf checks that the exceptions in force are counted over all sites, each once.
func TestExceptionsOf(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	site := func(list ...enforce.Exception) *SitePolicy {
		p, _, err := enforce.NewPolicy(enforce.PolicyConfig{Exceptions: list}, now)
		if err != nil {
			t.Fatal(err)
		}
		return &SitePolicy{Operator: p, Identifier: new(enforce.Identifier)}
	}
	end := func(after time.Duration) string { return now.Add(after).Format(time.RFC3339Nano) }
	hosts := []string{"a.example", "b.example"}
	sites := []*SitePolicy{
		site(enforce.Exception{Hosts: hosts, Until: end(2 * time.Hour)}, enforce.Exception{Hosts: hosts, Until: end(0)}),
		site(enforce.Exception{Hosts: hosts}, enforce.Exception{Hosts: hosts[:1], Until: end(time.Hour)}),
		site(),
	}
	for expires, want := range map[string]time.Time{"2026-11-26": now.Add(time.Hour), "2026-11-25": now.Add(time.Hour), "": now.Add(time.Hour)} {
		id, _, err := enforce.NewIdentifier(enforce.IdentifierConfig{Agents: []enforce.Agent{{Name: "acme", Boundaries: enforce.Boundaries{Expires: expires}}}})
		if err != nil {
			t.Fatal(err)
		}
		sites[0].Identifier = id
		if _, next := exceptionsOf(sites, now); !next.Equal(want) {
			t.Errorf("an agent that expires on %q: the next end is %v", expires, next)
		}
		if _, next := exceptionsOf(sites, now.Add(2*time.Hour)); next.IsZero() != (expires != "2026-11-26") {
			t.Errorf("an agent that expires on %q: two hours later the next end is %v", expires, next)
		}
	}
	sites[0].Identifier = new(enforce.Identifier)
	if n, next := exceptionsOf(sites, now); n != 3 || !next.Equal(now.Add(time.Hour)) {
		t.Errorf("%d exceptions in force, the next ends at %v; want 3, in an hour", n, next)
	}
	if n, next := exceptionsOf(sites, now.Add(3*time.Hour)); n != 1 || !next.IsZero() {
		t.Errorf("three hours later, %d exceptions in force, the next ends at %v; want 1, without an end", n, next)
	}
}
