// Package evidence tests the binary's sealed logs: checkpoints, witnesses, recovery, and tampering.
// It has only tests.
package evidence
