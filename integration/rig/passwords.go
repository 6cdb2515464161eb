package rig

import (
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// RightPassword is the password of every agent of these tests.
const RightPassword = "right"

// hashes has the hash of the right password by algorithm. A hash takes a second, so tests share them.
var hashes sync.Map

// Hashed gives a hash as an operator makes it, with the parameters that Caddy takes by default.
func Hashed(t *testing.T, algorithm string) string {
	t.Helper()
	if hash, ok := hashes.Load(algorithm); ok {
		return hash.(string)
	}
	hash := MakeHash(t, algorithm)
	hashes.Store(algorithm, hash)
	return hash
}

// MakeHash has the binary make a hash of the right password.
func MakeHash(t *testing.T, algorithm string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), Binary, "hash-password", "--plaintext", RightPassword, "--algorithm", algorithm).Output()
	if err != nil {
		t.Fatalf("hash-password: %v", err)
	}
	return strings.TrimSpace(string(out))
}
