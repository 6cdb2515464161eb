//go:build race

package integration

// raceEnabled says that the tests run under the race detector; the gateway then does too.
const raceEnabled = true
