//go:build race

package rig

// RaceEnabled reports whether the tests, and thus the gateway, run under the race detector.
const RaceEnabled = true
