// Package integration holds the tests that drive the real binary: a real Caddyfile, real clients, real origins on
// loopback. It has no code of its own besides the tests.
package integration
