package rig

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// RightPassword is the password of every agent in these tests.
const RightPassword = "right"

// hashes has the hash of the right password by algorithm. A hash takes a second, so tests share
// them.
var hashes sync.Map

// Hashed returns a hash of the right password, with Caddy's default parameters.
func Hashed(t *testing.T, algorithm string) string {
	t.Helper()
	if hash, ok := hashes.Load(algorithm); ok {
		return hash.(string)
	}
	hash := MakeHash(t, algorithm)
	hashes.Store(algorithm, hash)
	return hash
}

// MakeHash makes a hash of the right password with the binary.
func MakeHash(t *testing.T, algorithm string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), Binary, "hash-password", "--plaintext", RightPassword, "--algorithm", algorithm).Output()
	if err != nil {
		t.Fatalf("hash-password: %v", err)
	}
	return strings.TrimSpace(string(out))
}
