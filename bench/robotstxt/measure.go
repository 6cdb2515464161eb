package main

import (
	"fmt"
	"runtime"
	"slices"
	"time"

	temoto "github.com/temoto/robotstxt"

	"github.com/crawlgate/crawlgate/robotstxt"
)

const agent = "Googlebot"

// answers is how often a question is asked in a row for one measurement.
const answers = 8

// engine is one of the two under test.
type engine struct {
	parse  func(data []byte) any // nil if the engine refuses the file
	decide func(rules any, target string)
}

var engines = []engine{
	{
		parse: func(data []byte) any { return robotstxt.Parse(data) },
		decide: func(rules any, target string) {
			rules.(*robotstxt.Ruleset).Select(robotstxt.Agent{Tokens: tokens}).Match(target)
		},
	},
	{
		parse: func(data []byte) any {
			if rules, err := temoto.FromBytes(data); err == nil {
				return rules
			}
			return nil
		},
		decide: func(rules any, target string) { rules.(*temoto.RobotsData).TestAgent(target, agent) },
	},
}

var tokens = []string{agent}

// result is the time and memory that an engine needs for a set of files. The best round of each
// file and question counts.
type result struct {
	parse    []float64 // ns, by file
	decide   []float64 // ns, by question, group choice included
	retained float64   // heap bytes per byte of text
	refused  int       // files
}

const header = `| files | bytes | parse ns/KB, ours | temoto | ratio | decision ns mean, ours | temoto | ratio | median, ours | temoto | p99, ours | temoto | retained B/byte, ours | temoto | refused by temoto |
|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|
`

func measure(name string, files []file, rounds int) string {
	size := 0
	for _, f := range files {
		size += len(f.data)
	}
	results := make([]result, len(engines))
	rules := make([][]any, len(engines))
	for i, e := range engines {
		rules[i], results[i].retained = keep(e, files, size)
		results[i].refused = len(slices.DeleteFunc(slices.Clone(rules[i]), func(r any) bool { return r != nil }))
	}
	for range rounds {
		for i, e := range engines {
			results[i].parse = best(results[i].parse, timeParse(e, files))
			results[i].decide = best(results[i].decide, timeDecisions(e, files, rules[i]))
		}
	}
	a, b := results[0], results[1]
	kb := float64(size) / 1024
	for _, r := range results {
		slices.Sort(r.decide)
	}
	return fmt.Sprintf("| %s | %d | %.0f | %.0f | %.1f | %.0f | %.0f | %.1f | %.0f | %.0f | %.0f | %.0f | %.2f | %.2f | %d |",
		name, size, sum(a.parse)/kb, sum(b.parse)/kb, sum(b.parse)/sum(a.parse),
		mean(a.decide), mean(b.decide), mean(b.decide)/mean(a.decide), at(a.decide, 50), at(b.decide, 50),
		at(a.decide, 99), at(b.decide, 99), a.retained, b.retained, b.refused)
}

// best keeps the smaller of two measurements of each item.
func best(before, now []float64) []float64 {
	for i := range before {
		now[i] = min(now[i], before[i])
	}
	return now
}

func sum(times []float64) float64 {
	s := 0.0
	for _, t := range times {
		s += t
	}
	return s
}

func mean(times []float64) float64 { return sum(times) / float64(len(times)) }

// at returns a percentile of sorted times.
func at(times []float64, percent int) float64 { return times[(len(times)-1)*percent/100] }

// keep parses all files and measures the memory of their rules.
func keep(e engine, files []file, size int) ([]any, float64) {
	before := heap()
	rules := make([]any, len(files))
	for i, f := range files {
		rules[i] = e.parse(f.data)
	}
	return rules, float64(heap()-before) / float64(size)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func timeParse(e engine, files []file) []float64 {
	times := make([]float64, len(files))
	for i, f := range files {
		start := time.Now()
		e.parse(f.data)
		times[i] = float64(time.Since(start))
	}
	return times
}

// timeDecisions asks all questions about all files that the engine accepted.
func timeDecisions(e engine, files []file, rules []any) []float64 {
	var times []float64
	for i, f := range files {
		if rules[i] == nil {
			continue
		}
		for _, t := range f.targets {
			e.decide(rules[i], t)
			start := time.Now()
			for range answers {
				e.decide(rules[i], t)
			}
			times = append(times, float64(time.Since(start))/answers)
		}
	}
	return times
}
