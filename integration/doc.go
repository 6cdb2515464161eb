// Package integration holds the tests that drive the real binary: a real Caddyfile, real clients, real origins on
// loopback. It has no code of its own besides the tests. Package chaos below it holds those in which what the gateway needs
// fails under load, and package rig what the packages share.
package integration
