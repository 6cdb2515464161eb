package robotstxt_test

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/internal/oracle"
	"github.com/crawlgate/crawlgate/robotstxt"
)

// disagreement compares the answers of the two engines to one question, and returns the difference
// as an error.
func disagreement(rs *robotstxt.Ruleset, f *oracle.File, q question) error {
	group := rs.Select(robotstxt.Agent{Tokens: q.tokens, IgnoreWildcard: q.ignoreWildcard})
	got := group.Match(q.target)
	if other := rs.ByHeads().Select(robotstxt.Agent{Tokens: q.tokens, IgnoreWildcard: q.ignoreWildcard}).Match(q.target); other != got {
		return fmt.Errorf("%+v: got %+v, but %+v with an index of heads", q, got, other)
	}
	want := f.Check(q.tokens, q.ignoreWildcard, q.target)
	if got.Allowed != want.Allowed || got.Rule != want.Rule || got.Line != want.Line {
		return fmt.Errorf("%+v: got %+v, oracle %+v", q, got, want)
	}
	if (got.Group != "") != want.Found || got.Group != "" && (got.Group != "*") != want.Specific {
		return fmt.Errorf("%+v: got group %q, but the oracle found one: %v", q, got.Group, want.Found)
	}
	rules := group.MatchRules(q.target)
	if oracle.Canonical(q.target) == "/robots.txt" {
		want = f.CheckRules(q.tokens, q.ignoreWildcard, q.target)
	}
	if rules.Allowed != want.Allowed || rules.Rule != want.Rule || rules.Line != want.Line {
		return fmt.Errorf("%+v: MatchRules = %+v, oracle %+v", q, rules, want)
	}
	gotPause, gotOK := group.CrawlDelay()
	wantPause, wantOK := f.Delay(q.tokens, q.ignoreWildcard)
	if gotPause != wantPause || gotOK != wantOK {
		return fmt.Errorf("%+v: CrawlDelay = %v, %v, oracle %v, %v", q, gotPause, gotOK, wantPause, wantOK)
	}
	if group.Unrestricted() && !got.Allowed {
		return fmt.Errorf("%+v: an unrestricted group disallows it: %+v", q, got)
	}
	return nil
}

// TestOracleAgreesOnRealFiles asks both engines the same questions about every file: a million for
// the whole corpus.
func TestOracleAgreesOnRealFiles(t *testing.T) {
	t.Parallel()
	files := corpus(t)
	each := 1 + 1_000_000/len(files)
	if !wholeCorpus() || testing.Short() {
		each = 100
	}
	asked := 0
	for _, file := range files {
		rs, f := robotstxt.Parse(file.data), oracle.Parse(file.data, false)
		var sitemaps []string
		for _, s := range rs.Sitemaps() {
			sitemaps = append(sitemaps, fmt.Sprintf("%d %s", s.Line, s.URL))
		}
		if !slices.Equal(sitemaps, f.Sitemaps()) {
			t.Errorf("%s: sitemaps %q, oracle %q", file.name, sitemaps, f.Sitemaps())
		}
		h := fnv.New64a()
		h.Write([]byte(file.name))
		a := newAsker(file.data, h.Sum64())
		for range each {
			if err := disagreement(rs, f, a.next()); err != nil {
				t.Errorf("%s: %v", file.name, err)
				break
			}
			asked++
		}
	}
	t.Logf("%d questions about %d files", asked, len(files))
}

// TestOracleAgreesOnManyPatterns uses files with many wildcards and few different letters, whose
// segments match in many places of long targets.
func TestOracleAgreesOnManyPatterns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		rnd := rand.New(rand.NewPCG(seed, 9309))
		letters := "abcd"[:2+seed%3]
		word := func(n int) string {
			b := make([]byte, n)
			for i := range b {
				b[i] = letters[rnd.IntN(len(letters))]
			}
			return string(b)
		}
		text := word(200)
		piece := func() string { // part of a target, so that segments of all lengths match
			i := rnd.IntN(len(text) - 20)
			return text[i : i+rnd.IntN(20)]
		}
		var b strings.Builder
		b.WriteString("User-agent: *\n")
		for range 1300 {
			b.WriteString([]string{"Allow: /*", "Disallow: /*", "Disallow: *?*%3A"}[rnd.IntN(3)])
			for range 1 + rnd.IntN(4) {
				b.WriteString(word(rnd.IntN(8)) + "*" + piece() + "*")
			}
			b.WriteString(word(6+rnd.IntN(10)) + []string{"", "$", "%2A", ":"}[rnd.IntN(4)] + "\n")
		}
		data := []byte(b.String())
		rs, f := robotstxt.Parse(data), oracle.Parse(data, false)
		decided := 0
		for range 12 {
			q := question{target: "/" + word(50) + text + "?" + word(rnd.IntN(40)) + "*:" + word(rnd.IntN(40))}
			if err := disagreement(rs, f, q); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
			if rs.Match(nil, q.target).Line != 0 {
				decided++
			}
		}
		t.Logf("seed %d: a rule decided on %d of 12", seed, decided)
	}
}
