// Package boltstore keeps robots.txt records in one bbolt file, for a gateway that shares its
// records with no other.
//
// # Durability
//
// Each save and each deletion is one commit, which is synced to the disk before the call returns.
// The file is whole at every moment: a commit is there or not.
//
// # Size
//
// A text is kept once, compressed, however many origins and versions have it. It is deleted when
// Config.Retention has passed since its last use, or when there is no more room. A record that was
// not saved for that time is deleted with its history: an origin in use is saved at least once a
// day, so nobody asks for this one. Free space is used again; the file does not shrink.
//
// # Trust
//
// Open refuses a file that is not a store of Crawlgate, is cut short, has the format of another
// release or is open in another process, and leaves it as it is. Records carry a checksum, and
// texts are checked against their hash at each read: damage is an error. Damage to the file's
// structure that shows later ends its use until the process is started again.
package boltstore
