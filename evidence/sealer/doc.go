// Package sealer seals an access log while it is written: it numbers the lines, keeps the hash of
// each in a tree, and signs checkpoints of the tree. docs/evidence.md says what that proves, and
// what happens in a crash, with a full disk or without a file.
//
// [Open] returns a [Log] to write to (sealer.go). Its files may be rotated, deleted or torn
// (append.go). A goroutine syncs lines and tree and signs checkpoints (checkpoint.go, tiles.go),
// and another one has witnesses cosign them (witness.go). A start resumes the tree where the last
// process left it, or begins a generation (recovery.go). [ReadState] reads the state from
// the disk (state.go).
package sealer
