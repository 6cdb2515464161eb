// Package testcpu measures the CPU time of the process for benchmarks: on a busy machine, the
// elapsed time depends on other processes.
package testcpu

import (
	"syscall"
	"testing"
	"time"
)

// Used returns the CPU time that the process has used so far, including in the kernel.
func Used(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
