package sealer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/mod/sumdb/tlog"
)

// appendBytes writes b, and adds the lines that b completes to the tree.
func (l *Log) appendBytes(b []byte) error {
	n, err := l.dest.Write(b)
	l.end += int64(n)
	if err != nil || len(l.tail) > 0 { // find out which file has the torn line
		err = errors.Join(err, l.checkFile())
	}
	l.addLeaves(b[:n])
	if err != nil {
		return fmt.Errorf("writing to %s: %w", l.config.File, err)
	}
	return nil
}

// checkFile compares the size of the file with the bytes that were written to it. Since the last
// check it may have been rotated, deleted, or changed by another program. Checking after each line
// would cost as much as hashing it.
func (l *Log) checkFile() error {
	stat := syscall.Stat_t{Size: -1, Nlink: 1} // if Fstat fails
	_ = syscall.Fstat(int(l.file.Fd()), &stat)
	switch old := l.file; {
	case stat.Size < l.end && l.followRotation():
		// For a file that was rotated, compressed and removed, the link has the rotated name.
		if link, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", old.Fd())); link == l.config.File+" (deleted)" {
			l.fileChanges++
			l.deleted = true
		}
		_ = old.Close() // it was only looked at
		if len(l.tail) > 0 {
			l.addLeaf(l.tail) // it stays torn
			l.tail = nil
		}
	case stat.Nlink == 0:
		l.fileChanges++
		if err := l.restore(); err != nil {
			return fmt.Errorf("%s was deleted: %w", l.config.File, err)
		}
		l.deleted = true
	case stat.Size != l.end:
		l.fileChanges++
		l.end = max(stat.Size, 0)
	}
	return nil
}

// followRotation reports whether the name of the log now belongs to another file, and switches to
// it.
func (l *Log) followRotation() bool {
	f, err := os.Open(l.config.File)
	if err != nil {
		return false
	}
	info, err := f.Stat()
	known, _ := l.file.Stat() // nil at a start
	if err != nil || os.SameFile(known, info) {
		_ = f.Close() // it was only looked at
		return false
	}
	l.file, l.end, l.rotated = f, info.Size(), true
	_ = lock(f) // the new file is ours; openLog reports locks of others
	return true
}

// restore makes a new file in place of a deleted one.
func (l *Log) restore() error {
	old, err := l.file, l.dest.Close()
	dest, openErr := l.config.Open()
	if err = errors.Join(err, openErr); openErr != nil {
		return err
	}
	if l.dest = dest; !l.followRotation() {
		return errors.Join(err, errNoFile)
	}
	return errors.Join(err, old.Close())
}

var errNoFile = errors.New("the writer made no file with this name")

// addLeaves adds the lines of b, which is now at the end of the file, to the tree.
func (l *Log) addLeaves(b []byte) {
	if len(l.tail) > 0 {
		b = append(l.tail, b...)
		l.tail = nil
	}
	for {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		if !ended {
			break
		}
		l.addLeaf(line)
		b = rest
	}
	if len(b) > 0 {
		l.tail = bytes.Clone(b)
	}
}

// addLeaf adds a line to the tree if there is room in memory. If not, fillGap reads it again.
func (l *Log) addLeaf(line []byte) {
	if l.size++; l.size-l.saved <= maxPending {
		l.pending = append(l.pending, tlog.RecordHash(line))
	}
}
