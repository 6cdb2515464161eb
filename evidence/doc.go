// Package evidence is the format of sealed access logs, for everyone who writes or checks one.
//
// Each line of such a log ends with a seal (seal.go): the ID of the log and the number of the line.
// The hashes of the lines are the leaves of a Merkle tree (RFC 6962 section 2.1, tree.go), which is
// kept on disk in tiles (C2SP tlog-tiles). A signed checkpoint (C2SP tlog-checkpoint v1.0.0,
// checkpoint.go) says how many lines there are, with the root of the tree over them. The
// writer adds notices (seal.go) to the log: when it was opened, closed, or could not be written.
//
// Package sealer writes such logs, package caddylog is its log writer in Caddy, and package verify
// checks the logs. docs/evidence-format.md describes the format, for verifiers in other languages
// too.
package evidence
