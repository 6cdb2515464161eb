// Package engine holds everything that the sites of a configuration share: the cache of robots.txt
// records with its store and fetcher, the clocks of the hosts, the stops, the transport, events and
// metrics. Valuable state outlives a reload: the records if the configuration still names the same
// store, and the clocks and stops always. active.go describes reloads.
package engine
