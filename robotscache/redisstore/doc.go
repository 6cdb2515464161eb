// Package redisstore keeps robots.txt records in Redis or Valkey, for gateways that share their
// records: each origin is fetched once for all of them.
//
// # Keys
//
// All keys begin with {PREFIX}:robots: and the number of the format. The braces are a hash tag: in
// a cluster all keys are in one slot, as the scripts need.
//
//	r:<key>     string  the record, after the time of its last attempt
//	h:<key>     list    its history, newest first
//	t:<sha256>  string  a text, once for all origins
//	l:<key>     string  a lease, while a gateway fetches it
//	index       zset    the keys by name
//	seen        zset    the keys by the time of their last save
//
// Every key expires after the time of Config.Retention unless it is saved again, in use at least
// once a day; each save removes a few expired origins from the two sets. No command looks at all
// keys. What there is room for is the server's matter (maxmemory).
//
// # Durability
//
// The server has a record when Save returns. Records that the server loses, by its own settings for
// persistence and eviction, are fetched again.
//
// # Outages
//
// Each call is bounded by Config.Timeout. A server counts as gone if there is no connection to it,
// or if heartbeats get no answer for twice that time. Calls then fail at once with
// robotscache.ErrUnavailable, until a heartbeat is answered again. The server may also be away when
// the gateway starts.
package redisstore
