// Package integration holds the tests that drive the real binary: a real Caddyfile, real clients, real origins on
// loopback. It has no code of its own besides the tests. Package chaos below it has the tests in which the
// gateway's dependencies fail under load, package egress those of the firewall rules, and package rig the code they share.
package integration
