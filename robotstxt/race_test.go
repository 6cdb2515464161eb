//go:build race

package robotstxt_test

const raceEnabled = true
