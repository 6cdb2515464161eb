package evidence

import "golang.org/x/mod/sumdb/tlog"

// Some reads leaves from seq on: n of them, or fewer where their file ends. The error is
// [fs.ErrNotExist] where the file is gone.
func (l *Leaves) Some(seq, n int64) ([]tlog.Hash, error) {
	at := seq % LeavesPerFile
	return l.read(LeavesFile(seq/LeavesPerFile), at, min(n, LeavesPerFile-at))
}
