// Package integration has the tests that drive the real binary: a real Caddyfile, real clients, real origins on loopback.
// Each folder holds the tests of a subject, and package rig the code that they share. Folders whose tests wait for long
// have the build tag slow, so that go test ./... takes minutes.
package integration
