// Package integration tests the binary with Caddyfiles, real clients, and origins on loopback. Each
// folder has the tests of one subject; package rig has the code that they share. Folders with long
// tests have the build tag slow, so that go test ./... takes minutes.
package integration
