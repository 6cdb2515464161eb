// Package robotscache keeps the robots.txt record of every origin and sees to
// it that each is fetched when it must be, once, and not when it need not be.
//
// [Cache.Lookup] asks three places in turn: the hot tier (ristretto, in memory),
// the [Store] (a file, Redis, or memory) and the [Fetcher]. What is done when is
// decided by the pure functions of fetch.Policy; this package adds the waiting,
// sharing and bounding.
//
// The hot tier only saves time. It may drop or delay any entry, so nothing
// depends on what it holds: the truth is the store, what the store has not
// taken yet (see writebehind.go), and the flight under way.
package robotscache
