// Package verify compares the lines of sealed access logs with signed checkpoints, and finds lines
// that are missing, changed, out of order or added.
//
// [New] first checks the leaves, which the sealer keeps in the folder of evidence, against the
// checkpoints (load.go). A confirmed leaf gives the hash of its line, so a finding has a file and a
// line (seal.go, tree.go). Lines after the last confirmed leaf are checked together, from
// checkpoint to checkpoint. own.go reads the sealer's notices, and peers.go the checkpoints of
// other gateways. docs/audit.md explains each finding, and what no seal can prove.
package verify
