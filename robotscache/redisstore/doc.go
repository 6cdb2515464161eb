// Package redisstore keeps robots.txt records in Redis or Valkey, for gateways
// that share what they know: each origin is fetched once for all of them.
//
// # Keys
//
// All keys begin with Config.Prefix and the number of the format. The prefix has
// a hash tag, so that in a cluster all keys are in one slot, as the scripts need.
//
//	r:<origin>  string  the record, after the time of its last attempt
//	h:<origin>  list    its history, newest first
//	t:<sha256>  string  a text, once for all origins
//	l:<origin>  string  a lease, while somebody fetches the origin and renews it
//	index       zset    the origins by name
//	seen        zset    the origins by the time of their last save
//
// Everything expires after Config.Retention unless it is saved again; the two
// sets are trimmed by the way. No command looks at all keys.
//
// # Durability
//
// A save that has returned is with the server. What the server loses, by its own
// settings for persistence and eviction, is fetched again.
//
// # Outages
//
// Each call is bounded by Config.Timeout. A server to which there is no connection,
// or of which nothing is heard for twice that time, is taken for gone: calls then
// fail at once with robotscache.ErrUnavailable, but for one each second which tries
// whether it is back; so nothing has to be restarted or told. The server may also
// be away when the gateway starts.
package redisstore
