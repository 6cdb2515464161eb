// Package boltstore keeps robots.txt records in one bbolt file, for a gateway that does not share
// its records.
//
// # Durability
//
// Each save and each deletion is one commit, which is synced to the disk before the call returns.
// The file is always consistent: a commit is either complete or absent.
//
// # Size
//
// A text is kept once, compressed, even if many origins and versions have it. It is deleted when
// Config.Retention has passed since its last use, or when room is needed. A record that was not
// saved for that time is deleted with its history: an origin in use is saved at least once a day,
// so this one is not in use. Free space is reused, but the file never shrinks.
//
// # Trust
//
// Open refuses a file that is not a store of Crawlgate, is truncated, has the format of another
// release or is open in another process, and does not change it. Records have a checksum, and
// texts are checked against their hash at each read: damage is an error. If damage to the file's
// structure is found later, the file is not used until the process restarts.
package boltstore
