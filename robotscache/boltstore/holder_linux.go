package boltstore

import (
	"fmt"
	"os"
	"strings"
	"syscall"
)

// holder names the process that has locked a file, from /proc/locks (proc_locks(5)). It is empty if
// the system does not tell.
func holder(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return ""
	}
	dev := uint64(stat.Dev) //nolint:unconvert // it is of another type on some processors
	file := fmt.Sprintf("%02x:%02x:%d", dev>>8&0xfff, dev&0xff|dev>>12&0xfff00, stat.Ino)
	locks, _ := os.ReadFile("/proc/locks") // without it nothing is found
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF; one that waits has "->" before FLOCK.
		if f := strings.Fields(line); len(f) > 5 && f[1] == "FLOCK" && f[5] == file {
			return ": process " + f[4]
		}
	}
	return ""
}
