// Package cluster distributes the orders of one gateway to all gateways of a fleet, through Redis
// or Valkey.
//
// Lasting orders (stops) form a set that every gateway keeps in its own file. Gateways exchange the
// set through Redis, but Redis is never the authority: a gateway adds the orders that Redis lacks,
// and merges the orders that it lacks itself. So a Redis that was down, emptied or restored from an
// old snapshot is filled again and lifts no stop. Actions (purge, refresh, unblock) go through a
// stream, and each gateway carries them out once. Heartbeats carry acknowledgements and checkpoints
// of sealed logs.
//
// # Keys
//
// All keys start with the prefix as their hash tag, {PREFIX}:fleet:, so a Redis Cluster keeps them
// on one node.
//
//	orders    hash    id → order
//	lifted    hash    id → who lifted it, and when
//	version   string  number, random text, and how many orders and lifts there are; new with each
//	                  write
//	changes   stream  the last 1,000 writes, from one version to the next
//	gateways  zset    processes by their last heartbeat, from package link
//	acks      hash    process → its name, version, the orders it applied last, from package link
//	actions   stream  the last 10,000 actions
//	tokens    string  random bytes, see Fleet.Share
//	look      channel a write was made; the message says no more. In a database other than 0 the
//	                  name ends with its number, such as look:2
//
// A gateway looks when the channel says so, and every half second in any case, so a lost message
// costs at most half a second. Write access to these keys is enough to lift orders, so give the
// gateways their own Redis user.
package cluster
