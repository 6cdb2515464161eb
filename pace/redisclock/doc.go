// Package redisclock keeps the clocks of several gateways together in Redis or Valkey
// ([pace.Shared]).
//
// A slot is reserved by one Lua call, on Redis's own clock: GCRA, the gap, the block, and a place in
// flight, for all clocks of the request or none. Nothing else is asked of Redis on a request's way.
// A place is a lease of 30 s, which the gateway renews until the request has ended; then it gives
// the place back by a call for which nobody waits.
//
// The link to Redis knows how many gateways share clocks. When Redis cannot be reached each keeps
// to its part of the rate; see [pace.Peers]. It comes back by itself.
//
// The clocks are in 1,024 buckets by the site of their host, each with a hash tag of its own, so
// that a Redis Cluster spreads them over its nodes. The clocks of a host, its site and an agent's
// rate there are in one bucket; that of an address is in another one, which takes a second call.
//
//	{PREFIX:pace:N}:key:NAME  hash     a clock; it expires two minutes after the clock is free
//	{PREFIX:pace:N}:key:NAME places  zset    its leases, by their end
//	{PREFIX:pace:N}:key:NAME turn    string  the gateway that gets the next place
//	{PREFIX:pace:N}:era       hash     since when the bucket remembers, and the run of the server
//	PREFIX:{pace}:blocks      channel  of blocks, and of losses of memory
//
// A bucket without an era, or with that of another run, has lost its memory: Redis was emptied,
// began with an older snapshot, or is a replica that lagged behind. All gateways are told, and drop
// the slots that they hold. In the next second nothing is reserved in the bucket; after it each
// clock counts as just used, with its burst spent. The same holds for a new server.
//
// A user with restricted rights needs these keys and the channel, and the commands of the scripts,
// EVALSHA, EVAL, PUBLISH and SUBSCRIBE, beside what the heartbeat of package link needs. Without
// the right to INFO a bucket that is empty is found out, but no older snapshot and no replica.
package redisclock
