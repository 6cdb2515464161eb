//go:build !race

package robotstxt_test

const raceEnabled = false
