// Package redisclock keeps the clocks of several gateways together in Redis or Valkey
// ([pace.Shared]).
//
// One Lua call reserves a slot on Redis's own clock. It checks GCRA, the gap and the block, and
// takes a place in flight, for all clocks of the request or for none. A request makes no other call
// to Redis. A place is a lease of 30 s. The gateway renews it until the request has ended, then
// returns it by a call that nobody waits for.
//
// The link to Redis knows how many gateways share clocks. If Redis is unreachable, each gateway
// uses only its part of the rate; see [pace.Peers]. The link reconnects by itself.
//
// The clocks are in 1,024 buckets, chosen by the site of their host. Each bucket has its own hash
// tag, so a Redis Cluster spreads the buckets over its nodes. The clocks of a host, of its site and
// of an agent's rate there share a bucket. The clock of an address is in another bucket, which
// takes a second call.
//
//	{PREFIX:pace:N}:key:NAME  hash     a clock; it expires two minutes after the clock is free
//	{PREFIX:pace:N}:key:NAME places  zset    its leases, by their end
//	{PREFIX:pace:N}:key:NAME turn    string  the gateway that gets the next place
//	{PREFIX:pace:N}:era       hash     since when the bucket remembers, and the run of the server
//	PREFIX:{pace}:blocks      channel  of blocks, and of losses of memory
//
// A bucket without an era, or with the era of another run, has lost its memory: Redis was emptied,
// started from an older snapshot, or is a replica that lagged behind. All gateways are told, and
// drop their slots. For the next second, nothing can be reserved in the bucket. After that, each
// clock counts as just used, with its burst spent. The same happens on a new server.
//
// A user with restricted rights needs these keys and the channel, the commands of the scripts,
// EVALSHA, EVAL, PUBLISH and SUBSCRIBE, and the rights for the heartbeat of package link. Without
// the right to INFO, the gateway notices an empty bucket, but neither an older snapshot nor a
// replica.
package redisclock
