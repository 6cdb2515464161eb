// Package redisstore keeps robots.txt records in Redis or Valkey, for gateways that share their
// records: each origin is fetched once for all of them.
//
// # Keys
//
// All keys begin with PREFIX:robots: and the number of the format. Origins are in 256 buckets, by
// the CRC-32 of their keys. The number of the bucket, three octal digits, is a hash tag: in a
// cluster each bucket is in a slot of its own, where one script saves a record with its history and
// its place in the index.
//
//	{BUCKET}:r:<key>  string  the record, after the time of its last attempt
//	{BUCKET}:h:<key>  list    its history, newest first
//	{BUCKET}:l:<key>  string  a lease, while a gateway fetches it
//	{BUCKET}:index    zset    the keys by name
//	{BUCKET}:seen     zset    the keys by the time of their last save
//	t:<sha256>        string  a text, once for all origins
//
// A text is not in the bucket of its record, because it is read by its hash alone. It is saved
// first, so no gateway finds a record without its text.
//
// Every key expires after the time of Config.Retention unless it is saved again, in use at least
// once a day; each save removes a few expired origins from the two sets. No command looks at all
// keys. What there is room for is the server's matter (maxmemory).
//
// # Calls
//
// To load takes one call for the record and one for its text; to save, one for the texts and one
// for the records, however many. A lease takes one. In a cluster each is a call to each node that
// has some of it. A page of List takes 256 commands, one for each bucket, which are sent at once,
// and then as many as there are slots with records of the page; a page is seldom not complete with
// that.
//
// # Upgrade
//
// The format before this one had all keys in one slot, under {PREFIX}:robots:2:. If this one does
// not have a record, history or text, the former one is read, with one call more, as long as it had
// a record in its time when this process looked. It is never written. Delete removes from both, or
// a purged record would come back. List shows the records of both.
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
