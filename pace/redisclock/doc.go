// Package redisclock keeps the clocks of several gateways together in Redis or Valkey
// ([pace.Shared]).
//
// A slot is reserved by one Lua call, on Redis's own clock: GCRA, the gap, and the block, for all
// clocks of the request or none. Nothing else is asked of Redis on a request's way. Places in
// flight are not kept there: each gateway has its part of them, the limit divided by the number of
// gateways (at least one), as that needs no lease, and no second call when an answer ends.
//
// The link to Redis knows how many gateways share clocks. When Redis cannot be reached each keeps
// to its part of the rate; see [pace.Peers]. It comes back by itself.
//
// All keys carry one hash tag, so that a Redis Cluster keeps them on one node, as a Lua call over
// several of them demands. Keys expire two minutes after their clocks are free. A user with
// restricted rights needs the keys and channels under PREFIX:{pace}: and the commands of the
// scripts, EVALSHA, EVAL and SUBSCRIBE, beside what the heartbeat of package link needs.
package redisclock
