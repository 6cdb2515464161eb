// Package worst_test measures robots.txt files and targets that are made to be slow to parse and to
// decide on.
package worst_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/crawlgate/crawlgate/robotstxt"
)

// worst is a file that is slow to parse, with a target that is slow to decide on.
type worst struct {
	name   string
	data   string
	target string
}

const longTarget = 8 << 10

// fill repeats lines, which depend on their number, until the file has 500 KiB.
func fill(head string, line func(i int) string) string {
	var b strings.Builder
	b.WriteString(head)
	for i := 0; ; i++ {
		l := line(i)
		if b.Len()+len(l) > robotstxt.MaxSize {
			return b.String()
		}
		b.WriteString(l)
	}
}

// word spells a number in three letters.
func word(i int) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	n := len(letters)
	return string([]byte{letters[i/n/n%n], letters[i/n%n], letters[i%n]})
}

func worstCases() []worst {
	const star = "User-agent: *\n"
	long := func(s string) string { return "/" + strings.Repeat(s, longTarget/len(s)) }
	return []worst{
		{
			"one-byte wildcards, long lines, found",
			fill(star, func(i int) string { return "Disallow: /" + strings.Repeat("*a", 8000+i) + "\n" }),
			long("a"),
		},
		{
			"one-byte wildcards, long lines, fail at the end",
			fill(star, func(i int) string { return fmt.Sprintf("Disallow: /*%d%s*b\n", i%10, strings.Repeat("*a", 8000+i)) }),
			"/b0123456789" + strings.Repeat("a", longTarget),
		},
		{
			"one-byte wildcards, short lines, in an order that is not there",
			fill(star, func(i int) string { w := rising(i); return "Allow:*" + w[:1] + "*" + w[1:2] + "*" + w[2:] + "\n" }),
			falling(1),
		},
		{
			"25,000 plain rules",
			fill(star, func(i int) string { return fmt.Sprintf("Disallow:/%05d/\n", i) }),
			"/24999" + long("/x"),
		},
		{
			"25,000 wildcard rules",
			fill(star, func(i int) string { return fmt.Sprintf("Disallow:/*/%05d\n", i) }),
			long("/99999"),
		},
		{
			"25,000 wildcard rules that need a pair of bytes each, all there",
			fill(star, func(i int) string { w := word(i); return "Disallow:*" + w + "*" + w + "!\n" }),
			"/" + strings.Repeat("!", 10) + fill("", func(i int) string { return word(i) })[:longTarget],
		},
		{
			"25,000 wildcard rules, a target of random letters",
			fill(star, func(i int) string { return fmt.Sprintf("Disallow:*%s*%s\n", noise(3, i), noise(6, -i)) }),
			"/" + noise(longTarget, 9309),
		},
		{
			"25,000 wildcard rules of two letters, none there",
			fill(star, func(i int) string { return "Disallow:*a" + bits(i) + "b*!\n" }),
			"/!" + fill("", func(i int) string { return bits(i * i * 7919) })[:longTarget],
		},
		{
			"/*a*a*a*a*b$",
			fill(star, func(i int) string { return "Disallow:/*a*a*a*" + word(i) + "*a*b$\n" }),
			long("a"),
		},
		{
			"segments found late, then missing",
			fill(star, func(i int) string {
				w := rising(i)
				return "Disallow:*X" + w[:1] + "*X" + w[1:2] + "*X" + w[2:] + "\n"
			}),
			falling(2),
		},
		{
			"nested prefixes",
			fill(star, func(i int) string { return "Disallow:/" + strings.Repeat("a", i%1000) + "\n" }),
			long("a"),
		},
		{
			"40,000 names of one group",
			fill("", func(i int) string { return "User-agent:" + string(rune('a'+i/46656%26)) + word(i) + "\n" }),
			long("a"),
		},
		{
			"as many groups as fit",
			fill("", func(i int) string { return "User-agent:" + word(i) + "\nAllow:/\n" }),
			long("a"),
		},
		{
			"one group in as many pieces as fit",
			fill("", func(i int) string { return "User-agent:*\nDisallow:/" + word(i) + "\n" }),
			long("a"),
		},
		{
			"one group that shares each piece with another",
			fill("", func(i int) string { return "User-agent:*\nUser-agent:" + word(i) + "\nDisallow:/" + word(i) + "*a\n" }),
			long("b"),
		},
		{
			"second chances",
			fill(star, func(i int) string { return fmt.Sprintf("Disallow:*?*%%3A%04d\n", i) }),
			"/?" + strings.Repeat("%3A999x", longTarget/7),
		},
		{
			"second chances of a dollar",
			fill(star, func(i int) string { return fmt.Sprintf("Disallow:*$*$%04d\n", i) }),
			"/" + strings.Repeat("%24999x", longTarget/7),
		},
		{"no line end", strings.Repeat("a", robotstxt.MaxSize), "/"},
		{"carriage returns", strings.Repeat("\r", robotstxt.MaxSize), "/"},
		{"colons", strings.Repeat("d:\r", robotstxt.MaxSize/3), "/"},
		{"sitemaps", fill("", func(int) string { return "Sitemap:http://y\n" }), "/"},
		{"delays", fill(star, func(i int) string { return fmt.Sprintf("Crawl-delay:%d\nUser-agent:%d\n", i, i) }), "/"},
	}
}

// noise returns n letters that depend on the seed.
func noise(n, seed int) string {
	rnd := rand.New(rand.NewPCG(uint64(seed), 9309))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('a' + rnd.IntN(26))
	}
	return string(b)
}

// bits spells the low 16 bits of a number in two letters.
func bits(i int) string {
	b := make([]byte, 16)
	for n := range b {
		b[n] = "ab"[i>>n&1]
	}
	return string(b)
}

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWYZabcdefghijklmnopqrstuvwxyz"

// rising returns three bytes of the alphabet in rising order, different ones for each i as long as
// there are any.
func rising(i int) string {
	n := len(alphabet)
	for a := range n {
		for b := a + 1; b < n; b++ {
			if rest := n - b - 1; i < rest {
				return string([]byte{alphabet[a], alphabet[b], alphabet[b+1+i]})
			} else {
				i -= rest
			}
		}
	}
	return "!!!"
}

// falling returns the alphabet backwards at both ends; each byte follows an X if width is 2. Of
// three rising bytes the first is found at the start, the second only at the end, and the third not
// at all.
func falling(width int) string {
	var run strings.Builder
	for i := len(alphabet) - 1; i >= 0; i-- {
		run.WriteString("X"[:width-1] + alphabet[i:i+1])
	}
	return "/" + run.String() + strings.Repeat("_", longTarget) + run.String()
}

func BenchmarkWorstParse(b *testing.B) {
	for _, w := range worstCases() {
		b.Run(strings.ReplaceAll(w.name, " ", "-"), func(b *testing.B) {
			data := []byte(w.data)
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			for b.Loop() {
				robotstxt.Parse(data)
			}
		})
	}
}

func BenchmarkWorstDecide(b *testing.B) {
	for _, w := range worstCases() {
		b.Run(strings.ReplaceAll(w.name, " ", "-"), func(b *testing.B) {
			rs := robotstxt.Parse([]byte(w.data))
			agent := robotstxt.Agent{Tokens: []string{"ExampleBot"}}
			b.ReportAllocs()
			for b.Loop() {
				rs.Select(agent).Match(w.target)
			}
		})
	}
}
