// Package operate tests operators' tasks with the binary: starting, reloading, stopping, commands,
// logs and metrics. It has only tests.
package operate
