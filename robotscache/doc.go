// Package robotscache keeps the robots.txt record of every origin, and fetches each record only
// when necessary and only once (RFC 9309 section 2.4).
//
// [Cache.Lookup] asks three places in turn: the hot tier (ristretto, in memory), the [Store] (a
// file, Redis, or memory) and the [Fetcher]. The pure functions of fetch.Policy decide when a
// record is fresh and when it is fetched again. This package adds waiting, sharing and bounds.
//
// The hot tier only saves time. It may drop or delay any entry, so nothing depends on its content:
// the truth is in the store, in the pending writes (see writebehind.go), and in the flights in
// progress.
//
// The zero [Config] lacks a store and a fetcher, and [New] refuses it. The zero values of its other
// fields are the defaults.
package robotscache
