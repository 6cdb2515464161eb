package follow

import (
	"os"
	"syscall"
	"time"
)

// changedAt returns when a file was changed last, its name and permissions included.
func changedAt(info os.FileInfo) time.Time {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return time.Unix(s.Ctim.Unix())
	}
	return info.ModTime()
}
