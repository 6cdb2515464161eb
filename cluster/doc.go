// Package cluster makes the orders of one gateway reach all gateways of a fleet, by Redis or
// Valkey.
//
// Orders that hold (stops) are a set that every gateway keeps in a file of its own. Gateways
// exchange the set through Redis, but Redis is never the authority: a gateway adds the orders that
// Redis lacks, and merges those that it lacks itself. So a Redis that was away, emptied or set back
// is filled again, and lifts nothing. Actions (purge, refresh, unblock) go through a stream, and
// each gateway does them once. Heartbeats carry acknowledgements and checkpoints of sealed logs.
//
// # Keys
//
// All begin with the prefix as their hash tag, {PREFIX}:fleet:, so that a Redis Cluster keeps them
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
// A gateway looks when the channel says so, and twice a second in any case: a lost message costs
// half a second. Anyone who can write to these keys can lift orders: give the gateways a user of
// their own.
package cluster
