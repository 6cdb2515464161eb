//go:build !race

package rig

// RaceEnabled says that the tests run under the race detector; the gateway then does too.
const RaceEnabled = false
