//go:build linux || darwin

package sockets

import (
	"math"
	"syscall"
)

// DescriptorLimit returns how many files and connections the process may have open, 0 if that is
// not known.
func DescriptorLimit() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int(min(limit.Cur, math.MaxInt32))
}
