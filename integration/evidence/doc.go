// Package evidence holds the tests of the binary that concern sealed logs: checkpoints, witnesses, recovery, and logs that were changed. It has only tests.
package evidence
