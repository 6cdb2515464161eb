// Package integration has the tests that drive the real binary: a real Caddyfile, real clients, real origins on loopback.
// Each folder holds the tests of a subject, and package rig the code that they share.
package integration
