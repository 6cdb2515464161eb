// Package engine holds what all sites of a configuration share: the cache of robots.txt records
// with its store and fetcher, the clocks of the hosts, the stops, the transport, events and
// metrics. State that is costly to lose outlives a reload: the records as long as the configuration
// names the same store, the clocks and the stops always. active.go says what a reload does.
package engine
