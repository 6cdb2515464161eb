// Package testcpu tells benchmarks the CPU time of the process: on a machine that is busy with other
// things the clock tells little.
package testcpu

import (
	"syscall"
	"testing"
	"time"
)

// Used returns what the process has used until now, in the kernel too.
func Used(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
