// Package operate holds the tests of the binary that concern its operators: starting, reloading, stopping, commands, logs and metrics. It has only tests.
package operate
