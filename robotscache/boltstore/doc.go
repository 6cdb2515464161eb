// Package boltstore keeps robots.txt records in one file: the store of a gateway
// that shares with nobody.
//
// # Durability
//
// Saves are collected and committed together, at the latest 200 ms after the
// first of them or when 1,000 are waiting; each commit is synced to the disk
// before it counts. Reads see what is not committed yet. So a gateway that is
// killed, or a machine that loses power, loses what was saved in its last moments
// at most, and what is lost is fetched again. Flush commits at once and is the
// acknowledgement. The file is whole at every moment: a commit is there or not.
//
// # Size
//
// A text is kept once, compressed, however many origins and versions have it. A
// record that nobody saved for Config.Retention is deleted, with its history: an
// origin that is asked for is saved at least once a day, so it is one that nobody
// asks for. Space that becomes free is used again; the file does not shrink.
//
// # Trust
//
// A file that is not a store of ours, that is cut short, that a later release
// wrote or that another process has open is left as it is, and Open says so.
// Records carry a checksum, texts are checked against their hash at each read:
// one that is damaged is an error. Damage to the file's structure that shows later
// ends its use until the process is started again.
package boltstore
